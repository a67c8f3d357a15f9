# frozen_string_literal: true

# Measures calls in nanoseconds, loop included. It prints the best of many short rounds, so that
# other work on the machine does not distort the results.

require "quipu"

ROUNDS = 200
CALLS = 20_000

def measure(name, calls = CALLS)
  best = Array.new(ROUNDS) do
    start = Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)
    yield calls
    (Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond) - start) / calls.to_f
  end.min
  puts format("%-52s %8.1f ns", name, best)
end

registry = Quipu::Registry.new(dir: ARGV[0])
counter = registry.counter(:bench, docstring: "Bench.", labels: %i[code path])
child = counter.with_labels(code: 200, path: "/x")
plain = registry.counter(:plain, docstring: "Bench.")
histogram = registry.histogram(:bench_seconds, docstring: "Bench.", labels: %i[code path])
observing = histogram.with_labels(code: 200, path: "/x")
gauge = registry.gauge(:bench_gauge, docstring: "Bench.", labels: %i[code path])
set = gauge.with_labels(code: 200, path: "/x")
four = registry.counter(:four, docstring: "Bench.", labels: %i[a b c d])
store = Quipu::DataStore.new(dir: ARGV[0]).for_metric(:stored, metric_type: :counter)
frozen = { code: "200", path: "/x" }.freeze
codes = Array.new(1000) { |i| "code #{i}" }

puts "#{RUBY_DESCRIPTION}, #{registry.path || "memory"}"
measure("an empty loop") { |n| i = 0; i += 1 while i < n }
measure("child.increment") { |n| i = 0; while i < n; child.increment; i += 1; end }
measure("child.increment(by: 2)") { |n| i = 0; while i < n; child.increment(by: 2); i += 1; end }
measure("counter.increment, no labels") { |n| i = 0; while i < n; plain.increment; i += 1; end }
measure('counter.increment(labels: { code: 200, path: "/x" })') do |n|
  i = 0
  while i < n
    counter.increment(labels: { code: 200, path: "/x" })
    i += 1
  end
end
measure("counter.increment, 1000 series") do |n|
  i = 0
  while i < n
    counter.increment(labels: { code: codes[i % 1000], path: "/x" })
    i += 1
  end
end
measure("counter.increment, 4 labels") do |n|
  i = 0
  while i < n
    four.increment(labels: { a: 1, b: "b", c: :c, d: "/d" })
    i += 1
  end
end
measure("child.observe") { |n| i = 0; while i < n; observing.observe(0.3); i += 1; end }
measure("histogram.observe, 2 labels") do |n|
  i = 0
  while i < n
    histogram.observe(0.3, labels: { code: 200, path: "/x" })
    i += 1
  end
end
measure("child.set") { |n| i = 0; while i < n; set.set(3); i += 1; end }
measure("gauge.set, 2 labels") do |n|
  i = 0
  while i < n
    gauge.set(3, labels: { code: 200, path: "/x" })
    i += 1
  end
end
measure("data store, increment, frozen Hash") do |n|
  i = 0
  while i < n
    store.increment(labels: frozen)
    i += 1
  end
end
measure("data store, increment, Hash of two") do |n|
  i = 0
  while i < n
    store.increment(labels: { code: "200", path: "/x" })
    i += 1
  end
end
measure("scrape of #{registry.to_s.lines.size} lines", 100) { |n| n.times { registry.to_s } }
