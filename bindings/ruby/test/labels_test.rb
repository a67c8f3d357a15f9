# frozen_string_literal: true

require "helper"

class LabelsTest < Minitest::Test
  def setup
    @registry = fresh
    @counter = @registry.counter(:c, docstring: "C.", labels: [:v])
  end

  def value_of(value)
    @counter.clear
    @counter.increment(labels: { v: value })
    assert_equal 1.0, @counter.get(labels: { v: value })
    assert_equal 1.0, @counter.with_labels(v: value).get
    @counter.values.keys.first.fetch(:v)
  end

  def test_values_of_any_class_are_texts
    object = Object.new
    def object.to_s
      "an object"
    end
    { "text" => "text", sym: "sym", 5 => "5", -7 => "-7", 2**62 => (2**62).to_s,
      2**100 => (2**100).to_s, 1.5 => "1.5", nil => "", true => "true", false => "false",
      object => "an object", "" => "", "dyn#{rand(9)}x".to_sym => nil }.each do |value, text|
      assert_equal text || value.to_s, value_of(value)
    end
  end

  def test_values_of_any_encoding_become_utf8
    { "é".encode("ISO-8859-1") => "é", "é".encode("UTF-16LE") => "é", "日本".encode("Shift_JIS") => "日本",
      "é".b => "é", "\xff\xfe".b => "\uFFFD\uFFFD", "a\xffb" => "a\uFFFDb",
      "é".encode("ISO-8859-1").to_sym => "é", "x".encode("UTF-32BE") => "x",
      "ab".dup.force_encoding("UTF-7") => "ab" }.each do |value, text|
      assert_equal text, value_of(value), value.inspect
      assert_equal Encoding::UTF_8, value_of(value).encoding
    end
  end

  def test_values_of_any_length
    [0, 1, 7, 8, 254, 255, 256, 4096, 100_000].each do |length|
      text = "é" * length
      assert_equal text, value_of(text)
    end
    assert_equal "a\n\"\\\0b", value_of("a\n\"\\\0b")
  end

  def test_a_value_that_raises_counts_nothing
    object = Object.new
    def object.to_s
      raise IOError, "no text"
    end
    assert_raises(IOError) { @counter.increment(labels: { v: object }) }
    assert_empty @counter.values
  end

  # `to_s` of one value changes another one and the Hash itself.
  def test_a_value_that_changes_others
    counter = @registry.counter(:changing, docstring: "C.", labels: %i[a b c])
    text = +"first"
    labels = { a: text }
    object = Object.new
    object.define_singleton_method(:to_s) do
      text.replace("y" * 10_000)
      labels.clear
      GC.start
      "evil"
    end
    labels.update(b: object, c: text)
    counter.increment(labels: labels)
    assert_equal 1, counter.values.size
    assert_equal "evil", counter.values.keys.first[:b]
  end

  def test_names
    bad = { "s" => Quipu::InvalidLabelError, :__a => Quipu::ReservedLabelError,
            :"a-b" => Quipu::InvalidLabelError, :pid => Quipu::ReservedLabelError,
            :"a\n" => Quipu::InvalidLabelError, 5 => Quipu::InvalidLabelError,
            :"" => Quipu::InvalidLabelError, :é => Quipu::InvalidLabelError }
    bad.each do |name, error|
      assert_raises(error, name.inspect) { @registry.counter(:bad, docstring: "x", labels: [name]) }
    end
    assert_raises(Quipu::InvalidLabelSetError) { @registry.counter(:bad, docstring: "x", labels: 5) }
    assert_raises(Quipu::InvalidLabelSetError) do
      @registry.counter(:bad, docstring: "x", labels: %i[a a])
    end
    assert_raises(Quipu::InvalidLabelSetError) do
      @registry.counter(:bad, docstring: "x", labels: (1..33).map { |i| :"l#{i}" })
    end
    assert_raises(Quipu::ReservedLabelError) { @registry.histogram(:bad, docstring: "x", labels: [:le]) }
    assert_raises(Quipu::ReservedLabelError) do
      @registry.summary(:bad, docstring: "x", labels: [:quantile])
    end
    refute @registry.exist?(:bad)
    names = (1..32).map { |i| :"l#{i}" }
    many = @registry.counter(:many, docstring: "x", labels: names)
    many.increment(labels: names.to_h { |name| [name, name] })
    assert_equal 1.0, many.values[names.to_h { |name| [name, name.to_s] }]
  end

  def test_labels_that_are_new_symbols
    name = :"fresh_#{rand(10**9)}"
    counter = @registry.counter(:fresh, docstring: "x", labels: [name])
    GC.start
    counter.increment(labels: { name => 1 })
    assert_equal 1.0, counter.get(labels: { name => 1 })
  end

  def test_hashes_of_other_kinds
    @counter.increment(labels: Hash.new { |_, _| "default" }.update(v: 1))
    assert_raises(Quipu::InvalidLabelSetError) { @counter.increment(labels: Hash.new("default")) }
    @counter.increment(labels: { v: 1 }.compare_by_identity)
    assert_equal 2.0, @counter.get(labels: { v: 1 })
  end
end
