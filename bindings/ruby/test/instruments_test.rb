# frozen_string_literal: true

require "helper"

class InstrumentsTest < Minitest::Test
  def setup
    @registry = fresh
  end

  def test_gauges
    gauge = @registry.gauge(:g, docstring: "G.", labels: [:a])
    gauge.set(5, labels: { a: 1 })
    gauge.increment(labels: { a: 1 })
    gauge.decrement(by: 2.5, labels: { a: 1 })
    assert_equal 3.5, gauge.get(labels: { a: 1 })
    assert_equal({ { a: "1", pid: Process.pid.to_s } => 3.5 }, gauge.values)
    gauge.set_to_current_time(labels: { a: 2 })
    assert_in_delta Time.now.to_f, gauge.get(labels: { a: 2 }), 5
    child = gauge.with_labels(a: 3)
    child.set(7)
    child.increment(by: 2)
    child.decrement
    child.set(9, labels: { a: 4 })
    assert_equal 8.0, child.get
    assert_equal 9.0, gauge.get(labels: { a: 4 })
    assert_equal :done, child.time { :done }
    assert_operator child.get, :<, 5
    ["1", nil, Object.new].each do |value|
      assert_raises(TypeError) { child.set(value) }
      assert_raises(TypeError) { child.increment(by: value) }
      assert_raises(TypeError) { child.decrement(by: value) }
    end
    child.set(Float::NAN)
    assert_predicate child.get, :nan?
    child.set(-2**80)
    assert_equal(-(2.0**80), child.get)
  end

  def test_aggregations
    expected = { sum: 12.0, max: 7.0, min: 5.0, livesum: 5.0, livemax: 5.0, most_recent: 7.0 }
    gauges = expected.keys.to_h do |aggregation|
      settings = { aggregation: aggregation }
      [aggregation, @registry.gauge(:"g_#{aggregation}", docstring: "G.", store_settings: settings)]
    end
    all = @registry.gauge(:g_all, docstring: "G.")
    (gauges.values + [all]).each { |gauge| gauge.set(5) }
    child_pid = fork_child { (gauges.values + [all]).each { |gauge| gauge.set(7) } }
    Process.wait(child_pid)
    gauges.each do |aggregation, gauge|
      assert_equal({ {} => expected[aggregation] }, gauge.values, aggregation)
    end
    assert_equal({ { pid: Process.pid.to_s } => 5.0, { pid: child_pid.to_s } => 7.0 }, all.values)
    assert_equal 5.0, all.get
    assert_raises(Quipu::InvalidStoreSettingsError) do
      @registry.gauge(:bad, docstring: "x", store_settings: { aggregation: :average })
    end
    assert_raises(Quipu::InvalidStoreSettingsError) do
      @registry.counter(:bad, docstring: "x", store_settings: { aggregation: :max })
    end
    assert_raises(Quipu::InvalidStoreSettingsError) do
      @registry.gauge(:bad, docstring: "x", store_settings: { other: 1 })
    end
  end

  def test_histograms
    histogram = @registry.histogram(:h_seconds, docstring: "H.", labels: [:a], buckets: [0.1, 1, 5])
    [0.05, 0.1, 0.5, 7].each { |value| histogram.observe(value, labels: { a: 1 }) }
    expected = { "0.1" => 2.0, "1" => 3.0, "5" => 3.0, "+Inf" => 4.0, "sum" => 7.65 }
    assert_equal expected, histogram.get(labels: { a: 1 })
    assert_equal({ { a: "1" } => expected }, histogram.values)
    assert_equal [0.0] * 5, histogram.get(labels: { a: 2 }).values
    child = histogram.with_labels(a: 3)
    child.observe(2)
    child.observe(-2, labels: {})
    assert_equal 2.0, child.get["+Inf"]
    assert_equal :done, child.time { :done }
    assert_raises(ZeroDivisionError) { child.time { 1 / 0 } }
    assert_equal 4.0, child.get["+Inf"]
    assert_includes samples(@registry), 'h_seconds_bucket{a="1",le="0.1"} 2'
    assert_includes samples(@registry), 'h_seconds_count{a="1"} 4'
    assert_raises(ArgumentError) { child.observe(Float::NAN) }
    assert_raises(TypeError) { child.observe("1") }
    assert_raises(ArgumentError) { @registry.histogram(:bad, docstring: "x", buckets: [2, 1]) }
    assert_raises(ArgumentError) { @registry.histogram(:bad, docstring: "x", buckets: [1, 1]) }
    assert_equal [1.0, 3.0, 5.0], Quipu::Histogram.linear_buckets(start: 1, width: 2, count: 3)
    assert_equal [1.0, 2.0, 4.0], Quipu::Histogram.exponential_buckets(start: 1, count: 3)
  end

  def test_infinite_bounds_are_one
    histogram = @registry.histogram(:h, docstring: "H.", buckets: [1, Float::INFINITY])
    histogram.observe(5)
    assert_equal({ "1" => 0.0, "+Inf" => 1.0, "sum" => 5.0 }, histogram.get)
  end

  def test_exemplars_of_histograms
    histogram = @registry.histogram(:h, docstring: "H.", buckets: [1],
                                        store_settings: { exemplars: true })
    histogram.observe(0.5, exemplar: { trace_id: "abc" })
    assert_match(/h_bucket\{le="1.0"\} 1(\.0)? # \{trace_id="abc"\} 0.5/,
                 Quipu::Formats::OpenMetrics.marshal(@registry))
  end

  def test_summaries
    summary = @registry.summary(:s, docstring: "S.", labels: [:a])
    summary.observe(1.5, labels: { a: 1 })
    summary.observe(2, labels: { a: 1 })
    assert_equal({ "count" => 2.0, "sum" => 3.5 }, summary.get(labels: { a: 1 }))
    assert_equal({ "count" => 0.0, "sum" => 0.0 }, summary.get(labels: { a: 2 }))
    child = summary.with_labels(a: 1)
    child.observe(4)
    assert_equal({ { a: "1" } => { "count" => 3.0, "sum" => 7.5 } }, summary.values)
    quantiles = @registry.summary(:q, docstring: "Q.", quantiles: [0.5])
    quantiles.time { nil }
    assert_equal %w[count sum 0.5], quantiles.get.keys
  end

  def test_infos
    info = @registry.info(:build, docstring: "Build.", labels: %i[version revision])
    info.set(version: "1.2.3", revision: :abc)
    info.set(version: "1.2.4", revision: :abc)
    info.set(version: "1.2.4", revision: :abc)
    assert_equal ['build_info{version="1.2.4",revision="abc"} 1'], samples(@registry)
    assert_raises(Quipu::InvalidLabelSetError) { info.set(version: 1) }
  end

  def test_state_sets
    states = @registry.state_set(:mode, docstring: "Mode.", states: %w[idle busy])
    states.state = :busy
    assert_equal({ "idle" => false, "busy" => true }, states.get)
    assert_equal ['mode{mode="idle"} 0', 'mode{mode="busy"} 1'], samples(@registry)
    assert_raises(ArgumentError) { states.set("gone") }
    assert_raises(ArgumentError) { @registry.state_set(:bad, docstring: "x", states: []) }
    by = @registry.state_set(:by, docstring: "By.", states: %w[a b], labels: [:l])
    by.set("a", labels: { l: 1 })
    by.with_labels(l: 1).set("b")
    assert_equal({ { l: "1" } => { "a" => false, "b" => true } }, by.values)
  end
end
