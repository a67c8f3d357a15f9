# frozen_string_literal: true

module Quipu
  module Middleware
    # Serves the metrics of all processes at /metrics, in the format that the scraper asks for.
    #
    #   use Quipu::Middleware::Exporter
    #
    # Options: `registry:`, `path:`, and `port:`, to serve them only on that port.
    class Exporter
      attr_reader :app, :registry, :path

      def initialize(app, options = {})
        @app = app
        @registry = options[:registry] || Quipu.registry
        @path = options[:path] || "/metrics"
        @port = options[:port]&.to_s
      end

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
