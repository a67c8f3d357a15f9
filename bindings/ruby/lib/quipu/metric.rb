# frozen_string_literal: true

module Quipu
  # The base class of all metrics. The series of a metric are in the segment of a registry, and all
  # processes that share the segment count in them.
  class Metric
    # The labels of the series that counts for all those beyond a limit, or without room.
    OVERFLOW = { quipu_overflow: "true" }.freeze
    # The limit of OpenMetrics for the names and values of an exemplar's labels together.
    MAX_EXEMPLAR_CHARACTERS = 128

    attr_reader :name, :docstring, :labels, :preset_labels, :store_settings, :registry

    # Creates the metric and registers it in `registry`, by default `Quipu.registry`.
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

    # Returns the same metric with values for some or all labels. Keep the result for labels that
    # do not change: a child with all its labels counts without a lookup.
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

    # The value of one series, in the form of `values`.
    def get(labels: {})
      values.fetch(text_labels(labels)) { value_of(nothing) }
    end

    # Creates the series with these labels, so it is shown at zero.
    def init_label_set(labels)
      native_init(labels)
    end

    # Removes the series with these labels, for all processes; returns whether there was one.
    def remove(labels)
      native_remove(labels)
    end

    def inspect
      "#<#{self.class.name} #{name}>"
    end

    # The name of the family, without the suffix that a format adds.
    def family_name
      name.to_s
    end

    # A copy would count in the same series.
    def initialize_copy(_)
      raise TypeError, "a metric cannot be copied: use with_labels"
    end

    # Called by its registry to register it again after it was unregistered: takes the name again,
    # so the metric's counts are shown again.
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
        raise InvalidLabelSetError, "unknown preset labels #{unknown}: the labels are #{@labels}"
      end
      labels.transform_values { |value| LabelText.of(value).freeze }.freeze
    end

    def preset_values
      @labels.map { |name| @preset_labels[name] }
    end

    # The preset labels and these, in the order of the metric, as texts.
    def text_labels(labels)
      all = @preset_labels.merge(labels || {})
      refuse_labels(labels) unless all.size == @labels.size && @labels.all? { |name| all.key?(name) }
      @labels.to_h { |name| [name, LabelText.of(all[name])] }
    end

    # Called by the native part for a Hash whose keys are not the labels of the metric.
    def refuse_labels(labels)
      given = labels.is_a?(Hash) ? labels.keys : labels.inspect
      raise InvalidLabelSetError, "labels must have the same signature (keys given: #{given} vs. " \
                                  "keys expected: #{@labels - @preset_labels.keys})"
    end

    def reserved_labels
      []
    end

    # The kind-specific settings.
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

    # Only a gauge has an aggregation: the processes share the series of all other metrics.
    def check_aggregation(aggregation)
      return if aggregation.nil? || aggregation == :sum

      raise InvalidStoreSettingsError, "the values of a #{type} are summed over all processes: " \
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

    # Alternating names and values.
    def pairs(labels)
      labels.flat_map { |name, value| [LabelText.of(name), LabelText.of(value)] }
    end

    # The same for an exemplar; raises if it is longer than OpenMetrics allows.
    def exemplar_pairs(exemplar)
      Labels.check_exemplar(exemplar)
      texts = pairs(exemplar)
      length = texts.sum(&:size)
      return texts if length <= MAX_EXEMPLAR_CHARACTERS

      raise InvalidLabelSetError, "the labels of the exemplar have #{length} characters: use at " \
                                  "most #{MAX_EXEMPLAR_CHARACTERS}"
    end

    def clock
      Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end
  end
end
