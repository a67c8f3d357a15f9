# frozen_string_literal: true

module Quipu
  # A value that goes up and down. Each process has its own; `store_settings: { aggregation: ... }`
  # says how they are shown.
  class Gauge
    TYPE = :gauge

    # `all` shows each process' value, with the label `pid`. Those of `live` leave out processes that
    # have ended.
    AGGREGATIONS = %i[all liveall min livemin max livemax sum livesum most_recent mostrecent
                      livemostrecent].freeze

    def set(value, labels: nil)
      native_set(labels, value)
    end

    def increment(by: 1, labels: nil)
      native_add(labels, by)
    end

    def decrement(by: 1, labels: nil)
      # What is no number is for the native part to refuse.
      native_add(labels, by.is_a?(Numeric) ? -by : by)
    end

    # Sets it to the seconds since 1970.
    def set_to_current_time(labels: nil)
      native_set(labels, Process.clock_gettime(Process::CLOCK_REALTIME))
    end

    # This process' value.
    def get(labels: {})
      native_get(labels)
    end

    # Sets it to the seconds that the block takes, and answers what the block does.
    def time(labels: nil)
      start = clock
      begin
        yield
      ensure
        native_set(labels, clock - start)
      end
    end

    private

    # Most recent is one value, which all processes set.
    def native_settings
      [(store_settings[:aggregation] || :all).to_s]
    end

    def check_aggregation(aggregation)
      return if aggregation.nil? || AGGREGATIONS.include?(aggregation)

      raise InvalidStoreSettingsError, "#{aggregation.inspect} is no aggregation; take one of " \
                                       "#{AGGREGATIONS.join(", ")}"
    end

    # A gauge whose labels all have their values. `set` alone is native.
    class Child
      private

      def set_any(value, labels: nil)
        native_set(labels, value)
      end
    end
  end
end
