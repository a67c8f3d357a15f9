# client_ruby itself. You must pass a checkout, because Debian does not package this gem.
#
# In addition to its own stores, there is an empty one. It shows the time that client_ruby's metrics
# take for labels, and the time of quipu.

require_relative "base"

class ClientRuby < Contender
  def initialize(options)
    super
    raise "no checkout of client_ruby was given" unless options.client_ruby

    $LOAD_PATH.unshift(File.join(options.client_ruby, "lib"))
    require "prometheus/client"
    require "prometheus/client/version"
    require "prometheus/client/formats/text"
  end

  def subject = "client_ruby #{Prometheus::Client::VERSION}, #{self.class.name}"

  def binds? = true

  def use(store)
    Prometheus::Client.config.data_store = store
    @registry = Prometheus::Client::Registry.new
  end

  def counter(name, labels)
    @registry.counter(name.to_sym, docstring: "Counted by a benchmark", labels: labels)
  end

  def histogram(name, labels)
    @registry.histogram(name.to_sym, docstring: "Observed by a benchmark", labels: labels)
  end

  def bound(metric, labels) = metric.with_labels(labels)

  def expose = Prometheus::Client::Formats::Text.marshal(@registry)
end

class Synchronized < ClientRuby
  def self.key = "synchronized"

  def places = %w[memory]

  def shared? = false

  def open(_folder)
    require "prometheus/client/data_stores/synchronized"
    use(Prometheus::Client::DataStores::Synchronized.new)
  end
end

class DirectFileStore < ClientRuby
  def self.key = "direct-file-store"

  # After 500 workers, a scrape takes seconds.
  def scrapes = 1

  def open(folder)
    require "prometheus/client/data_stores/direct_file_store"
    use(Prometheus::Client::DataStores::DirectFileStore.new(dir: folder))
  end
end

# client_ruby's metrics with an empty store.
class NoStore < ClientRuby
  def self.key = "no-store"

  def subject = "client_ruby #{Prometheus::Client::VERSION}, a store that does nothing"

  def places = %w[memory]

  def shared? = false

  def open(_folder) = use(Idle.new)

  # The interface of a store, without any function.
  class Idle
    def for_metric(*, **) = self

    def synchronize = yield

    def increment(labels:, by: 1); end

    def set(labels:, val:); end
  end
end
