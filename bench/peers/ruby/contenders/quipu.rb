# quipu's gem: its own classes on a segment in a file, its store under client_ruby's metrics, and
# only this store.

require_relative "base"
require_relative "client_ruby"

class Quipus < Contender
  def self.key = "quipu"

  def initialize(options)
    super
    require "quipu"
  end

  def subject = "quipu"

  def binds? = true

  def open(folder)
    @registry = Quipu::Registry.new(dir: folder)
  end

  def counter(name, labels)
    @registry.counter(name.to_sym, docstring: "Counted by a benchmark", labels: labels)
  end

  def histogram(name, labels)
    @registry.histogram(name.to_sym, docstring: "Observed by a benchmark", labels: labels)
  end

  def bound(metric, labels) = metric.with_labels(labels)

  def expose = @registry.to_s
end

# Only the store, with labels like client_ruby's metrics pass them: a frozen Hash of strings.
class QuipuStore < Contender
  def self.key = "quipu-store"

  def initialize(options)
    super
    require "quipu"
  end

  def subject = "quipu (store alone)"

  def open(folder)
    @store = Quipu::DataStore.new(dir: folder)
  end

  def counter(name, _labels) = @store.for_metric(name.to_sym, metric_type: :counter)

  def exposes? = false

  def increment = "c.increment(labels: {})"

  def increment_two = 'c.increment(labels: {code: "200", path: "/x"})'

  def increment_four
    'c.increment(labels: {code: "200", path: "/x", method: "GET", host: "a"})'
  end
end

# The store under client_ruby's metrics, for example in an application that changes only its store.
class QuipuUnderClientRuby < ClientRuby
  def self.key = "quipu-client-ruby"

  def subject = "quipu (drop-in store)"

  def open(folder)
    require "quipu"
    use(Quipu::DataStore.new(dir: folder))
  end
end
