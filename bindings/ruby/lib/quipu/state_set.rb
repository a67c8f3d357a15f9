# frozen_string_literal: true

module Quipu
  # Named states. Exactly one is on. All processes share it.
  #
  #   mode = Quipu.registry.state_set(:mode, docstring: "Current mode.", states: %w[idle busy])
  #   mode.state = "busy"
  class StateSet
    # The type, as {Metric#type} returns it.
    TYPE = :state_set

    # The names of the states.
    #
    # @return [Array<String>]
    attr_reader :states

    # Creates the set of states and registers it.
    #
    # @param (see Metric#initialize)
    # @param states [Array<String, Symbol>] the names of the states
    # @raise (see Metric#initialize)
    # @raise [ArgumentError] if there are no states, or two with one name
    def initialize(name, docstring:, states:, labels: [], preset_labels: {}, store_settings: {},
                   registry: nil)
      @states = states.map { |state| LabelText.of(state).freeze }.freeze
      raise ArgumentError, "states is empty: name at least one state" if @states.empty?
      raise ArgumentError, "duplicate state: use each once" if @states.uniq.size < @states.size

      super(name, docstring: docstring, labels: labels, preset_labels: preset_labels,
                  store_settings: store_settings, registry: registry)
    end

    # Turns this state on and all others off.
    #
    # @param state [String, Symbol] the name of the state
    # @param labels [Hash{Symbol => Object}, nil] the values of the labels without a preset value
    # @return [nil]
    # @raise [ArgumentError] if there is no state with that name
    # @raise [InvalidLabelSetError] if the label names differ from the metric's
    def set(state, labels: nil)
      index = @states.index(state.to_s)
      raise ArgumentError, "unknown state #{state.inspect}: use one of #{@states}" unless index

      native_set(labels, index)
    end

    # Turns this state on and all others off.
    #
    # @param state (see #set)
    # @raise [ArgumentError] if there is no state with that name
    def state=(state)
      set(state)
    end

    private

    # The formats show the state in a label with the name of the metric.
    def reserved_labels
      [name]
    end

    def native_settings
      [@states]
    end

    def copy_settings(metric)
      @states = metric.states
    end

    def nothing
      [0.0] * @states.size
    end

    def value_of(numbers)
      @states.zip(numbers).to_h { |state, n| [state, n == 1.0] }
    end
  end
end
