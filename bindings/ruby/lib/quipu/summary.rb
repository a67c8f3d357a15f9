# frozen_string_literal: true

module Quipu
  # Count and sum of observations, over all processes. With `quantiles: [0.5, 0.99]`, you also see
  # these quantiles over the last ten minutes.
  class Summary
    # The type, as {Metric#type} returns it.
    TYPE = :summary

    # The quantiles that it shows, 0 to 1.
    #
    # @return [Array<Numeric>]
    attr_reader :quantiles

    # Creates the summary and registers it.
    #
    # @param (see Metric#initialize)
    # @param quantiles [Array<Numeric>] the quantiles to show, 0 to 1
    # @raise (see Metric#initialize)
    def initialize(name, docstring:, labels: [], preset_labels: {}, quantiles: [],
                   store_settings: {}, registry: nil)
      @quantiles = quantiles.dup.freeze
      super(name, docstring: docstring, labels: labels, preset_labels: preset_labels,
                  store_settings: store_settings, registry: registry)
    end

    # Records an observation.
    #
    # @param value [Numeric] the observed value
    # @param labels [Hash{Symbol => Object}, nil] the values of the labels without a preset value
    # @return [nil]
    # @raise [TypeError] if the value is not a number
    # @raise [ArgumentError] if the value is NaN
    # @raise [InvalidLabelSetError] if the label names differ from the metric's
    def observe(value, labels: nil)
      native_observe(labels, value)
    end

    # Observes the duration of the block in seconds.
    #
    # @param labels (see #observe)
    # @yield the code to measure, also if it raises
    # @return [Object] the result of the block
    # @raise [InvalidLabelSetError] if the label names differ from the metric's
    def time(labels: nil)
      start = clock
      begin
        yield
      ensure
        native_observe(labels, clock - start)
      end
    end

    private

    def reserved_labels
      [:quantile]
    end

    def native_settings
      [@quantiles.map { |quantile| Float(quantile) }]
    end

    def copy_settings(metric)
      @quantiles = metric.quantiles
    end

    def nothing
      [0.0, 0.0] + [Float::NAN] * @quantiles.size
    end

    def value_of(numbers)
      count, sum, *values = numbers
      value = { "count" => count, "sum" => sum }
      @quantiles.zip(values) { |quantile, n| value[quantile.to_s] = n }
      value
    end

    # A summary with values for all its labels, as {Metric#with_labels} returns it.
    class Child
      private

      def observe_any(value, labels: nil)
        native_observe(labels, value)
      end
    end
  end
end
