# frozen_string_literal: true

require "monitor"

module Quipu
  # A store for the gem prometheus-client:
  #
  #   Prometheus::Client.config.data_store = Quipu::DataStore.new(dir: "/dev/shm/my_app")
  #
  # All processes forked from this one share it. With `dir`, all processes that use the same
  # directory share it, and the counts outlive them. `limit`, `mode`, `group` and `record` are those
  # of Registry.new.
  class DataStore
    # The stores of prometheus-client have a class with this name.
    InvalidStoreSettingsError = Quipu::InvalidStoreSettingsError

    # The values of the setting `:aggregation`. Those with `live` leave out ended processes.
    AGGREGATIONS = %i[sum max min all most_recent livesum livemax livemin liveall].freeze

    # The name of the file in a directory.
    FILE = "data_store.quipu"

    def initialize(dir: nil, limit: nil, mode: nil, group: nil, record: nil)
      path = dir && File.join(dir.to_s, FILE)
      @segment = Segment.at(path, limit: limit, mode: mode, group: group)
      @recording = @segment.record_as(record)
    end

    # The recording that the setting `record:` has started, or nil.
    attr_reader :recording

    # Records the metrics: see Registry#record.
    def record(interval: 1.0, **options, &block)
      @segment.record(interval: interval, **options, &block)
    end

    # Returns the store of the metric of that name. Without `:aggregation`, a gauge shows the value
    # of each process; all other metrics are summed over the processes.
    def for_metric(metric_name, metric_type:, metric_settings: {})
      default = metric_type == :gauge ? :all : :sum
      settings = { aggregation: default }.merge(metric_settings)
      validate(metric_type, settings)
      is_recent = settings[:aggregation] == :most_recent
      store_class = is_recent ? MostRecentStore : MetricStore
      store_class.new(@segment, metric_name, metric_type, settings[:aggregation])
    end

    # The number of updates that were lost or counted without their labels.
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
      def initialize(segment, name, type, aggregation)
        @segment = segment
        @together = Monitor.new
        native_open(segment, name.to_s, type.to_s, aggregation.to_s)
      end

      # Runs the block in a critical section among the threads of this process. Increments do not
      # need it.
      def synchronize(&block)
        @together.synchronize(&block)
      end

      def increment(labels:, by: 1)
        native_increment(labels, by)
      end

      def set(labels:, val:)
        native_set(labels, val)
      end

      # The value for a label set; if each process has its own, that of this process.
      def get(labels:)
        native_get(labels)
      end

      # The values by label set, aggregated over all processes.
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

      # If the values of each process are shown, the process ID is the last text.
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
      def increment(labels:, by: 1)
        raise InvalidStoreSettingsError, "the aggregation :most_recent does not support increment " \
                                         "or decrement (#{labels}, by #{by})"
      end
    end
  end
end
