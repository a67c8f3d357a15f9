# frozen_string_literal: true

require "helper"

class CounterTest < Minitest::Test
  def setup
    @registry = fresh
    @counter = @registry.counter(:hits_total, docstring: "Hits.", labels: %i[code path])
  end

  def test_counts_by_labels
    @counter.increment(labels: { code: 200, path: "/x" })
    @counter.increment(by: 2, labels: { path: "/x", code: "200" })
    @counter.increment(by: 0.5, labels: { code: 404, path: :y })
    assert_equal 3.0, @counter.get(labels: { code: 200, path: "/x" })
    assert_equal 0.0, @counter.get(labels: { code: 500, path: "/x" })
    assert_equal({ { code: "200", path: "/x" } => 3.0, { code: "404", path: "y" } => 0.5 },
                 @counter.values)
    assert_equal ['hits_total{code="200",path="/x"} 3', 'hits_total{code="404",path="y"} 0.5'],
                 samples(@registry).sort
  end

  def test_without_labels_it_is_there_at_zero
    plain = @registry.counter(:plain, docstring: "Plain.")
    assert_includes samples(@registry), "plain_total 0"
    plain.increment
    plain.increment(by: 2, labels: {})
    assert_equal 3.0, plain.get
    assert_equal({ {} => 3.0 }, plain.values)
  end

  def test_children
    child = @counter.with_labels(code: 200).with_labels(path: "/x")
    assert_kind_of Quipu::Counter, child
    assert_equal({ code: "200", path: "/x" }, child.preset_labels)
    child.increment
    child.increment(by: 3)
    child.increment(by: 1, labels: {})
    assert_equal 5.0, child.get
    half = @counter.with_labels(code: 200)
    half.increment(labels: { path: "/x" })
    assert_equal 6.0, half.get(labels: { path: "/x" })
    child.increment(labels: { path: "/other" })
    assert_equal 1.0, @counter.get(labels: { code: 200, path: "/other" })
    assert_raises(Quipu::InvalidLabelSetError) { half.increment }
    assert_raises(Quipu::InvalidLabelSetError) { half.increment(labels: { paths: 1 }) }
    assert_raises(Quipu::InvalidLabelSetError) { @counter.with_labels(other: 1) }
    assert_raises(ArgumentError) { child.increment(1) }
    assert_raises(ArgumentError) { child.increment(of: 1) }
    assert_raises(ArgumentError) { child.increment(by: -1) }
  end

  def test_preset_labels
    preset = @registry.counter(:preset, docstring: "Preset.", labels: %i[a b],
                                        preset_labels: { a: 1, b: true })
    preset.increment
    assert_equal({ { a: "1", b: "true" } => 1.0 }, preset.values)
  end

  def test_other_labels_are_refused
    [nil, {}, { code: 200 }, { code: 200, path: "/x", more: 1 }, { code: 200, "path" => "/x" },
     { code: 200, paths: "/x" }, "labels", [], 5].each do |labels|
      error = assert_raises(Quipu::InvalidLabelSetError) { @counter.increment(labels: labels) }
      assert_match(/same signature/, error.message)
    end
    assert_empty @counter.values
  end

  def test_other_amounts_are_refused
    labels = { code: 200, path: "/x" }
    [-1, -0.5, Float::NAN, -Float::INFINITY, Float::INFINITY, -(2**80), Rational(-1, 2), 10**400]
      .each do |by|
        assert_raises(ArgumentError, by.to_s) { @counter.increment(by: by, labels: labels) }
      end
    [nil, "1", :one, [], {}, Object.new].each do |by|
      assert_raises(TypeError, by.inspect) { @counter.increment(by: by, labels: labels) }
    end
    assert_empty @counter.values
    @counter.increment(by: 2**70, labels: labels)
    @counter.increment(by: Rational(1, 2), labels: labels)
    assert_equal (2**70).to_f, @counter.get(labels: labels)
  end

  def test_whole_numbers_stay_exact
    exact = @registry.counter(:exact, docstring: "Exact.")
    exact.increment(by: 2**53)
    5.times { exact.increment }
    assert_includes samples(@registry), "exact_total #{2**53 + 5}"
  end

  def test_removal
    labels = { code: 200, path: "/x" }
    @counter.increment(labels: labels)
    assert @counter.remove(labels)
    refute @counter.remove(labels)
    assert_empty @counter.values
    @counter.increment(labels: labels)
    assert_equal 1.0, @counter.get(labels: labels)
    @counter.init_label_set(code: 1, path: 2)
    assert_equal 0.0, @counter.values[{ code: "1", path: "2" }]
    assert_equal 2, @counter.clear
    assert_empty @counter.values
  end

  def test_exemplars
    counter = @registry.counter(:traced, docstring: "Traced.", labels: [:a],
                                         store_settings: { exemplars: true })
    counter.increment(labels: { a: 1 }, exemplar: { trace_id: "abc" })
    text = Quipu::Formats::OpenMetrics.marshal(@registry)
    assert_match(/traced_total\{a="1"\} 1(\.0)? # \{trace_id="abc"\} 1(\.0)?/, text)
  end

  def test_what_was_never_made_is_refused
    empty = Quipu::Counter.allocate
    assert_raises(TypeError) { empty.increment }
    assert_raises(TypeError) { Quipu::Counter::Child.allocate.increment }
    assert_raises(TypeError) { @counter.dup }
    assert_raises(ArgumentError) { @counter.send(:initialize, :again, docstring: "x", registry: fresh) }
    assert_raises(TypeError) { Quipu::Counter.instance_method(:increment).bind_call(Object.new) }
  end
end
