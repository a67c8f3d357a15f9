# frozen_string_literal: true

module Quipu
  # A value that goes up and down. Each process has its own value; `store_settings: { aggregation:
  # ... }` says how a scrape shows them.
  class Gauge
    TYPE = :gauge

    # `all` shows the value of each process, with the label `pid`. Those with `live` leave out
    # processes that have ended.
    AGGREGATIONS = %i[all liveall min livemin max livemax sum livesum most_recent mostrecent
                      livemostrecent].freeze

    def set(value, labels: nil)
      native_set(labels, value)
    end

    def increment(by: 1, labels: nil)
      native_add(labels, by)
    end

    def decrement(by: 1, labels: nil)
      # The native part refuses an amount that is not a number.
      native_add(labels, by.is_a?(Numeric) ? -by : by)
    end

    # Sets it to the current Unix time in seconds.
    def set_to_current_time(labels: nil)
      native_set(labels, Process.clock_gettime(Process::CLOCK_REALTIME))
    end

    # The value of this process.
    def get(labels: {})
      native_get(labels)
    end

    # Sets it to the duration of the block in seconds; returns what the block returns.
    def time(labels: nil)
      start = clock
      begin
        yield
      ensure
        native_set(labels, clock - start)
      end
    end

    private

    # `most_recent` is one value, which all processes set.
    def native_settings
      [(store_settings[:aggregation] || :all).to_s]
    end

    def check_aggregation(aggregation)
      return if aggregation.nil? || AGGREGATIONS.include?(aggregation)

      raise InvalidStoreSettingsError, "unknown aggregation #{aggregation.inspect}: use one of " \
                                       "#{AGGREGATIONS.join(", ")}"
    end

    # A gauge with values for all its labels. Only `set` is native.
    class Child
      private

      def set_any(value, labels: nil)
        native_set(labels, value)
      end
    end
  end
end
