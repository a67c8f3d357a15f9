# frozen_string_literal: true

module Quipu
  # What a scraper reads.
  module Formats
    # Prometheus' text, version 0.0.4.
    module Text
      MEDIA_TYPE = "text/plain"
      VERSION = "0.0.4"
      CONTENT_TYPE = "#{MEDIA_TYPE}; version=#{VERSION}; charset=utf-8"

      def self.marshal(registry)
        registry.render("text").last
      end
    end

    # OpenMetrics 1.0.0: with exemplars.
    module OpenMetrics
      MEDIA_TYPE = "application/openmetrics-text"
      VERSION = "1.0.0"
      CONTENT_TYPE = "#{MEDIA_TYPE}; version=#{VERSION}; charset=utf-8; escaping=underscores"

      def self.marshal(registry)
        registry.render("openmetrics").last
      end
    end

    # Messages `io.prometheus.client.MetricFamily`, each behind its length.
    module Protobuf
      MEDIA_TYPE = "application/vnd.google.protobuf"

      def self.marshal(registry)
        registry.render("protobuf").last
      end
    end

    # Content type and body for a header `Accept`; nil stands for none.
    def self.negotiate(registry, accept)
      registry.render(accept.to_s)
    end
  end
end
