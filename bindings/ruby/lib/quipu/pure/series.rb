# frozen_string_literal: true

module Quipu
  module Pure
    # An exemplar: alternating names and values of its labels, its value, and its Unix time.
    Exemplar = Struct.new(:labels, :value, :time)

    # The series of each kind of metric. `numbers` returns the form of the native part, and `reset`
    # sets the series to zero.
    module Series
      # A total that only increases.
      class Counter
        attr_reader :total, :exemplar

        def initialize(settings)
          @keeps_exemplars, = settings
          reset
        end

        def reset
          @total = 0
          @exemplar = nil
        end

        def add(amount, exemplar = nil)
          @total += amount
          @exemplar = Exemplar.new(exemplar, amount, Time.now.to_f) if exemplar && @keeps_exemplars
        end

        def numbers
          [@total.to_f]
        end
      end

      # A value that goes up and down.
      class Gauge
        attr_accessor :value

        def initialize(_settings)
          reset
        end

        def reset
          @value = 0
        end

        def numbers
          [@value.to_f]
        end
      end

      # Counts of observations in buckets.
      class Histogram
        attr_reader :bounds, :counts, :exemplars, :sum

        def initialize(settings)
          bounds, @keeps_exemplars = settings
          @bounds = bounds - [Float::INFINITY]
          reset
        end

        def reset
          @counts = [0] * (@bounds.size + 1)
          @exemplars = []
          @sum = 0.0
        end

        def observe(value, exemplar = nil)
          bucket = @bounds.bsearch_index { |bound| value <= bound } || @bounds.size
          @counts[bucket] += 1
          @sum += value
          return unless exemplar && @keeps_exemplars

          @exemplars[bucket] = Exemplar.new(exemplar, value, Time.now.to_f)
        end

        # The counts of each bucket and all smaller ones.
        def cumulative
          count = 0
          @counts.map { |n| count += n }
        end

        def numbers
          [@sum, *cumulative.map(&:to_f)]
        end
      end

      # The count and sum of observations, and quantiles of the latest ones.
      class Summary
        # The number of observations from which quantiles are calculated.
        LATEST = 1_000
        # The age in seconds of the oldest of these observations.
        MAX_AGE = 600

        attr_reader :count, :sum

        def initialize(settings)
          @quantiles, = settings
          reset
        end

        def reset
          @count = 0
          @sum = 0.0
          @latest = []
        end

        def observe(value)
          @latest[@count % LATEST] = [now, value] unless @quantiles.empty?
          @count += 1
          @sum += value
        end

        # Pairs of a quantile and its value, which is NaN without observations.
        def quantiles
          oldest = now - MAX_AGE
          values = @latest.filter_map { |time, value| value if time >= oldest }.sort
          @quantiles.map do |quantile|
            rank = (quantile * values.size).ceil.clamp(1, [values.size, 1].max)
            [quantile, values.fetch(rank - 1, Float::NAN)]
          end
        end

        def numbers
          [@count.to_f, @sum, *quantiles.map(&:last)]
        end

        private

        def now
          Process.clock_gettime(Process::CLOCK_MONOTONIC)
        end
      end

      # The fact that the labels state.
      class Info
        def initialize(_settings); end

        def reset; end

        def numbers
          [1.0]
        end
      end

      # The states, of which at most one is on.
      class StateSet
        attr_writer :index

        def initialize(settings)
          @states, = settings
          reset
        end

        def reset
          @index = nil
        end

        # Pairs of a state and 1 or 0.
        def states
          @states.each_with_index.map { |state, index| [state, index == @index ? 1 : 0] }
        end

        def numbers
          states.map { |_, number| number.to_f }
        end
      end
    end
  end
end
