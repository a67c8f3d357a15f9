# frozen_string_literal: true

require "helper"

class RegistryTest < Minitest::Test
  def setup
    @registry = fresh
  end

  def test_knows_its_metrics
    counter = @registry.counter(:c_total, docstring: "C.")
    assert @registry.exist?(:c_total)
    assert_same counter, @registry.get("c_total")
    assert_equal [counter], @registry.metrics
    assert_same counter, @registry.register(counter)
    assert_equal [:c_total, "C.", :counter, []],
                 [counter.name, counter.docstring, counter.type, counter.labels]
    assert_raises(Quipu::AlreadyRegisteredError) { @registry.counter(:c_total, docstring: "C.") }
    assert_raises(Quipu::AlreadyRegisteredError) { @registry.counter(:c, docstring: "C.") }
    assert_raises(ArgumentError) { @registry.register(fresh.counter(:other, docstring: "x")) }
  end

  def test_unregister_frees_the_name
    @registry.counter(:c_total, docstring: "C.").increment
    @registry.unregister(:c_total)
    refute @registry.exist?(:c_total)
    assert_nil @registry.unregister(:c_total)
    assert_empty samples(@registry)
    counter = @registry.counter(:c_total, docstring: "C.")
    assert_equal 0.0, counter.get
  end

  def test_a_metric_outlives_its_registration
    counter = @registry.counter(:c_total, docstring: "C.", labels: [:a])
    counter.increment(labels: { a: 1 })
    assert_same counter, @registry.unregister(:c_total)
    counter.increment(labels: { a: 1 }, by: 2)
    assert_equal({ { a: "1" } => 2.0 }, counter.values)
    assert_empty @registry.to_s
    assert_same counter, @registry.register(counter)
    assert_same counter, @registry.get(:c_total)
    counter.increment(labels: { a: 1 }, by: 3)
    assert_equal ['c_total{a="1"} 5'], samples(@registry)
    assert_raises(Quipu::AlreadyRegisteredError) { @registry.counter(:c, docstring: "C.") }
    @registry.unregister(:c_total)
    @registry.counter(:c_total, docstring: "C.", labels: [:a])
    assert_raises(Quipu::AlreadyRegisteredError) { @registry.register(counter) }
  end

  def test_registries_are_apart
    first = fresh.counter(:same, docstring: "S.")
    other = fresh
    first.increment(by: 3)
    assert_equal 0.0, other.counter(:same, docstring: "S.").get
    assert_equal ["same_total 0"], samples(other)
  end

  def test_a_metric_without_series_has_a_header
    @registry.counter(:c, docstring: "C.", labels: [:a])
    @registry.histogram(:h, docstring: "H.", labels: [:a])
    assert_equal "# HELP c_total C.\n# TYPE c_total counter\n# HELP h H.\n# TYPE h histogram\n",
                 @registry.to_s
  end

  # The memory of a program that creates and removes series must not grow.
  def test_the_replacement_keeps_no_removed_series
    skip "NOT RUN: needs the replacement in plain Ruby" if Quipu.native?
    counter = @registry.counter(:c, docstring: "C.", labels: [:a])
    children = (1..3).map { |value| counter.with_labels(a: value) }
    bound = counter.send(:family).instance_variable_get(:@bound)
    assert_equal children.size, bound.size
    counter.remove(a: 1)
    assert_equal 2, bound.size
    counter.clear
    assert_empty bound
  end

  def test_the_replacement_keeps_a_metric_without_labels_at_a_reset
    skip "NOT RUN: needs the replacement in plain Ruby" if Quipu.native?
    counter = @registry.counter(:c, docstring: "C.")
    counter.clear
    counter.increment
    @registry.reset
    assert_equal ["c_total 0"], samples(@registry)
  end

  def test_reset_begins_at_its_time
    needs_native
    counter = @registry.counter(:c, docstring: "C.")
    labelled = @registry.counter(:l, docstring: "L.", labels: [:a])
    child = labelled.with_labels(a: 1)
    before = starts { [counter, child].each(&:increment) }
    after = starts do
      @registry.reset
      [counter, child].each(&:increment)
    end
    assert_equal ['c_total 1', 'l_total{a="1"} 1'], samples(@registry)
    assert_equal [2, 2], [before.size, after.size]
    assert_operator after.first, :>, before.first
    # The start time of a series with labels is exact to a tenth of a second.
    assert_operator after.last, :>=, before.last
  end

  # Runs the block; returns the start times of all series afterwards.
  def starts
    yield
    _, text = @registry.render("application/openmetrics-text;version=2.0.0")
    text.scan(/ st@([\d.]+)$/).map { |time,| Rational(time) }
  end

  def test_exemplars_are_checked
    counter = @registry.counter(:c, docstring: "C.", store_settings: { exemplars: true })
    histogram = @registry.histogram(:h, docstring: "H.", store_settings: { exemplars: true })
    ["abc", { "a-b" => 1 }, { 5 => 1 }, { a: "x" * 128 }].each do |exemplar|
      assert_raises(Quipu::InvalidLabelSetError, Quipu::InvalidLabelError, exemplar) { counter.increment(exemplar: exemplar) }
      assert_raises(Quipu::InvalidLabelSetError, Quipu::InvalidLabelError, exemplar) { histogram.observe(1, exemplar: exemplar) }
    end
    assert_equal 0.0, counter.get
    counter.increment(exemplar: { a: "x" * 127 })
    assert_includes @registry.render("openmetrics").last, "x" * 127
  end

  def test_reset_begins_anew
    counter = @registry.counter(:c, docstring: "C.")
    labelled = @registry.counter(:l, docstring: "L.", labels: [:a])
    counter.increment(by: 5)
    labelled.increment(labels: { a: 1 })
    @registry.reset
    assert_equal ["c_total 0"], samples(@registry)
    counter.increment
    assert_equal 1.0, counter.get
  end

  def test_names_and_docstrings
    ["name", :"0x", :"a-b", :"", nil, :"a\n"].each do |name|
      assert_raises(ArgumentError) { @registry.counter(name, docstring: "x") }
    end
    ["", nil, 5].each do |docstring|
      assert_raises(ArgumentError) { @registry.counter(:x, docstring: docstring) }
    end
    assert_raises(ArgumentError) { @registry.counter(:x) }
    %i[a_count a_sum a_bucket a_info].each { |name| @registry.gauge(name, docstring: "x").set(1) }
  end

  def test_formats
    @registry.counter(:c, docstring: "C\nC.").increment
    assert_equal "# HELP c_total C\\nC.\n# TYPE c_total counter\nc_total 1\n",
                 Quipu::Formats::Text.marshal(@registry)
    assert_match(/# EOF\n\z/, Quipu::Formats::OpenMetrics.marshal(@registry))
    { nil => "text/plain; version=0.0.4", "" => "text/plain; version=0.0.4",
      "application/openmetrics-text;version=1.0.0" => "application/openmetrics-text; version=1.0.0",
      "\xff" => "text/plain" }.each do |accept, type|
      assert Quipu::Formats.negotiate(@registry, accept).first.start_with?(type), accept.inspect
    end
  end

  def test_protobuf
    @registry.counter(:c, docstring: "C.").increment
    unless Quipu.native?
      error = assert_raises(Quipu::StoreError) { Quipu::Formats::Protobuf.marshal(@registry) }
      assert_includes error.message, "use text or OpenMetrics"
    end
    needs_native
    protobuf = Quipu::Formats::Protobuf.marshal(@registry)
    assert_equal Encoding::BINARY, protobuf.encoding
    assert_includes protobuf, "c_total"
    accept = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"
    assert Quipu::Formats.negotiate(@registry, accept).first.start_with?("application/vnd.google.protobuf")
  end

  def test_the_default_registry
    assert_instance_of Quipu::Registry, Quipu.registry
    in_child do
      Dir.mktmpdir do |dir|
        Quipu.configure(dir: dir)
        counter = Quipu::Counter.new(:c, docstring: "C.")
        counter.increment
        raise "no file" unless Quipu.registry.path == File.join(dir, "metrics.quipu")

        begin
          Quipu.configure
          raise "configured after a metric was made"
        rescue ArgumentError
          nil
        end
      end
    end
  end
end
