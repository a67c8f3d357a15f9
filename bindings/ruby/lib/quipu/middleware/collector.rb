# frozen_string_literal: true

module Quipu
  # The middleware for Rack applications.
  module Middleware
    # Counts the requests of a Rack application by code, method and path, their durations by method
    # and path, and its exceptions by class.
    #
    #   use Quipu::Middleware::Collector
    #
    # IDs in paths are replaced, so there is about one series per route. If this is not enough,
    # override `path_of`.
    class Collector
      # @api private
      UUID = %r{/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}(?=/|\z)}.freeze
      # @api private
      NUMBER = %r{/\d+(?=/|\z)}.freeze

      # The client chooses the method. Any other method is counted as "other", because each would
      # make a new series.
      #
      # @api private
      METHODS = %w[GET HEAD POST PUT PATCH DELETE OPTIONS TRACE CONNECT LINK UNLINK]
                .to_h { |name| [name, name.downcase.freeze] }.freeze

      # @return [#call] the application
      attr_reader :app
      # @return [Registry] the registry
      attr_reader :registry

      # @param app [#call] the application
      # @param options [Hash] the options
      # @option options [Registry] :registry (Quipu.registry) the registry
      # @option options [String] :metrics_prefix ("http_server") the start of the metrics' names
      # @raise [ArgumentError] if the prefix is not valid in a name
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

      # Serves a request by the application, and counts it.
      #
      # @param env [Hash{String => Object}] the request
      # @return [Array(Integer, Hash, #each)] the response of the application
      # @raise [StandardError] the errors of the application, which are counted
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

      # Returns the path to use as a label value.
      #
      # @param env [Hash{String => Object}] the request
      # @return [String]
      def path_of(env)
        path = "#{env["SCRIPT_NAME"]}#{env["PATH_INFO"]}"
        path = LabelText.of(path) unless path.valid_encoding?
        path.gsub(UUID, "/:uuid").gsub(NUMBER, "/:id")
      end

      private

      # Reuses existing metrics, because a program can use the middleware twice, or build its
      # application again.
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
