# frozen_string_literal: true

require "fileutils"
require "monitor"

require "quipu/version"
require "quipu/errors"
require "quipu/label_text"
require "quipu/labels"
require "quipu/native"
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

# Metrics that all processes of a pre-fork server share.
#
#   requests = Quipu.registry.counter(:requests, docstring: "Requests.", labels: [:code, :path])
#   requests.increment(labels: { code: 200, path: "/x" })
#   puts Quipu.registry
#
# The default registry is made when this file is loaded: load it before the server forks.
module Quipu
  class << self
    # The default registry.
    attr_reader :registry

    # Makes the default registry anew: in a file, with `dir:` or `path:`; in memory that forks share,
    # with none of them. It is for the beginning: metrics that are there stay where they are.
    def configure(dir: nil, path: nil, limit: nil)
      unless @registry.nil? || @registry.metrics.empty?
        raise ArgumentError, "configure quipu before the first metric is made, not behind " \
                             "#{@registry.metrics.first.name}"
      end
      @registry = Registry.new(dir: dir, path: path, limit: limit)
    end
  end

  configure(dir: (ENV["QUIPU_DIR"] unless ENV["QUIPU_DIR"].to_s.empty?))
end
