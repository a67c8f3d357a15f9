# frozen_string_literal: true

require "helper"

class GcTest < Minitest::Test
  def exercise(registry, prefix, rounds)
    counter = registry.counter(:"#{prefix}_c", docstring: "C.", labels: [:"#{prefix}_a", :b])
    gauge = registry.gauge(:"#{prefix}_g", docstring: "G.", labels: [:b])
    histogram = registry.histogram(:"#{prefix}_h", docstring: "H.", labels: [:b])
    summary = registry.summary(:"#{prefix}_s", docstring: "S.", labels: [:b])
    rounds.times do |i|
      counter.increment(labels: { "#{prefix}_a": "v#{i % 3}", b: 1.5 })
      counter.increment(labels: { b: "\xE9".dup.force_encoding("ISO-8859-1"), "#{prefix}_a": :"s#{i}" })
      counter.with_labels(b: "x#{i}").increment(labels: { "#{prefix}_a": nil })
      counter.with_labels(b: "x", "#{prefix}_a": i % 2).increment
      gauge.set(i, labels: { b: "x#{i % 2}" })
      histogram.observe(i, labels: { b: "x#{i % 2}" })
      summary.observe(i, labels: { b: "x#{i % 2}" })
      yield if block_given?
    end
    registry.to_s
    assert_equal 4.0 * rounds, counter.values.values.sum
    assert_equal rounds.to_f, histogram.values.values.sum { |value| value["+Inf"] }
  end

  def test_under_stress
    registry = fresh
    store = Quipu::DataStore.new.for_metric(:stress, metric_type: :counter)
    GC.stress = true
    exercise(registry, "stress", 10)
    5.times { |i| store.increment(labels: { b: "x#{i}", a: i }) }
    values = store.all_values
    GC.stress = false
    assert_equal 5.0, values.values.sum
  ensure
    GC.stress = false
  end

  def test_while_objects_move
    skip "this platform does not compact" unless GC.respond_to?(:compact)
    exercise(fresh, "compact", 50) { GC.compact }
    GC.verify_compaction_references(toward: :empty, double_heap: true)
    exercise(fresh, "verified", 5)
  end

  def test_objects_are_freed
    registry = fresh
    counter = registry.counter(:c, docstring: "C.", labels: [:a])
    20_000.times { |i| counter.with_labels(a: i % 10).increment }
    GC.start
    assert_operator ObjectSpace.each_object(Quipu::Counter::Child).count, :<, 5_000
    assert_equal 20_000.0, counter.values.values.sum
  end
end
