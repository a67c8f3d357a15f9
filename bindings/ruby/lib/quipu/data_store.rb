# frozen_string_literal: true

require "monitor"

module Quipu
  # A store for the gem prometheus-client:
  #
  #   Prometheus::Client.config.data_store = Quipu::DataStore.new(dir: "/dev/shm/my_app")
  #
  # All processes forked from this one share it. With `dir`, all processes that use the same
  # directory share it, and you keep the counts after they end.
  class DataStore
    # The stores of prometheus-client define a class with this name.
    InvalidStoreSettingsError = Quipu::InvalidStoreSettingsError

    # The values of the setting `:aggregation`. The values with `live` omit ended processes.
    AGGREGATIONS = %i[sum max min all most_recent livesum livemax livemin liveall].freeze

    # The name of the file in a directory.
    FILE = "data_store.quipu"

    # Opens or creates the store: see {Registry#initialize} for the options and errors.
    #
    # @param dir [String, Pathname, nil] the directory of the file {FILE}; nil means memory that the
    #   children of later forks share
    # @param limit [Integer, nil] the maximum size of the segment in bytes
    # @param mode [Integer, nil] the permission bits of a new file
    # @param group [Integer, String, nil] the ID or the name of the group of a new file
    # @param record [Boolean, Hash, nil] whether to record the metrics, or the options of {#record}
    # @raise (see Registry#initialize)
    def initialize(dir: nil, limit: nil, mode: nil, group: nil, record: nil)
      path = dir && File.join(dir.to_s, FILE)
      @segment = Segment.at(path, limit: limit, mode: mode, group: group)
      @recording = @segment.record_as(record)
    end

    # The recording that the setting `record:` started, or nil.
    #
    # @return [Recording, nil]
    attr_reader :recording

    # Records the metrics: see {Registry#record}.
    #
    # @param (see Registry#record)
    # @yieldparam recording [Recording] the recording, which is closed at the end of the block
    # @return (see Registry#record)
    # @raise (see Registry#record)
    def record(interval: 1.0, **options, &block)
      @segment.record(interval: interval, **options, &block)
    end

    # Returns the store of the metric of that name. Without `:aggregation`, a gauge shows the value
    # of each process; all other metrics are summed over the processes.
    #
    # @param metric_name [Symbol] the name of the metric
    # @param metric_type [Symbol] `:counter`, `:gauge`, `:histogram` or `:summary`
    # @param metric_settings [Hash{Symbol => Symbol}] `aggregation:`, one of {AGGREGATIONS}
    # @return [MetricStore]
    # @raise [InvalidStoreSettingsError] if the setting or its value does not exist, or if the metric
    #   is not a gauge and the aggregation is `:most_recent`
    def for_metric(metric_name, metric_type:, metric_settings: {})
      default = metric_type == :gauge ? :all : :sum
      settings = { aggregation: default }.merge(metric_settings)
      validate(metric_type, settings)
      is_recent = settings[:aggregation] == :most_recent
      store_class = is_recent ? MostRecentStore : MetricStore
      store_class.new(@segment, metric_name, metric_type, settings[:aggregation])
    end

    # The number of updates that were lost or counted without their labels.
    #
    # @return [Integer]
    def dropped
      @segment.dropped
    end

    private

    def validate(type, settings)
      unless AGGREGATIONS.include?(settings[:aggregation])
        raise InvalidStoreSettingsError, "metrics need a valid :aggregation, one of " \
                                         "#{AGGREGATIONS.join(", ")}"
      end
      unless settings.size == 1
        raise InvalidStoreSettingsError, "only the setting :aggregation can be specified, not " \
                                         "#{(settings.keys - [:aggregation]).join(", ")}"
      end
      return if type == :gauge || settings[:aggregation] != :most_recent

      raise InvalidStoreSettingsError, "only gauges support the aggregation :most_recent"
    end

    # The values of one metric by label set.
    class MetricStore
      # @api private
      def initialize(segment, name, type, aggregation)
        @segment = segment
        @together = Monitor.new
        native_open(segment, name.to_s, type.to_s, aggregation.to_s)
      end

      # Runs the block in a critical section among the threads of this process. You do not need it
      # for increments.
      #
      # @yield the critical section
      # @return [Object] the result of the block
      def synchronize(&block)
        @together.synchronize(&block)
      end

      # Adds to a value.
      #
      # @param labels [Hash{Symbol => Object}] the label set
      # @param by [Numeric] the amount
      # @return [nil]
      # @raise [InvalidLabelSetError] if the label set is not a Hash with symbols as keys
      # @raise [TypeError] if the amount is not a number
      def increment(labels:, by: 1)
        native_increment(labels, by)
      end

      # Sets a value.
      #
      # @param labels [Hash{Symbol => Object}] the label set
      # @param val [Numeric] the new value
      # @return [nil]
      # @raise [InvalidLabelSetError] if the label set is not a Hash with symbols as keys
      # @raise [TypeError] if the value is not a number
      def set(labels:, val:)
        native_set(labels, val)
      end

      # Returns the value for a label set. If each process sets a separate value, returns the value
      # of this process.
      #
      # @param labels [Hash{Symbol => Object}] the label set
      # @return [Float]
      # @raise [InvalidLabelSetError] if the label set is not a Hash with symbols as keys
      def get(labels:)
        native_get(labels)
      end

      # Returns the values by label set, aggregated over all processes.
      #
      # @return [Hash{Hash => Float}]
      # @raise [StoreError] if they cannot be read
      def all_values
        native_known.each { |names| native_declare(names.map(&:to_sym)) }
        native_values.each_with_object(Hash.new(0.0)) do |(names, rows), all|
          names.map!(&:to_sym)
          rows.each { |texts, value| all[labels_of(names, texts)] = value }
        end
      ensure
        @segment.warn_now
      end

      private

      # If the values of each process are shown, the process ID is the last string.
      def labels_of(names, texts)
        labels = names.zip(texts).to_h
        labels[:pid] = texts.last if texts.size > names.size
        labels
      end

      # Called by the native part for a Hash with new label names.
      def declare(labels)
        unless labels.is_a?(Hash) && labels.each_key.all?(Symbol)
          raise InvalidLabelSetError, "#{labels.inspect} is not a valid label set"
        end
        native_declare(labels.keys.sort)
        @segment.warn_now
      end
    end

    # A gauge that all processes set.
    class MostRecentStore < MetricStore
      # A gauge of this kind can only be set.
      #
      # @param (see MetricStore#increment)
      # @raise [InvalidStoreSettingsError] always
      def increment(labels:, by: 1)
        raise InvalidStoreSettingsError, "the aggregation :most_recent does not support increment " \
                                         "or decrement (#{labels}, by #{by})"
      end
    end
  end
end
