# frozen_string_literal: true

module Quipu
  module Middleware
    # Serves the metrics of all processes at /metrics, in the format that the scraper asks for.
    #
    #   use Quipu::Middleware::Exporter
    class Exporter
      # @return [#call] the application
      attr_reader :app
      # @return [Registry] the registry
      attr_reader :registry
      # @return [String] the path
      attr_reader :path

      # @param app [#call] the application, which serves all other paths
      # @param options [Hash] the options
      # @option options [Registry] :registry (Quipu.registry) the registry
      # @option options [String] :path ("/metrics") the path of the metrics
      # @option options [Integer, String] :port (any) the only port that serves the metrics
      def initialize(app, options = {})
        @app = app
        @registry = options[:registry] || Quipu.registry
        @path = options[:path] || "/metrics"
        @port = options[:port]&.to_s
      end

      # Serves the metrics, or passes the request to the application.
      #
      # @param env [Hash{String => Object}] the request
      # @return [Array(Integer, Hash, #each)] the response
      # @raise [StoreError] if the metrics cannot be read
      def call(env)
        return @app.call(env) unless env["PATH_INFO"] == @path && port?(env)

        type, body = Formats.negotiate(@registry, env["HTTP_ACCEPT"])
        headers = { "content-type" => type, "content-length" => body.bytesize.to_s }
        [200, headers, env["REQUEST_METHOD"] == "HEAD" ? [] : [body]]
      end

      private

      def port?(env)
        @port.nil? || @port == env["SERVER_PORT"].to_s
      end
    end
  end
end
