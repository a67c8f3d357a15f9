# frozen_string_literal: true

module Quipu
  # The base class of all metrics. The series of a metric are in the segment of a registry, and all
  # processes that share this segment count there.
  class Metric
    # The labels of the series that counts for all series beyond a limit, or without room.
    OVERFLOW = { quipu_overflow: "true" }.freeze
    # The limit of OpenMetrics for the names and values of an exemplar's labels together.
    MAX_EXEMPLAR_CHARACTERS = 128

    # @return [Symbol] the name
    attr_reader :name
    # @return [String] the help text
    attr_reader :docstring
    # @return [Array<Symbol>] the names of all labels
    attr_reader :labels
    # @return [Hash{Symbol => String}] the labels with a fixed value
    attr_reader :preset_labels
    # @return [Hash{Symbol => Object}] the settings
    attr_reader :store_settings
    # @return [Registry] the registry of the metric
    attr_reader :registry

    # @!method clear
    #   Removes all series, for all processes.
    #
    #   @return [Integer] the number of series
    #   @raise [StoreError] if they cannot be removed

    # Creates the metric and registers it.
    #
    # @param name [Symbol] the name
    # @param docstring [String] the help text
    # @param labels [Array<Symbol>] the names of the labels
    # @param preset_labels [Hash{Symbol => Object}] values for some of the labels
    # @param store_settings [Hash{Symbol => Object}] `aggregation:` of a gauge, one of
    #   {Gauge::AGGREGATIONS}; `exemplars:` of a counter or histogram
    # @param registry [Registry, nil] the registry; nil means {Quipu.registry}
    # @raise [ArgumentError] if the name or the docstring is not valid
    # @raise [LabelSetError] if a label is not valid
    # @raise [InvalidStoreSettingsError] if the kind of metric does not support the setting or its
    # value
    # @raise [AlreadyRegisteredError] if the registry already contains a metric of that name
    # @raise [StoreError] if the metric cannot be stored
    def initialize(name, docstring:, labels: [], preset_labels: {}, store_settings: {}, registry: nil)
      Labels.check_metric(name)
      Labels.check_docstring(docstring)
      Labels.check(labels, reserved_labels)
      @name = name
      @docstring = docstring.dup.freeze
      @labels = labels.dup.freeze
      @store_settings = store_settings.dup.freeze
      @preset_labels = preset(preset_labels)
      @registry = registry || Quipu.registry
      check_settings(store_settings)
      @registry.add(self) { |segment| open(segment) }
    end

    # The kind of metric, such as `:counter`.
    #
    # @return [Symbol]
    def type
      self.class::TYPE
    end

    # Returns the same metric with values for some or all labels. Keep the result for labels that do
    # not change, because a child with all its labels counts without a lookup.
    #
    # @param labels [Hash{Symbol => Object}] the values
    # @return [Metric] a metric of the same class
    # @raise [LabelSetError] if one of the labels is not a label of the metric
    def with_labels(labels)
      Labels.check(labels, reserved_labels)
      all = @preset_labels.merge(labels)
      is_whole = @labels.all? { |name| all.key?(name) }
      child_class = is_whole && !is_a?(self.class::Child) ? self.class::Child : self.class
      child_class.allocate.view_of(self, all)
    end

    # Returns all series, of all processes.
    #
    # A value is a Float. It is a Hash of bounds for a histogram, of `"count"`, `"sum"` and quantiles
    # for a summary, and of states for a state set.
    #
    # @return [Hash{Hash => Object}] the values by labels
    def values
      names, rows = native_series
      names.map!(&:to_sym)
      rows.each_with_object({}) do |(texts, numbers), all|
        all[texts ? names.zip(texts).to_h : OVERFLOW] = value_of(numbers)
      end
    end

    # Returns the value of one series, in the form of {#values}.
    #
    # @param labels [Hash{Symbol => Object}] the values of the labels without a preset value
    # @return [Object] zero if there is no such series
    # @raise [InvalidLabelSetError] if the label names differ from the metric's
    def get(labels: {})
      values.fetch(text_labels(labels)) { value_of(nothing) }
    end

    # Creates the series with these labels, so it is shown at zero.
    #
    # @param labels [Hash{Symbol => Object}] the values of the labels without a preset value
    # @return [nil]
    # @raise [InvalidLabelSetError] if the label names differ from the metric's
    def init_label_set(labels)
      native_init(labels)
    end

    # Removes the series with these labels, for all processes.
    #
    # @param labels [Hash{Symbol => Object}] the values of the labels without a preset value
    # @return [Boolean] whether there was such a series
    # @raise [InvalidLabelSetError] if the label names differ from the metric's
    # @raise [StoreError] if it cannot be removed
    def remove(labels)
      native_remove(labels)
    end

    # @return [String] the class and the name
    def inspect
      "#<#{self.class.name} #{name}>"
    end

    # The name of the family, without the suffix that a format adds.
    #
    # @return [String]
    # @api private
    def family_name
      name.to_s
    end

    # A copy would count in the same series.
    #
    # @raise [TypeError] always
    def initialize_copy(_)
      raise TypeError, "a metric cannot be copied: use with_labels"
    end

    # Called by its registry to register it again after you unregistered it: takes the name again,
    # so the metric's counts are shown again.
    #
    # @api private
    def open_again(segment)
      twin = self.class.allocate
      instance_variables.each { |name| twin.instance_variable_set(name, instance_variable_get(name)) }
      twin.send(:open, segment)
    end

    # @api private
    def view_of(metric, preset_labels)
      @name = metric.name
      @docstring = metric.docstring
      @labels = metric.labels
      @store_settings = metric.store_settings
      @registry = metric.registry
      copy_settings(metric)
      @preset_labels = preset(preset_labels)
      native_view(metric, @labels, preset_values)
    end
    protected :view_of

    private

    def open(segment)
      native_open(segment, family_name, LabelText.of(docstring), @labels, preset_values,
                  *native_settings)
    end

    def preset(labels)
      Labels.check(labels, reserved_labels)
      unknown = labels.keys - @labels
      unless unknown.empty?
        raise InvalidLabelSetError, "unknown preset labels #{unknown}: the labels are #{@labels}"
      end
      labels.transform_values { |value| LabelText.of(value).freeze }.freeze
    end

    def preset_values
      @labels.map { |name| @preset_labels[name] }
    end

    # Returns the preset labels and these, in the order of the metric, as strings.
    def text_labels(labels)
      all = @preset_labels.merge(labels || {})
      refuse_labels(labels) unless all.size == @labels.size && @labels.all? { |name| all.key?(name) }
      @labels.to_h { |name| [name, LabelText.of(all[name])] }
    end

    # Refuses a Hash whose keys are not the labels of the metric. The native part calls this.
    def refuse_labels(labels)
      given = labels.is_a?(Hash) ? labels.keys : labels.inspect
      raise InvalidLabelSetError, "labels must have the same signature (keys given: #{given} vs. " \
                                  "keys expected: #{@labels - @preset_labels.keys})"
    end

    def reserved_labels
      []
    end

    # The kind-specific settings.
    def allowed_settings
      []
    end

    def check_settings(settings)
      unknown = settings.keys - allowed_settings - [:aggregation]
      unless unknown.empty?
        raise InvalidStoreSettingsError, "#{type} #{name} has no setting #{unknown.join(", ")}"
      end
      check_aggregation(settings[:aggregation])
    end

    # Only a gauge supports an aggregation, because the processes share the series of all other
    # metrics.
    def check_aggregation(aggregation)
      return if aggregation.nil? || aggregation == :sum

      raise InvalidStoreSettingsError, "the values of a #{type} are summed over all processes: " \
                                       "leave out the aggregation #{aggregation.inspect}"
    end

    def native_settings
      []
    end

    def copy_settings(_metric); end

    def nothing
      [0.0]
    end

    def value_of(numbers)
      numbers.first
    end

    # Alternating names and values.
    def pairs(labels)
      labels.flat_map { |name, value| [LabelText.of(name), LabelText.of(value)] }
    end

    # The same for an exemplar; raises if it is longer than OpenMetrics allows.
    def exemplar_pairs(exemplar)
      Labels.check_exemplar(exemplar)
      texts = pairs(exemplar)
      length = texts.sum(&:size)
      return texts if length <= MAX_EXEMPLAR_CHARACTERS

      raise InvalidLabelSetError, "the labels of the exemplar have #{length} characters: use at " \
                                  "most #{MAX_EXEMPLAR_CHARACTERS}"
    end

    def clock
      Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end
