# frozen_string_literal: true

module Quipu
  # A sum over all processes, which only increases.
  class Counter
    TYPE = :counter

    # Adds `by`, which must be finite and not negative. `exemplar` is a Hash that identifies the
    # event, such as `{ trace_id: "abc" }`; it requires `store_settings: { exemplars: true }`.
    def increment(by: 1, labels: nil, exemplar: nil)
      return native_increment(labels, by) unless exemplar

      native_exemplify(labels, by, exemplar_pairs(exemplar))
    end

    # The total of a series.
    def get(labels: {})
      native_get(labels)
    end

    # Omits the suffix that the formats add.
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

    # A counter with values for all its labels. Only `increment` is native.
    class Child
      private

      def increment_any(by: 1, labels: nil, exemplar: nil)
        return native_increment(labels, by) unless exemplar

        native_exemplify(labels, by, exemplar_pairs(exemplar))
      end
    end
  end
end
