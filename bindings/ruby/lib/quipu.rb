# frozen_string_literal: true

require "fileutils"
require "monitor"

require "quipu/version"
require "quipu/errors"
require "quipu/label_text"
require "quipu/labels"
require "quipu/backend"
Quipu::Backend.load
require "quipu/permissions"
require "quipu/recording"
require "quipu/segment"
require "quipu/metric"
require "quipu/counter"
require "quipu/gauge"
require "quipu/histogram"
require "quipu/summary"
require "quipu/info"
require "quipu/state_set"
require "quipu/registry"
require "quipu/formats"
require "quipu/data_store"
require "quipu/middleware/collector"
require "quipu/middleware/exporter"

# Prometheus metrics shared by all processes of a pre-fork server.
#
#   requests = Quipu.registry.counter(:requests, docstring: "Requests.", labels: [:code, :path])
#   requests.increment(labels: { code: 200, path: "/x" })
#   puts Quipu.registry
#
# Loading this file creates the default registry: load it before the server forks.
module Quipu
  class << self
    # The default registry.
    #
    # @return [Registry]
    attr_reader :registry

    # Whether the native part is loaded. Without the native part, each process counts separately.
    #
    # @return [Boolean]
    def native?
      Backend.native?
    end

    # Replaces the default registry: by one in a file, with `dir:` or `path:`, or by one in memory
    # that later forks share.
    #
    # @param options [Hash] the options of {Registry#initialize}
    # @return [Registry] the new default registry
    # @raise [ArgumentError] if the default registry already contains a metric, and for the reasons
    # of {Registry#initialize}
    # @raise [RecordingError] if an option of `record:` is out of range
    def configure(**options)
      unless @registry.nil? || @registry.metrics.empty?
        raise ArgumentError, "Quipu.configure was called after the metric " \
                             "#{@registry.metrics.first.name} was made: call it before any is made"
      end
      before = @registry
      @registry = Registry.new(**options)
      before&.recording&.close
      @registry
    end
  end

  configure(dir: (ENV["QUIPU_DIR"] unless ENV["QUIPU_DIR"].to_s.empty?))
end
