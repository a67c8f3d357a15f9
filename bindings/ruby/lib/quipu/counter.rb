# frozen_string_literal: true

module Quipu
  # A sum that only grows, over all processes.
  class Counter
    TYPE = :counter

    # Adds `by`, which is not negative. `exemplar` is kept as what stands for it, a Hash such as
    # `{ trace_id: "abc" }`, with `store_settings: { exemplars: true }`.
    def increment(by: 1, labels: nil, exemplar: nil)
      return native_increment(labels, by) unless exemplar

      native_exemplify(labels, by, exemplar_pairs(exemplar))
    end

    # The total of a series.
    def get(labels: {})
      native_get(labels)
    end

    # Formats add `_total`.
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

    # A counter whose labels all have their values. `increment` alone is native.
    class Child
      private

      def increment_any(by: 1, labels: nil, exemplar: nil)
        return native_increment(labels, by) unless exemplar

        native_exemplify(labels, by, exemplar_pairs(exemplar))
      end
    end
  end
end
