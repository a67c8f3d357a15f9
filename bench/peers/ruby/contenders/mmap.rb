# prometheus-client-mmap, from the Debian package: mapped files, one for each kind and process.

require_relative "base"

class Mmap < Contender
  def self.key = "mmap"

  def initialize(options)
    super
    require "prometheus/client"
    require "prometheus/client/formats/text"
    @version = Gem::Specification.find_by_name("prometheus-client-mmap").version
  end

  def subject = "prometheus-client-mmap #{@version}"

  def open(folder)
    Prometheus::Client.configuration.multiprocess_files_dir = folder
    Prometheus::Client.reset!
  end

  def counter(name, _labels)
    Prometheus::Client.registry.counter(name.to_sym, "Counted by a benchmark")
  end

  def histogram(name, _labels)
    Prometheus::Client.registry.histogram(name.to_sym, "Observed by a benchmark")
  end

  def expose
    Prometheus::Client::Formats::Text.marshal_multiprocess
  end

  # A worker that takes over the files of its predecessor. The documentation recommends this for
  # servers that number their workers.
  def numbered(worker)
    Prometheus::Client.configuration.pid_provider = -> { "worker_#{worker}" }
  end

  def increment_two = 'c.increment({code: 200, path: "/x"})'

  def increment_path(path) = "c.increment({code: code, path: #{path}})"

  def increment_four = 'c.increment({code: 200, path: "/x", method: "GET", host: "a"})'

  def observe_two = 'h.observe({code: 200, path: "/x"}, 0.3)'

  def increment_point = "m.increment(l)"

  def observe_point = "m.observe(l, v)"
end
