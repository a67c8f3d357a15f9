# frozen_string_literal: true

module Quipu
  module Pure
    # Chooses a format by the header `Accept`.
    module Accept
      TEXT = /\A(?:text|\*)\/(?:plain|\*)\z/.freeze
      OPEN_METRICS = "application/openmetrics-text"
      # The versions of OpenMetrics that the page of version 1.0.0 is valid for.
      VERSIONS = [nil, "0.0.1", "1.0.0"].freeze

      # Returns whether the scraper prefers OpenMetrics to text.
      def self.open_metrics?(accept)
        wanted = accept.scrub.downcase.split(",").filter_map { |range| parse(range) }
        # The first one of equal weights.
        wanted.max_by.with_index { |(_, weight), index| [weight, -index] }&.first == :open_metrics
      end

      # Returns the format and the weight of a range, or nil for a range that is not supported.
      def self.parse(range)
        media, *parameters = range.split(";").map(&:strip)
        parameters = parameters.to_h { |parameter| parameter.partition("=").values_at(0, 2) }
        weight = Float(parameters.fetch("q", "1"), exception: false) || 0.0
        return unless weight.positive?
        return [:text, weight] if TEXT.match?(media.to_s)

        [:open_metrics, weight] if media == OPEN_METRICS && VERSIONS.include?(parameters["version"])
      end
      private_class_method :parse
    end
  end
end
