# frozen_string_literal: true

module Quipu
  # Count and sum of observations, over all processes. With `quantiles: [0.5, 0.99]`, it also shows
  # those quantiles over the last ten minutes.
  class Summary
    TYPE = :summary

    attr_reader :quantiles

    def initialize(name, docstring:, labels: [], preset_labels: {}, quantiles: [],
                   store_settings: {}, registry: nil)
      @quantiles = quantiles.dup.freeze
      super(name, docstring: docstring, labels: labels, preset_labels: preset_labels,
                  store_settings: store_settings, registry: registry)
    end

    def observe(value, labels: nil)
      native_observe(labels, value)
    end

    # Observes the duration of the block in seconds; returns what the block returns.
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

    # A summary with values for all its labels. Only `observe` is native.
    class Child
      private

      def observe_any(value, labels: nil)
        native_observe(labels, value)
      end
    end
  end
end
