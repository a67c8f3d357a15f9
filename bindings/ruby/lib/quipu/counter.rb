# frozen_string_literal: true

module Quipu
  # A sum over all processes, which only increases.
  class Counter
    # The type, as {Metric#type} returns it.
    TYPE = :counter

    # Adds to the total of a series.
    #
    # @param by [Numeric] the amount, which must be finite and not negative
    # @param labels [Hash{Symbol => Object}, nil] the values of the labels without a preset value
    # @param exemplar [Hash{Symbol, String => Object}, nil] labels that identify the event, such as
    #   `{ trace_id: "abc" }`; they require `store_settings: { exemplars: true }`
    # @return [nil]
    # @raise [ArgumentError] if the amount is negative or not finite
    # @raise [TypeError] if the amount is not a number
    # @raise [LabelSetError] if the label names differ from the metric's, or if the labels of the
    # exemplar are not valid or too long
    def increment(by: 1, labels: nil, exemplar: nil)
      return native_increment(labels, by) unless exemplar

      native_exemplify(labels, by, exemplar_pairs(exemplar))
    end

    # Returns the total of a series, over all processes.
    #
    # @param labels [Hash{Symbol => Object}] the values of the labels without a preset value
    # @return [Float] zero if there is no such series
    # @raise [InvalidLabelSetError] if the label names differ from the metric's
    def get(labels: {})
      native_get(labels)
    end

    # Omits the suffix that the formats add.
    #
    # @return [String]
    # @api private
    def family_name
      name.to_s.delete_suffix("_total")
    end

    private

    def allowed_settings
      [:exemplars]
    end

    def native_settings
      [store_settings[:exemplars] ? true : false]
    end

    # A counter with values for all its labels, like {Metric#with_labels} returns it.
    class Child
      private

      def increment_any(by: 1, labels: nil, exemplar: nil)
        return native_increment(labels, by) unless exemplar

        native_exemplify(labels, by, exemplar_pairs(exemplar))
      end
    end
  end
end
