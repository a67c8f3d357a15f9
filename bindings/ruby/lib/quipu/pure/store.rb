# frozen_string_literal: true

module Quipu
  class DataStore
    # The half of the class that the native part defines. The values are in a Hash by label names,
    # each with a Hash by label values.
    class MetricStore
      private

      def native_open(segment, name, type, aggregation)
        @sets, @lock = segment.store(name)
        @is_gauge = type == "gauge"
        @shows_process = %w[all liveall].include?(aggregation)
      end

      def native_declare(names)
        @lock.synchronize { @sets[names] ||= {} }
        nil
      end

      # All stores of the metric in this process share their sets of names.
      def native_known
        []
      end

      def native_increment(labels, by)
        by = Pure.number(by).to_f
        update(labels) { |value| value + by }
      end

      def native_set(labels, value)
        value = Pure.number(value).to_f
        # Only a gauge can decrease.
        update(labels) { |old| @is_gauge ? value : [old, value].max }
      end

      def native_get(labels)
        series(labels) { |values, texts| values.fetch(texts, 0.0) }
      end

      def native_values
        process = @shows_process ? [Process.pid.to_s] : []
        @lock.synchronize do
          @sets.map do |names, values|
            [names.map(&:to_s), values.map { |texts, value| [texts + process, value] }]
          end
        end
      end

      # Replaces the value for a label set by the result of the block.
      def update(labels)
        series(labels) { |values, texts| values[texts] = yield values.fetch(texts, 0.0) }
        nil
      end

      # Passes the values of the label names, and the label values, to the block.
      def series(labels)
        declare(labels)
        names = labels.keys.sort
        texts = names.map { |name| LabelText.of(labels[name]) }
        @lock.synchronize { yield @sets[names], texts }
      end
    end
  end
end
