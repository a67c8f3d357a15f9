# frozen_string_literal: true

require "monitor"

module Quipu
  # A store for the gem prometheus-client:
  #
  #   Prometheus::Client.config.data_store = Quipu::DataStore.new(dir: "/dev/shm/my_app")
  #
  # All processes that were forked from this one share it. With `dir`, so do all that name the same
  # directory, and the counts outlive them.
  class DataStore
    # The class that other stores have under this name, too.
    InvalidStoreSettingsError = Quipu::InvalidStoreSettingsError

    # What a metric may set as `:aggregation`. Those of `live` leave out processes that have ended.
    AGGREGATIONS = %i[sum max min all most_recent livesum livemax livemin liveall].freeze

    # The name of the file in a directory.
    FILE = "data_store.quipu"

    def initialize(dir: nil, limit: nil)
      @segment = Segment.at(dir && File.join(dir.to_s, FILE), limit: limit)
    end

    # The metric of that name. Gauges show each process' value without `:aggregation`; all others
    # are summed up.
    def for_metric(metric_name, metric_type:, metric_settings: {})
      default = metric_type == :gauge ? :all : :sum
      settings = { aggregation: default }.merge(metric_settings)
      validate(metric_type, settings)
      is_recent = settings[:aggregation] == :most_recent
      store_class = is_recent ? MostRecentStore : MetricStore
      store_class.new(@segment, metric_name, metric_type, settings[:aggregation])
    end

    # How many updates could not be kept as they were meant.
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

    # A metric, by the labels that it is given.
    class MetricStore
      def initialize(segment, name, type, aggregation)
        @segment = segment
        @together = Monitor.new
        native_open(segment, name.to_s, type.to_s, aggregation.to_s)
      end

      # Runs the block while no other thread of this process is in one. Increments need none.
      def synchronize(&block)
        @together.synchronize(&block)
      end

      def increment(labels:, by: 1)
        native_increment(labels, by)
      end

      def set(labels:, val:)
        native_set(labels, val)
      end

      # The value of these labels: this process' own, where each has one.
      def get(labels:)
        native_get(labels)
      end

      # The values of all processes, put together.
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

      # Where each process' value is shown, its id comes last.
      def labels_of(names, texts)
        labels = names.zip(texts).to_h
        labels[:pid] = texts.last if texts.size > names.size
        labels
      end

      # Called by the native part for labels whose names it has not met.
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
