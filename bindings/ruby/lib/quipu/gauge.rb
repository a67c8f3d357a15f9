# frozen_string_literal: true

module Quipu
  # A value that goes up and down. Each process sets its own value; you choose by `store_settings: {
  # aggregation: ... }` how a scrape combines them.
  class Gauge
    # The type, as {Metric#type} returns it.
    TYPE = :gauge

    # `all` shows the value of each process, with the label `pid`. The values with `live` omit ended
    # processes.
    AGGREGATIONS = %i[all liveall min livemin max livemax sum livesum most_recent mostrecent
                      livemostrecent].freeze

    # Sets the value of this process.
    #
    # @param value [Numeric] the new value
    # @param labels [Hash{Symbol => Object}, nil] the values of the labels without a preset value
    # @return [nil]
    # @raise [TypeError] if the value is not a number
    # @raise [InvalidLabelSetError] if the label names differ from the metric's
    def set(value, labels: nil)
      native_set(labels, value)
    end

    # Adds to the value of this process.
    #
    # @param by [Numeric] the amount
    # @param labels (see #set)
    # @return [nil]
    # @raise [TypeError] if the amount is not a number
    # @raise [InvalidLabelSetError] if the label names differ from the metric's
    def increment(by: 1, labels: nil)
      native_add(labels, by)
    end

    # Subtracts from the value of this process.
    #
    # @param by [Numeric] the amount
    # @param labels (see #set)
    # @return [nil]
    # @raise [TypeError] if the amount is not a number
    # @raise [InvalidLabelSetError] if the label names differ from the metric's
    def decrement(by: 1, labels: nil)
      # The native part refuses an amount that is not a number.
      native_add(labels, by.is_a?(Numeric) ? -by : by)
    end

    # Sets the gauge to the current Unix time in seconds.
    #
    # @param labels (see #set)
    # @return [nil]
    # @raise [InvalidLabelSetError] if the label names differ from the metric's
    def set_to_current_time(labels: nil)
      native_set(labels, Process.clock_gettime(Process::CLOCK_REALTIME))
    end

    # Returns the value of this process.
    #
    # @param labels [Hash{Symbol => Object}] the values of the labels without a preset value
    # @return [Float] zero if there is no such series
    # @raise [InvalidLabelSetError] if the label names differ from the metric's
    def get(labels: {})
      native_get(labels)
    end

    # Sets the gauge to the duration of the block in seconds.
    #
    # @param labels (see #set)
    # @yield the code to measure, even if it raises
    # @return [Object] the result of the block
    # @raise [InvalidLabelSetError] if the label names differ from the metric's
    def time(labels: nil)
      start = clock
      begin
        yield
      ensure
        native_set(labels, clock - start)
      end
    end

    private

    # `most_recent` is one value that all processes set.
    def native_settings
      [(store_settings[:aggregation] || :all).to_s]
    end

    def check_aggregation(aggregation)
      return if aggregation.nil? || AGGREGATIONS.include?(aggregation)

      raise InvalidStoreSettingsError, "unknown aggregation #{aggregation.inspect}: use one of " \
                                       "#{AGGREGATIONS.join(", ")}"
    end

    # A gauge with values for all its labels, as {Metric#with_labels} returns it.
    class Child
      private

      def set_any(value, labels: nil)
        native_set(labels, value)
      end
    end
  end
end
