# frozen_string_literal: true

module Quipu
  # The exposition formats.
  module Formats
    # The Prometheus text format, version 0.0.4.
    module Text
      MEDIA_TYPE = "text/plain"
      VERSION = "0.0.4"
      CONTENT_TYPE = "#{MEDIA_TYPE}; version=#{VERSION}; charset=utf-8"

      def self.marshal(registry)
        registry.render("text").last
      end
    end

    # OpenMetrics 1.0.0, which includes exemplars.
    module OpenMetrics
      MEDIA_TYPE = "application/openmetrics-text"
      VERSION = "1.0.0"
      CONTENT_TYPE = "#{MEDIA_TYPE}; version=#{VERSION}; charset=utf-8; escaping=underscores"

      def self.marshal(registry)
        registry.render("openmetrics").last
      end
    end

    # Messages of type `io.prometheus.client.MetricFamily`, each prefixed with its length.
    module Protobuf
      MEDIA_TYPE = "application/vnd.google.protobuf"

      def self.marshal(registry)
        registry.render("protobuf").last
      end
    end

    # Returns the content type and body for an `Accept` header; nil means that there is none.
    def self.negotiate(registry, accept)
      registry.render(accept.to_s)
    end
  end
end
