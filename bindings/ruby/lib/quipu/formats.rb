# frozen_string_literal: true

module Quipu
  # The exposition formats.
  module Formats
    # The Prometheus text format, version 0.0.4.
    module Text
      # The media type, without parameters.
      MEDIA_TYPE = "text/plain"
      # The version of the format.
      VERSION = "0.0.4"
      # The header `Content-Type`.
      CONTENT_TYPE = "#{MEDIA_TYPE}; version=#{VERSION}; charset=utf-8"

      # Encodes the metrics of all processes in this format.
      #
      # @param registry [Registry] the registry
      # @return [String]
      # @raise [StoreError] if the metrics cannot be read
      def self.marshal(registry)
        registry.render("text").last
      end
    end

    # OpenMetrics 1.0.0, which includes exemplars.
    module OpenMetrics
      # The media type, without parameters.
      MEDIA_TYPE = "application/openmetrics-text"
      # The version of the format.
      VERSION = "1.0.0"
      # The header `Content-Type`.
      CONTENT_TYPE = "#{MEDIA_TYPE}; version=#{VERSION}; charset=utf-8; escaping=underscores"

      # Encodes the metrics of all processes in this format.
      #
      # @param registry [Registry] the registry
      # @return [String]
      # @raise [StoreError] if the metrics cannot be read
      def self.marshal(registry)
        registry.render("openmetrics").last
      end
    end

    # Messages of type `io.prometheus.client.MetricFamily`, each prefixed with its length.
    module Protobuf
      # The media type, without parameters.
      MEDIA_TYPE = "application/vnd.google.protobuf"

      # Encodes the metrics of all processes in this format.
      #
      # @param registry [Registry] the registry
      # @return [String]
      # @raise [StoreError] if the metrics cannot be read
      def self.marshal(registry)
        registry.render("protobuf").last
      end
    end

    # Encodes the metrics of all processes in the format that a header asks for.
    #
    # @param registry [Registry] the registry
    # @param accept [String, nil] the `Accept` header, if there is one
    # @return [Array(String, String)] the content type and the body
    # @raise [StoreError] if the metrics cannot be read
    def self.negotiate(registry, accept)
      registry.render(accept.to_s)
    end
  end
end
