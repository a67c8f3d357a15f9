# frozen_string_literal: true

# Measures calls, compared to the gem prometheus-client if it is installed, or if its checkout is
# the argument:
#
#     ruby -Ilib bench/increment.rb [CHECKOUT]
#
# Each library runs in a separate process. A line shows the fastest of ROUNDS short rounds, by
# default 100, in nanoseconds per call, loop included.

require "json"
require "rbconfig"
require "tmpdir"

ROUNDS = Integer(ENV.fetch("ROUNDS", 100))
CALLS = 10_000

# The cases: a name, and the call that is measured.
CASES = {
  "an empty loop" => "",
  "child.increment" => "child.increment",
  "child.increment(by: 2)" => "child.increment(by: 2)",
  "counter.increment" => "plain.increment",
  'labels: { code: 200, path: "/x" }' => 'counter.increment(labels: { code: 200, path: "/x" })',
  "the same Hash" => "counter.increment(labels: same)",
  "a string that is not frozen" => "counter.increment(labels: { code: 200, path: unfrozen })",
  "4 labels" => 'four.increment(labels: { a: 1, b: "b", c: :c, d: "/d" })',
  "1000 series, frozen strings" => "counter.increment(labels: { code: 200, path: paths[i % 1000] })",
  "child.observe" => "observing.observe(0.3)",
  "histogram.observe, 2 labels" => 'histogram.observe(0.3, labels: { code: 200, path: "/x" })',
  "gauge.set, 2 labels" => 'gauge.set(3, labels: { code: 200, path: "/x" })'
}.freeze

# The registry of a library, which keeps its files in `directory`.
def registry_of(library, directory)
  return (require "quipu"; Quipu::Registry.new) if library == "quipu"
  return (require "quipu"; Quipu::Registry.new(dir: directory)) if library == "quipu, in a file"

  require "prometheus/client"
  case library
  when "DirectFileStore"
    require "prometheus/client/data_stores/direct_file_store"
    store = Prometheus::Client::DataStores::DirectFileStore.new(dir: directory)
    Prometheus::Client.config.data_store = store
  when "quipu's store"
    require "quipu"
    Prometheus::Client.config.data_store = Quipu::DataStore.new(dir: directory)
  end
  Prometheus::Client::Registry.new
end

# Returns the nanoseconds of each case.
def measure(library, directory)
  registry = registry_of(library, directory)
  labels = %i[code path]
  counter = registry.counter(:requests, docstring: "Requests.", labels: labels)
  histogram = registry.histogram(:seconds, docstring: "Seconds.", labels: labels)
  gauge = registry.gauge(:busy, docstring: "Busy.", labels: labels)
  plain = registry.counter(:plain, docstring: "Plain.")
  four = registry.counter(:four, docstring: "Four.", labels: %i[a b c d])
  same = { code: 200, path: "/x" }.freeze
  child, observing = counter.with_labels(same), histogram.with_labels(same)
  unfrozen, paths = +"/x", Array.new(1000) { |i| "/path/#{i}".freeze }
  scope = binding
  CASES.transform_values do |call|
    loop = scope.eval("# frozen_string_literal: true\n->(n) { i = 0; while i < n; #{call}; i += 1; end }")
    loop.call(2_000)
    Array.new(ROUNDS) do
      start = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
      loop.call(CALLS)
      (Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond) - start) / CALLS.to_f
    end.min
  end
end

if ARGV.first == "--library"
  puts JSON.generate(measure(ARGV[1], ARGV[2]))
  exit
end

checkout = ARGV.first && File.join(File.expand_path(ARGV.first), "lib")
paths = [*$LOAD_PATH.first, checkout].compact.flat_map { |path| ["-I", path] }
has_client = system(RbConfig.ruby, *paths, "-e", 'require "prometheus/client"', err: File::NULL)
libraries = ["quipu", "quipu, in a file"]
libraries += ["quipu's store", "prometheus-client", "DirectFileStore"] if has_client
warn "prometheus-client is not installed: pass a checkout of it to compare" unless has_client
results = libraries.to_h do |library|
  Dir.mktmpdir do |directory|
    command = [RbConfig.ruby, *paths, __FILE__, "--library", library, directory]
    [library, JSON.parse(IO.popen(command, &:read))]
  end
end
puts RUBY_DESCRIPTION
puts format("%-36s", "ns") + libraries.map { |library| library.rjust(18) }.join
CASES.each_key do |name|
  puts format("%-36s", name) + results.values.map { |result| format("%18.1f", result[name]) }.join
end
