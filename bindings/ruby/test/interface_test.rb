# frozen_string_literal: true

require "helper"

class InterfaceTest < Minitest::Test
  def test_native_methods_are_private
    classes = modules(Quipu).grep(Class)
    assert_includes classes, Quipu::DataStore::MetricStore
    classes.each do |klass|
      public_ones = klass.public_instance_methods.grep(/\Anative_/)
      assert_empty public_ones, klass.name
    end
  end

  private

  # The module and all modules and classes in it.
  def modules(parent)
    inner = parent.constants(false).map { |name| parent.const_get(name) }.grep(Module)
    [parent] + inner.select { |one| one.name.start_with?(parent.name) }.flat_map { |one| modules(one) }
  end
end
