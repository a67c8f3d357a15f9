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

  def test_signatures_name_methods_that_exist
    with_signatures do |builder|
      builder.env.class_decls.each_key do |type|
        next unless type.to_s.start_with?("::Quipu")

        object = Object.const_get(type.to_s)
        own = builder.build_instance(type).methods.select { |_, method| method.defined_in == type }
        missing = own.keys.reject { |name| defines?(object, name) }
        assert_empty missing, "#{type} has signatures of methods that do not exist"
        own = builder.build_singleton(type).methods.select { |_, method| method.defined_in == type }
        assert_empty own.keys.reject { |name| object.respond_to?(name, true) }, type.to_s
      end
    end
  end

  def test_public_methods_have_signatures
    with_signatures do |builder|
      builder.env.class_decls.each_key do |type|
        next unless type.to_s.start_with?("::Quipu")

        known = builder.build_instance(type).methods.keys
        own = Object.const_get(type.to_s).public_instance_methods(false) - INTERNAL
        assert_empty own - known, "#{type} has public methods without signatures"
      end
    end
  end

  # Methods that only the gem calls, and the refusal to copy.
  INTERNAL = %i[add family_name open_again start initialize_copy].freeze

  private

  # Passes the definitions in `sig` to the block.
  def with_signatures
    begin
      require "rbs"
    rescue LoadError
      skip "NOT RUN: needs the gem rbs"
    end
    loader = RBS::EnvironmentLoader.new
    loader.add(path: Pathname(File.expand_path("../sig", __dir__)))
    env = RBS::Environment.from_loader(loader).resolve_type_names
    yield RBS::DefinitionBuilder.new(env: env)
  end

  def defines?(object, name)
    # The native part defines some methods of all metrics in each class.
    classes = object == Quipu::Metric ? [Quipu::Counter] : [object]
    classes.all? { |one| one.method_defined?(name) || one.private_method_defined?(name) }
  end

  # Returns the module and all its modules and classes.
  def modules(parent)
    inner = parent.constants(false).map { |name| parent.const_get(name) }.grep(Module)
    [parent] + inner.select { |one| one.name.start_with?(parent.name) }.flat_map { |one| modules(one) }
  end
end
