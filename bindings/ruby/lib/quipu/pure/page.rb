# frozen_string_literal: true

module Quipu
  module Pure
    # Encodes families in the Prometheus text format or in OpenMetrics.
    class Page
      # The types in the text format, which has no type for these kinds.
      TEXT_TYPES = { info: "gauge", state_set: "gauge" }.freeze
      # The types in OpenMetrics that are named differently.
      OPEN_METRICS_TYPES = { state_set: "stateset" }.freeze
      # The suffixes of the only samples of a family.
      SUFFIXES = { counter: "_total", info: "_info" }.freeze
      # The floats that are exact integers.
      WHOLE = 2**53

      def initialize(open_metrics:)
        @is_open_metrics = open_metrics
        @lines = []
      end

      # Returns the page with these families.
      def render(families)
        families.each { |family| append(family) }
        @lines << "# EOF\n" if @is_open_metrics
        @lines.join
      end

      private

      def append(family)
        suffix = SUFFIXES.fetch(family.type, "")
        header(family, @is_open_metrics ? family.name : family.name + suffix)
        family.map_series do |texts, series|
          labels = family.labels.zip(texts)
          send(family.type, family.name + suffix, labels, series)
        end
      end

      def header(family, name)
        help = family.help.gsub(/[\\\n]/, "\\" => "\\\\", "\n" => "\\n")
        help = help.gsub('"', '\\"') if @is_open_metrics
        types = @is_open_metrics ? OPEN_METRICS_TYPES : TEXT_TYPES
        @lines << "# HELP #{name} #{help}\n# TYPE #{name} #{types.fetch(family.type, family.type)}\n"
      end

      def counter(name, labels, series)
        sample(name, labels, series.total, series.exemplar)
      end

      def gauge(name, labels, series)
        sample(name, labels, series.value)
      end

      def histogram(name, labels, series)
        bounds = series.bounds + [Float::INFINITY]
        bounds.zip(series.cumulative, series.exemplars) do |bound, count, exemplar|
          sample("#{name}_bucket", labels + [["le", bound(bound)]], count, exemplar)
        end
        # OpenMetrics allows no sum if a bound is negative, because the sum could decrease.
        return if @is_open_metrics && series.bounds.first&.negative?

        sample("#{name}_sum", labels, series.sum)
        sample("#{name}_count", labels, series.counts.sum)
      end

      def summary(name, labels, series)
        series.quantiles.each do |quantile, value|
          sample(name, labels + [["quantile", bound(quantile)]], value)
        end
        sample("#{name}_sum", labels, series.sum)
        sample("#{name}_count", labels, series.count)
      end

      def info(name, labels, _series)
        sample(name, labels, 1)
      end

      def state_set(name, labels, series)
        series.states.each { |state, value| sample(name, labels + [[name, state]], value) }
      end

      def sample(name, labels, value, exemplar = nil)
        labels = labels.empty? ? "" : braces(labels)
        @lines << "#{name}#{labels} #{number(value)}#{shown(exemplar)}\n"
      end

      def shown(exemplar)
        return unless exemplar && @is_open_metrics

        labels = braces(exemplar.labels.each_slice(2))
        format(" # %<labels>s %<value>s %<time>.3f",
               labels: labels, value: number(exemplar.value), time: exemplar.time)
      end

      def braces(labels)
        texts = labels.map do |name, value|
          value = value.gsub(/[\\\n"]/, "\\" => "\\\\", "\n" => "\\n", '"' => '\\"')
          "#{name}=\"#{value}\""
        end
        "{#{texts.join(",")}}"
      end

      # Formats the value of a sample.
      def number(number)
        return number.to_s if number.is_a?(Integer)
        return not_finite(number) unless number.finite?
        return number.to_i.to_s if number == number.floor && number.abs < WHOLE && number.to_s != "-0.0"

        number.to_s.sub(".0e", "e").sub(/e-0/, "e-")
      end

      # Formats a bound or a quantile like Go, because it is the value of a label.
      def bound(number)
        number = number.to_f
        return not_finite(number) unless number.finite?

        is_scientific = number != 0 && !number.abs.between?(1e-4, 1e21.prev_float)
        return number.to_s.sub(".0e", "e") if is_scientific
        return number.to_s unless number == number.floor

        @is_open_metrics ? "#{number.to_i}.0" : number.to_i.to_s
      end

      def not_finite(number)
        return "NaN" if number.nan?

        number.positive? ? "+Inf" : "-Inf"
      end
    end
  end
end
