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
        # A finalizer can count while its thread holds the lock.
        @lock = Monitor.new
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
        @lock.synchronize do
          @bound.delete(key)
          !@series.delete(key).nil?
        end
      end

      # Removes all series; returns their number.
      def clear
        @lock.synchronize do
          size = @series.size
          @series.clear
          @bound.clear
          size
        end
      end

      # Resets all series to zero, and removes series with labels that no child holds.
      def reset
        @lock.synchronize do
          @series.select! { |key, _| key.empty? || @bound.key?(key) }
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
