# frozen_string_literal: true

module Quipu
  # What all metrics share. Its series lie in the segment of a registry, where all processes that
  # share the segment count.
  class Metric
    # What a metric shows for series beyond a limit, or that found no room.
    OVERFLOW = { quipu_overflow: "true" }.freeze
    # What OpenMetrics allows the names and values of an exemplar's labels.
    MOST_EXEMPLAR_CHARACTERS = 128

    attr_reader :name, :docstring, :labels, :preset_labels, :store_settings, :registry

    # Makes the metric and registers it, with `Quipu.registry` unless `registry` is given.
    def initialize(name, docstring:, labels: [], preset_labels: {}, store_settings: {}, registry: nil)
      Labels.check_metric(name)
      Labels.check_docstring(docstring)
      Labels.check(labels, reserved_labels)
      @name = name
      @docstring = docstring.dup.freeze
      @labels = labels.dup.freeze
      @store_settings = store_settings.dup.freeze
      @preset_labels = preset(preset_labels)
      @registry = registry || Quipu.registry
      check_settings(store_settings)
      @registry.add(self) { |segment| open(segment) }
    end

    # `:counter`, `:gauge` and so on.
    def type
      self.class::TYPE
    end

    # The same metric with values for some or all labels. Keep what it answers where those do not
    # change: a child with all its labels counts without looking at any.
    def with_labels(labels)
      Labels.check(labels, reserved_labels)
      all = @preset_labels.merge(labels)
      is_whole = @labels.all? { |name| all.key?(name) }
      child_class = is_whole && !is_a?(self.class::Child) ? self.class::Child : self.class
      child_class.allocate.view_of(self, all)
    end

    # All series, of all processes, as a Hash from labels to values.
    def values
      names, rows = native_series
      names.map!(&:to_sym)
      rows.each_with_object({}) do |(texts, numbers), all|
        all[texts ? names.zip(texts).to_h : OVERFLOW] = value_of(numbers)
      end
    end

    # The value of a series, as one of `values`.
    def get(labels: {})
      values.fetch(text_labels(labels)) { value_of(nothing) }
    end

    # Makes the series of these labels, so that it is shown at zero.
    def init_label_set(labels)
      native_init(labels)
    end

    # Removes the series of these labels, for all processes: whether there was one.
    def remove(labels)
      native_remove(labels)
    end

    def inspect
      "#<#{self.class.name} #{name}>"
    end

    # The name of the family, to which formats add what they add.
    def family_name
      name.to_s
    end

    # A metric counts in the segment that it was made in; a copy would count there too.
    def initialize_copy(_)
      raise TypeError, "a metric cannot be copied; use with_labels"
    end

    # Called by the registry that it was made for, when it was unregistered meanwhile: the name is
    # taken again, and this shows and counts on.
    def open_again(segment)
      twin = self.class.allocate
      instance_variables.each { |name| twin.instance_variable_set(name, instance_variable_get(name)) }
      twin.send(:open, segment)
    end

    def view_of(metric, preset_labels)
      @name = metric.name
      @docstring = metric.docstring
      @labels = metric.labels
      @store_settings = metric.store_settings
      @registry = metric.registry
      copy_settings(metric)
      @preset_labels = preset(preset_labels)
      native_view(metric, @labels, preset_values)
    end
    protected :view_of

    private

    def open(segment)
      native_open(segment, family_name, LabelText.of(docstring), @labels, preset_values,
                  *native_settings)
    end

    def preset(labels)
      Labels.check(labels, reserved_labels)
      unknown = labels.keys - @labels
      unless unknown.empty?
        raise InvalidLabelSetError, "preset labels #{unknown} are none of the labels #{@labels}"
      end
      labels.transform_values { |value| LabelText.of(value).freeze }.freeze
    end

    def preset_values
      @labels.map { |name| @preset_labels[name] }
    end

    # The labels that are meant, in the order of the metric, as texts.
    def text_labels(labels)
      all = @preset_labels.merge(labels || {})
      refuse_labels(labels) unless all.size == @labels.size && @labels.all? { |name| all.key?(name) }
      @labels.to_h { |name| [name, LabelText.of(all[name])] }
    end

    # Called by the native part for a Hash whose keys are not the labels.
    def refuse_labels(labels)
      given = labels.is_a?(Hash) ? labels.keys : labels.inspect
      raise InvalidLabelSetError, "labels must have the same signature (keys given: #{given} vs. " \
                                  "keys expected: #{@labels - @preset_labels.keys})"
    end

    def reserved_labels
      []
    end

    # What a metric of this kind may be told beside what all may.
    def allowed_settings
      []
    end

    def check_settings(settings)
      unknown = settings.keys - allowed_settings - [:aggregation]
      unless unknown.empty?
        raise InvalidStoreSettingsError, "#{type} #{name} has no setting #{unknown.join(", ")}"
      end
      check_aggregation(settings[:aggregation])
    end

    # The processes share the series of all metrics but gauges.
    def check_aggregation(aggregation)
      return if aggregation.nil? || aggregation == :sum

      raise InvalidStoreSettingsError, "the values of a #{type} are summed up over all processes; " \
                                       "leave out the aggregation #{aggregation.inspect}"
    end

    def native_settings
      []
    end

    def copy_settings(_metric); end

    def nothing
      [0.0]
    end

    def value_of(numbers)
      numbers.first
    end

    # Names and values in turn.
    def pairs(labels)
      labels.flat_map { |name, value| [LabelText.of(name), LabelText.of(value)] }
    end

    # The same of an exemplar, which is no longer than OpenMetrics allows.
    def exemplar_pairs(exemplar)
      Labels.check_exemplar(exemplar)
      texts = pairs(exemplar)
      length = texts.sum(&:size)
      return texts if length <= MOST_EXEMPLAR_CHARACTERS

      raise InvalidLabelSetError, "the exemplar has #{length} characters in its labels; give it at " \
                                  "most #{MOST_EXEMPLAR_CHARACTERS}"
    end

    def clock
      Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end
