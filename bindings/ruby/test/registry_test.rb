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
    protobuf = Quipu::Formats::Protobuf.marshal(@registry)
    assert_equal Encoding::BINARY, protobuf.encoding
    assert_includes protobuf, "c_total"
    { nil => "text/plain; version=0.0.4", "" => "text/plain; version=0.0.4",
      "application/openmetrics-text;version=1.0.0" => "application/openmetrics-text; version=1.0.0",
      "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited" =>
        "application/vnd.google.protobuf", "\xff" => "text/plain" }.each do |accept, type|
      assert Quipu::Formats.negotiate(@registry, accept).first.start_with?(type), accept.inspect
    end
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
          raise "configured behind a metric"
        rescue ArgumentError
          nil
        end
      end
    end
  end
end
