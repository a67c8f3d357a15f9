# frozen_string_literal: true

module Quipu
  module Middleware
    # Counts the requests of a Rack application by code, method and path, their durations by method
    # and path, and its exceptions by class.
    #
    #   use Quipu::Middleware::Collector
    #
    # Options: `registry:`, and `metrics_prefix:`, by default "http_server". IDs in paths are
    # replaced, so there is about one series per route: override `path_of` if that does not suffice.
    class Collector
      UUID = %r{/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}(?=/|\z)}.freeze
      NUMBER = %r{/\d+(?=/|\z)}.freeze

      # The client chooses the method: any other text is counted as "other", since each would make a
      # new series.
      METHODS = %w[GET HEAD POST PUT PATCH DELETE OPTIONS TRACE CONNECT LINK UNLINK]
                .to_h { |name| [name, name.downcase.freeze] }.freeze

      attr_reader :app, :registry

      def initialize(app, options = {})
        @app = app
        @registry = options[:registry] || Quipu.registry
        prefix = options[:metrics_prefix] || "http_server"
        @requests = metric(:counter, :"#{prefix}_requests_total",
                           "The total number of HTTP requests handled by the Rack application.",
                           %i[code method path])
        @durations = metric(:histogram, :"#{prefix}_request_duration_seconds",
                            "The HTTP response duration of the Rack application.",
                            %i[method path])
        @exceptions = metric(:counter, :"#{prefix}_exceptions_total",
                             "The total number of exceptions raised by the Rack application.",
                             [:exception])
      end

      def call(env)
        start = Process.clock_gettime(Process::CLOCK_MONOTONIC)
        response = @app.call(env)
        record(env, response[0], Process.clock_gettime(Process::CLOCK_MONOTONIC) - start)
        response
      rescue StandardError => e
        @exceptions.increment(labels: { exception: e.class.name.to_s })
        raise
      end

      protected

      # The path to use as a label value.
      def path_of(env)
        path = "#{env["SCRIPT_NAME"]}#{env["PATH_INFO"]}"
        path = LabelText.of(path) unless path.valid_encoding?
        path.gsub(UUID, "/:uuid").gsub(NUMBER, "/:id")
      end

      private

      # Reuses existing metrics: a program may use the middleware twice, or build its application
      # again.
      def metric(type, name, docstring, labels)
        @registry.get(name) || @registry.public_send(type, name, docstring: docstring, labels: labels)
      end

      def record(env, code, duration)
        method = METHODS.fetch(env["REQUEST_METHOD"], "other")
        path = path_of(env)
        @requests.increment(labels: { code: code, method: method, path: path })
        @durations.observe(duration, labels: { method: method, path: path })
      end
    end
  end
end
