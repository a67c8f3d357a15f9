# frozen_string_literal: true

module Quipu
  module Pure
    # The series of a metric, by the values of their labels.
    class Family
      attr_reader :description, :name, :type, :help, :labels, :settings

      def initialize(name, type, help, labels, settings)
        @description = [name, type, help, labels, settings]
        @name = name
        @type = type
        @help = help
        @labels = labels.map(&:to_s)
        @labels << "pid" if process_label?
        @settings = settings
        @class = Series.const_get(type.to_s.split("_").map(&:capitalize).join)
        @series = {}
        @bound = {}
        @lock = Mutex.new
      end

      # Passes the series with these label values to the block. The series is created if necessary.
      def update(key)
        @lock.synchronize { yield create(key) }
      end

      # Creates the series of a metric with values for all its labels. This series outlives a reset.
      def bind(key)
        @lock.synchronize do
          @bound[key] = true
          create(key)
        end
      end

      # Replaces all series by one.
      def replace(key)
        @lock.synchronize do
          @series.clear
          create(key)
        end
      end

      def get(key)
        @lock.synchronize { @series[key]&.numbers }
      end

      # Removes a series; returns whether it was there.
      def remove(key)
        @lock.synchronize { !@series.delete(key).nil? }
      end

      # Removes all series; returns their number.
      def clear
        @lock.synchronize do
          size = @series.size
          @series.clear
          size
        end
      end

      def reset
        @lock.synchronize do
          @series.select! { |key, _| @bound.key?(key) }
          @series.each_value(&:reset)
        end
      end

      # Passes the label values of each series and the series to the block; returns its results.
      def map_series
        process = process_label? ? [Process.pid.to_s] : []
        @lock.synchronize { @series.map { |key, series| yield key + process, series } }
      end

      private

      # A gauge that shows the value of each process has the label `pid`, although there is only one
      # process.
      def process_label?
        @type == :gauge && %w[all liveall].include?(@description.last.first)
      end

      def create(key)
        @series[key] ||= @class.new(@settings)
      end
    end
  end
end
