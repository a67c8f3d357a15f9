# frozen_string_literal: true

module Quipu
  # The half of each class that the native part defines.
  class Metric
    def clear
      family.clear
    end

    private

    def native_open(segment, name, help, labels, presets, *settings)
      if labels.size > Pure::MAX_LABELS
        raise InvalidLabelSetError, "too many labels, #{labels.size}: use at most #{Pure::MAX_LABELS}"
      end
      # A metric that is registered again already has a family.
      raise ArgumentError, "#{name} is already initialized" if @family && !segment.family?(@family)

      @family = segment.open_family(name, type, help, labels, settings)
      bind(presets)
    end

    def native_view(metric, _labels, presets)
      @family = metric.family
      bind(presets)
      self
    end

    def native_series
      [@family.labels.dup, @family.map_series { |texts, series| [texts, series.numbers] }]
    end

    def native_init(labels)
      family.update(key(labels)) { nil }
    end

    def native_remove(labels)
      family.remove(key(labels))
    end

    def native_get(labels)
      family.get(key(labels))&.first || 0.0
    end

    # If there is a value for each label, this metric is one series.
    def bind(presets)
      return if presets.any?(&:nil?)

      @whole = presets.freeze
      @family.bind(@whole)
    end

    # Passes the series with these labels to the block.
    def update(labels, &block)
      family.update(key(labels), &block)
      nil
    end

    # Returns the values of all labels.
    def key(labels)
      return @whole if labels.nil? && @whole

      family
      refuse_labels(labels) unless labels.is_a?(Hash)
      text_labels(labels).values
    end

    protected

    def family
      @family || raise(TypeError, "uninitialized #{self.class.name}: make it by new")
    end
  end

  class Counter < Metric
    class Child < self; end

    private

    def native_exemplify(labels, by, exemplar)
      by = Pure.amount(by)
      update(labels) { |series| series.add(by, exemplar) }
    end

    def native_increment(labels, by)
      native_exemplify(labels, by, nil)
    end
  end

  class Gauge < Metric
    class Child < self; end

    private

    def native_set(labels, value)
      value = Pure.number(value)
      update(labels) { |series| series.value = value }
    end

    def native_add(labels, number)
      number = Pure.number(number)
      update(labels) { |series| series.value += number }
    end
  end

  class Histogram < Metric
    class Child < self; end

    private

    def native_exemplify(labels, value, exemplar)
      value = Pure.observation(value)
      update(labels) { |series| series.observe(value, exemplar) }
    end

    def native_observe(labels, value)
      native_exemplify(labels, value, nil)
    end
  end

  class Summary < Metric
    class Child < self; end

    private

    def native_open(*arguments)
      wrong = arguments.last.find { |quantile| !quantile.between?(0, 1) }
      raise StoreError, "quantile #{wrong} is out of range: use 0 to 1" if wrong

      super
    end

    def native_observe(labels, value)
      value = Pure.observation(value)
      update(labels) { |series| series.observe(value) }
    end
  end

  class Info < Metric
    private

    def native_set(labels, _pairs)
      family.replace(key(labels))
    end
  end

  class StateSet < Metric
    class Child < self; end

    private

    def native_set(labels, index)
      update(labels) { |series| series.index = index }
    end
  end
end
