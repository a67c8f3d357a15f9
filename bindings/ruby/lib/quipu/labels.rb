# frozen_string_literal: true

module Quipu
  # The rules for the names of labels and metrics.
  #
  # @api private
  module Labels
    NAME = /\A[a-zA-Z_][a-zA-Z0-9_]*\z/.freeze
    METRIC = /\A[a-zA-Z_:][a-zA-Z0-9_:]*\z/.freeze
    # `pid` identifies the process if a gauge shows the values of all.
    RESERVED = %i[pid quipu_process quipu_overflow].freeze

    class << self
      # Checks names of labels, given as an array or as the keys of a Hash.
      def check(names, reserved)
        unless names.respond_to?(:each)
          raise InvalidLabelSetError, "#{names.inspect} is not a valid label set: use an array of " \
                                      "symbols, or a Hash with symbols as keys"
        end
        seen = {}
        names.each do |name, _|
          check_one(name, reserved)
          raise InvalidLabelSetError, "duplicate label #{name}: use each once" if seen.key?(name)

          seen[name] = true
        end
      end

      # Checks the labels of an exemplar.
      def check_exemplar(exemplar)
        unless exemplar.is_a?(Hash)
          raise InvalidLabelSetError, "exemplar #{exemplar.inspect} is not a Hash: use one with " \
                                      "symbols as keys"
        end
        exemplar.each_key do |name|
          next if (name.is_a?(Symbol) || name.is_a?(String)) && NAME.match?(name)

          raise InvalidLabelError, "exemplar label #{name.inspect} must match #{NAME.source}"
        end
      end

      def check_metric(name)
        raise ArgumentError, "metric name must be a symbol, not #{name.inspect}" unless name.is_a?(Symbol)
        return if METRIC.match?(name)

        raise ArgumentError, "metric name #{name.inspect} must match #{METRIC.source}"
      end

      def check_docstring(docstring)
        return if docstring.is_a?(String) && !docstring.empty?

        raise ArgumentError, "docstring is missing or empty: describe the metric in a String"
      end

      private

      def check_one(name, reserved)
        raise InvalidLabelError, "label #{name.inspect} is not a symbol" unless name.is_a?(Symbol)
        raise ReservedLabelError, "label #{name} must not start with __" if name.start_with?("__")
        raise InvalidLabelError, "label #{name.inspect} must match #{NAME.source}" unless NAME.match?(name)
        return unless RESERVED.include?(name) || reserved.include?(name)

        raise ReservedLabelError, "#{name} is reserved"
      end
    end
  end
end
