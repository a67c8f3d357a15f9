# frozen_string_literal: true

# The replacement of the native part, in plain Ruby: it defines the same classes and methods. It
# counts in the memory of one process, so a child of a fork counts separately from its parent.

module Quipu
  # The parts of the replacement that the native part does not define.
  #
  # @api private
  module Pure
    # The maximum number of labels of a metric, like in the native part.
    MAX_LABELS = 32
    # The greatest Integer that is not rounded to infinity.
    MAX_INTEGER = Float::MAX.to_i

    class << self
      # Returns a number of any class as an Integer or a Float. A number beyond the range of floats
      # becomes infinite.
      def number(number)
        raise TypeError, "#{number.inspect} is not a number" unless number.is_a?(Numeric)

        return number if number.is_a?(Integer) && number.abs <= MAX_INTEGER

        number.to_f
      end

      # Returns the increment of a counter.
      def amount(number)
        amount = number(number)
        return amount if amount >= 0 && amount < Float::INFINITY

        raise ArgumentError, "increment #{amount} is out of range: use a non-negative, finite number"
      end

      # Returns the observation of a histogram or summary.
      def observation(number)
        observation = number(number).to_f
        raise ArgumentError, "NaN cannot be observed: use a number" if observation.nan?

        observation
      end
    end
  end
end

require "quipu/pure/series"
require "quipu/pure/family"
require "quipu/pure/page"
require "quipu/pure/accept"
require "quipu/pure/segment"
require "quipu/pure/metric"
require "quipu/pure/store"
require "quipu/pure/recording"
