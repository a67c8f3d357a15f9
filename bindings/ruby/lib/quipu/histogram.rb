# frozen_string_literal: true

module Quipu
  # Counts of observations in buckets by size, and their sum, over all processes.
  class Histogram
    # The type, as {Metric#type} returns it.
    TYPE = :histogram

    # The default bounds of the Prometheus client libraries, in seconds.
    DEFAULT_BUCKETS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10].freeze

    # The upper bounds of the buckets.
    #
    # @return [Array<Numeric>]
    attr_reader :buckets

    # Returns bounds with equal distances.
    #
    # @param start [Numeric] the first bound
    # @param width [Numeric] the distance
    # @param count [Integer] the number of bounds
    # @return [Array<Float>]
    def self.linear_buckets(start:, width:, count:)
      Array.new(count) { |i| start.to_f + i * width }
    end

    # Returns bounds that grow by a factor.
    #
    # @param start [Numeric] the first bound
    # @param count [Integer] the number of bounds
    # @param factor [Numeric] the ratio of a bound and the bound before
    # @return [Array<Float>]
    def self.exponential_buckets(start:, count:, factor: 2)
      Array.new(count) { |i| start.to_f * factor**i }
    end

    # Creates the histogram and registers it.
    #
    # @param (see Metric#initialize)
    # @param buckets [Array<Numeric>] the upper bounds, in ascending order; a bucket for infinity is
    #   added
    # @raise (see Metric#initialize)
    # @raise [ArgumentError] if the bounds do not ascend
    def initialize(name, docstring:, labels: [], preset_labels: {}, buckets: DEFAULT_BUCKETS,
                   store_settings: {}, registry: nil)
      unless buckets.each_cons(2).all? { |low, high| low < high }
        raise ArgumentError, "Unsorted buckets, typo? #{buckets.inspect}"
      end
      @buckets = buckets.dup.freeze
      super(name, docstring: docstring, labels: labels, preset_labels: preset_labels,
                  store_settings: store_settings, registry: registry)
    end

    # Records an observation.
    #
    # @param value [Numeric] the observed value
    # @param labels [Hash{Symbol => Object}, nil] the values of the labels without a preset value
    # @param exemplar [Hash{Symbol, String => Object}, nil] labels that identify the event: see
    #   {Counter#increment}
    # @return [nil]
    # @raise [TypeError] if the value is not a number
    # @raise [ArgumentError] if the value is NaN
    # @raise [LabelSetError] if the label names differ from the metric's, or if the labels of the
    # exemplar are not valid or too long
    def observe(value, labels: nil, exemplar: nil)
      return native_observe(labels, value) unless exemplar

      native_exemplify(labels, value, exemplar_pairs(exemplar))
    end

    # Observes the duration of the block in seconds.
    #
    # @param labels (see #observe)
    # @yield the code to measure, even if it raises
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
      [:le]
    end

    def allowed_settings
      [:exemplars]
    end

    def native_settings
      [@buckets.map { |bound| Float(bound) }, store_settings[:exemplars] ? true : false]
    end

    def copy_settings(metric)
      @buckets = metric.buckets
    end

    def nothing
      [0.0] * (finite_buckets.size + 2)
    end

    # The numbers are the sum, followed by the cumulative counts.
    def value_of(numbers)
      sum, *counts = numbers
      value = finite_buckets.zip(counts).to_h { |bound, count| [bound.to_s, count] }
      value["+Inf"] = counts.last
      value["sum"] = sum
      value
    end

    # The native part always contains one bucket for infinity, whether or not the program names it.
    def finite_buckets
      @buckets.reject { |bound| bound == Float::INFINITY }
    end

    # A histogram with values for all its labels, as {Metric#with_labels} returns it.
    class Child
      private

      def observe_any(value, labels: nil, exemplar: nil)
        return native_observe(labels, value) unless exemplar

        native_exemplify(labels, value, exemplar_pairs(exemplar))
      end
    end
  end
end
