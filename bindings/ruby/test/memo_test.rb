# frozen_string_literal: true

require "helper"

# The memo of series by the identity of label values: see ext/quipu/src/memo.rs. It keeps values
# only after 16 calls, so each case runs several times that.
class MemoTest < Minitest::Test
  ROUNDS = 100

  def setup
    @registry = fresh
    @counter = @registry.counter(:c, docstring: "C.", labels: %i[a b])
  end

  def test_a_string_that_changes
    text = +"first"
    ROUNDS.times { @counter.increment(labels: { a: text, b: 1 }) }
    text.replace("second")
    ROUNDS.times { @counter.increment(labels: { a: text, b: 1 }) }
    text.freeze
    ROUNDS.times { @counter.increment(labels: { a: text, b: 1 }) }
    assert_equal({ { a: "first", b: "1" } => 100.0, { a: "second", b: "1" } => 200.0 }, @counter.values)
  end

  def test_any_order_of_the_keys
    ROUNDS.times do
      @counter.increment(labels: { a: "x", b: "y" })
      @counter.increment(labels: { b: "y", a: "x" })
      @counter.increment(labels: { a: "y", b: "x" })
    end
    assert_equal({ { a: "x", b: "y" } => 200.0, { a: "y", b: "x" } => 100.0 }, @counter.values)
  end

  def test_other_keys_are_refused_each_time
    ROUNDS.times do
      @counter.increment(labels: { a: "x", b: "y" })
      [nil, {}, { a: "x" }, { a: "x", b: "y", c: "z" }, { a: "x", c: "y" }, { a: "x", "b" => "y" },
       Hash.new("x").update(a: "x")].each do |labels|
        assert_raises(Quipu::InvalidLabelSetError) { @counter.increment(labels: labels) }
      end
    end
    assert_equal({ { a: "x", b: "y" } => 100.0 }, @counter.values)
  end

  def test_equal_texts_of_different_objects_share_a_series
    values = [1, "1", :"1", -"1", (+"1").freeze, String.new("1").freeze, "1".b.freeze,
              "1".encode("UTF-16LE").freeze, Class.new(String).new("1").freeze, 1.0.to_i]
    ROUNDS.times { values.each { |value| @counter.increment(labels: { a: value, b: nil }) } }
    assert_equal({ { a: "1", b: "" } => 100.0 * values.size }, @counter.values)
  end

  def test_values_that_are_no_texts
    values = { true => "true", false => "false", nil => "", 1.5 => "1.5", 2**80 => (2**80).to_s,
               -1 => "-1", 0 => "0", "dyn#{rand(10**9)}".to_sym => nil, "\xFF" => "\uFFFD",
               "x" * 10_000 => "x" * 10_000 }
    ROUNDS.times { values.each_key { |value| @counter.increment(labels: { a: value, b: "b" }) } }
    expected = values.to_h { |value, text| [{ a: text || value.to_s, b: "b" }, 100.0] }
    assert_equal expected, @counter.values
  end

  def test_more_label_sets_than_places
    values = Array.new(3_000) { |i| i.even? ? i : "v#{i}".freeze }
    5.times { values.each { |value| @counter.increment(labels: { a: value, b: :same }) } }
    assert_equal values.to_h { |value| [{ a: value.to_s, b: "same" }, 5.0] }, @counter.values
  end

  # A new object at the address of a freed one must not be taken for the old one.
  def test_while_objects_are_freed_and_moved
    kept = Array.new(5) { |i| "kept #{i}".freeze }
    30.times do |round|
      kept.each { |text| @counter.increment(labels: { a: text, b: :kept }) }
      200.times do |i|
        @counter.increment(labels: { a: "a#{round}-#{i % 100}".freeze, b: "b#{i % 100}".to_sym })
      end
      GC.respond_to?(:compact) && round % 10 == 9 ? GC.compact : GC.start
    end
    expected = kept.to_h { |text| [{ a: text, b: "kept" }, 30.0] }
    30.times { |round| 100.times { |i| expected[{ a: "a#{round}-#{i}", b: "b#{i}" }] = 2.0 } }
    assert_equal expected, @counter.values
  end

  def test_under_stress
    values = ["one", :two, 3, "four#{rand(9)}".to_sym]
    GC.stress = true
    40.times { values.each { |value| @counter.increment(labels: { a: value, b: value }) } }
    GC.stress = false
    assert_equal values.to_h { |value| [{ a: value.to_s, b: value.to_s }, 40.0] }, @counter.values
  ensure
    GC.stress = false
  end

  def test_a_removed_series_starts_again
    labels = { a: "x", b: 1 }
    count = -> { ROUNDS.times { @counter.increment(labels: labels) } }
    count.call
    @counter.remove(labels)
    count.call
    assert_equal 100.0, @counter.get(labels: labels)
    @counter.clear
    count.call
    assert_equal 100.0, @counter.get(labels: labels)
    @registry.reset
    assert_empty @counter.values
    count.call
    assert_equal 100.0, @counter.get(labels: labels)
    in_child { @counter.remove(labels) }
    assert_empty @counter.values
    count.call
    assert_equal 100.0, @counter.get(labels: labels)
  end

  # Another label set takes the record of the removed series.
  def test_a_record_that_another_series_took
    labels = { a: "removed", b: 0 }
    ROUNDS.times { @counter.increment(labels: labels) }
    @counter.remove(labels)
    1_000.times { |i| @counter.increment(labels: { a: "other", b: i }) }
    900.times { |i| @counter.remove({ a: "other", b: i }) }
    1_000.times { |i| @counter.increment(labels: { a: "again", b: i }) }
    @counter.increment(labels: labels)
    assert_equal 1.0, @counter.get(labels: labels)
    assert_equal 1_101, @counter.values.size
    assert_equal [1.0], @counter.values.values.uniq
  end

  def test_forks_count_in_the_same_series
    count = -> { ROUNDS.times { @counter.increment(labels: { a: "x", b: :y }) } }
    count.call
    3.times { in_child { 2.times { count.call } } }
    count.call
    assert_equal({ { a: "x", b: "y" } => 800.0 }, @counter.values)
  end

  def test_threads
    values = Array.new(400) { |i| "v#{i}".freeze }
    threads = Array.new(4) do
      Thread.new do
        20.times { values.shuffle.each { |value| @counter.increment(labels: { a: value, b: 0 }) } }
      end
    end
    threads.each(&:join)
    assert_equal [80.0] * 400, @counter.values.values
  end

  def test_views_with_preset_labels
    view = @counter.with_labels(a: "preset")
    ROUNDS.times do
      view.increment(labels: { b: "x" })
      view.increment(labels: { a: "other", b: "x" })
      view.with_labels(b: "x").increment(labels: {})
      view.with_labels(b: "x").increment(labels: { b: "z" })
    end
    assert_equal({ { a: "preset", b: "x" } => 200.0, { a: "other", b: "x" } => 100.0,
                   { a: "preset", b: "z" } => 100.0 }, @counter.values)
    whole = view.with_labels(b: "y")
    ROUNDS.times { whole.increment(labels: {}) }
    assert_equal 100.0, whole.get
  end

  def test_every_kind
    labels = { a: "x", b: :y }
    gauge = @registry.gauge(:g, docstring: "G.", labels: %i[a b],
                                store_settings: { aggregation: :livesum })
    histogram = @registry.histogram(:h, docstring: "H.", labels: %i[a b], buckets: [1])
    summary = @registry.summary(:s, docstring: "S.", labels: %i[a b])
    run = lambda do
      ROUNDS.times do |i|
        @counter.increment(by: 0.5, labels: labels)
        gauge.set(i, labels: labels)
        gauge.increment(labels: labels)
        histogram.observe(i % 2 * 3, labels: labels)
        summary.observe(2, labels: labels)
      end
    end
    run.call
    in_child do
      run.call
      assert_includes samples(@registry), 'g{a="x",b="y"} 200'
    end
    assert_equal 100.0, @counter.get(labels: labels)
    assert_equal 100.0, gauge.get(labels: labels)
    assert_equal({ "1" => 100.0, "+Inf" => 200.0, "sum" => 300.0 }, histogram.get(labels: labels))
    assert_equal({ "count" => 200.0, "sum" => 400.0 }, summary.get(labels: labels))
  end
end
