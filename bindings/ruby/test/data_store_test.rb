# frozen_string_literal: true

require "helper"

# The documented interface of a store of client_ruby, and the behaviour of its own stores.
module StoreExamples
  def test_what_was_not_set_is_zero
    assert_same_value 0.0, metric_store.get(labels: { foo: "bar" })
  end

  def test_what_was_set_is_read
    metric_store.set(labels: { foo: "bar" }, val: 5)
    metric_store.set(labels: { foo: "baz" }, val: 2)
    assert_same_value 5.0, metric_store.get(labels: { foo: "bar" })
    assert_same_value 2.0, metric_store.get(labels: { foo: "baz" })
    assert_same_value 0.0, metric_store.get(labels: { foo: "bat" })
  end

  def test_increments_add
    metric_store.set(labels: { foo: "bar" }, val: 5)
    metric_store.increment(labels: { foo: "bar" })
    metric_store.increment(labels: { foo: "baz" }, by: 7)
    metric_store.increment(labels: { foo: "baz" }, by: 0.5)
    assert_same_value 6.0, metric_store.get(labels: { foo: "bar" })
    assert_same_value 7.5, metric_store.get(labels: { foo: "baz" })
  end

  def test_synchronize_runs_the_block_and_may_be_nested
    result = metric_store.synchronize do
      metric_store.increment(labels: { foo: "bar" })
      metric_store.synchronize { metric_store.increment(labels: { foo: "bar" }) }
      :result
    end
    assert_equal :result, result
    assert_same_value 2.0, metric_store.get(labels: { foo: "bar" })
  end

  def test_all_values_is_a_hash_of_floats
    metric_store.set(labels: { foo: "bar" }, val: 5)
    metric_store.increment(labels: { foo: "baz" })
    expected = { { foo: "bar" } => 5.0, { foo: "baz" } => 1.0 }
    assert expected.eql?(metric_store.all_values), metric_store.all_values.inspect
    assert_same_value 0.0, metric_store.all_values[{ foo: "other" }]
    assert_empty store.for_metric(:unused, metric_type: :counter).all_values
  end

  def test_the_order_of_labels_does_not_matter
    metric_store.increment(labels: { a: "1", b: "2" })
    metric_store.increment(labels: { b: "2", a: "1" })
    assert_equal({ { a: "1", b: "2" } => 2.0 }, metric_store.all_values)
  end

  def assert_same_value(expected, value)
    assert expected.eql?(value), "#{value.inspect} is not #{expected.inspect}"
  end
end

class DataStoreTest < Minitest::Test
  include StoreExamples

  def store
    @store ||= Quipu::DataStore.new
  end

  def metric_store
    @metric_store ||= store.for_metric(:metric, metric_type: :counter)
  end

  def test_settings_are_checked
    error = Quipu::DataStore::InvalidStoreSettingsError
    [{ aggregation: :other }, { aggregation: nil }, { other: 1 }, { aggregation: :sum, more: 1 },
     { aggregation: :most_recent }].each do |settings|
      assert_raises(error, settings) do
        store.for_metric(:bad, metric_type: :counter, metric_settings: settings)
      end
    end
    recent = store.for_metric(:recent, metric_type: :gauge,
                                       metric_settings: { aggregation: :most_recent })
    recent.set(labels: {}, val: 1)
    assert_raises(error) { recent.increment(labels: {}) }
    assert_equal({ {} => 1.0 }, recent.all_values)
  end

  def test_aggregations
    expected = { sum: 9.0, max: 6.0, min: 3.0, most_recent: 6.0 }
    stores = expected.keys.to_h do |aggregation|
      [aggregation, store.for_metric(:"g_#{aggregation}", metric_type: :gauge,
                                                          metric_settings: { aggregation: aggregation })]
    end
    all = store.for_metric(:all, metric_type: :gauge)
    labels = { foo: "bar" }
    (stores.values + [all]).each { |metric| metric.set(labels: labels, val: 3) }
    pid = fork_child { (stores.values + [all]).each { |metric| metric.set(labels: labels, val: 6) } }
    Process.wait(pid)
    stores.each do |aggregation, metric|
      assert_equal({ labels => expected[aggregation] }, metric.all_values, aggregation)
    end
    assert_equal({ labels.merge(pid: Process.pid.to_s) => 3.0, labels.merge(pid: pid.to_s) => 6.0 },
                 all.all_values)
    assert_equal({ foo: "bar" }, labels, "the caller's labels are left alone")
  end

  def test_counters_are_shared_by_processes
    labels = { foo: "bar" }
    metric_store
    4.times { in_child { 100.times { metric_store.increment(labels: labels) } } }
    # This process counts for the first time, so it learns the labels from the segment.
    assert_equal({ labels => 400.0 }, metric_store.all_values)
    in_child { metric_store.set(labels: labels, val: 0) }
    assert_equal 400.0, metric_store.get(labels: labels), "setting zero only creates the series"
  end

  def test_histograms_as_the_gem_keeps_them
    histogram = store.for_metric(:seconds, metric_type: :histogram)
    3.times do
      histogram.synchronize do
        histogram.increment(labels: { path: "/x", le: "0.1" }, by: 1)
        histogram.increment(labels: { path: "/x", le: "sum" }, by: -0.05)
      end
    end
    summary = store.for_metric(:summary, metric_type: :summary)
    summary.increment(labels: { quantile: "count" })
    assert_equal 3.0, histogram.all_values[{ path: "/x", le: "0.1" }]
    assert_in_delta(-0.15, histogram.get(labels: { path: "/x", le: "sum" }))
    assert_equal({ { quantile: "count" } => 1.0 }, summary.all_values)
  end

  def test_metrics_with_several_sets_of_labels
    metric_store.increment(labels: { a: "1" })
    metric_store.increment(labels: { a: "1", b: "2" })
    metric_store.increment(labels: {})
    metric_store.increment(labels: { a: "1" })
    assert_equal({ { a: "1" } => 2.0, { a: "1", b: "2" } => 1.0, {} => 1.0 }, metric_store.all_values)
  end

  # A process learns the series that another process created, for any number of metrics.
  def test_many_metrics
    metrics = Array.new(300) { |i| store.for_metric(:"m_#{i}_total", metric_type: :counter) }
    in_child { metrics.each_with_index { |metric, i| metric.increment(labels: { a: "x" }, by: i) } }
    values = metrics.map(&:all_values)
    assert_equal Array.new(300) { |i| { { a: "x" } => i.to_f } }, values
    in_child { metrics[7].increment(labels: { a: "x", b: "y" }) }
    assert_equal({ { a: "x" } => 7.0, { a: "x", b: "y" } => 1.0 }, metrics[7].all_values)
  end

  def test_bad_labels
    [nil, 5, { "a" => 1 }, { 5 => 1 }].each do |labels|
      assert_raises(Quipu::InvalidLabelSetError, labels.inspect) { metric_store.increment(labels: labels) }
    end
    assert_raises(TypeError) { metric_store.increment(labels: {}, by: "1") }
  end
end

class DataStoreInFileTest < DataStoreTest
  def setup
    @dir = Dir.mktmpdir
  end

  def teardown
    FileUtils.rm_rf(@dir)
  end

  def store
    @store ||= Quipu::DataStore.new(dir: File.join(@dir, "made"))
  end
end
