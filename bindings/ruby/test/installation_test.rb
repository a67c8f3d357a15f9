# frozen_string_literal: true

require "helper"
require "rbconfig"

# Installations without cargo or without the native part.
class InstallationTest < Minitest::Test
  ROOT = File.expand_path("..", __dir__)
  EXTCONF = File.join(ROOT, "ext/quipu/extconf.rb")

  def setup
    @dir = Dir.mktmpdir
  end

  def teardown
    FileUtils.rm_rf(@dir)
  end

  def test_on_linux_the_build_needs_cargo
    output, status = on("linux-gnu", EXTCONF, "CARGO" => "/no/cargo")
    refute_predicate status, :success?
    assert_match(/requires Rust, but .no.cargo does not run/, output)
  end

  def test_on_macos_and_windows_an_installation_without_cargo_succeeds
    %w[darwin23 mingw32 cygwin].each do |system|
      output, status = on(system, EXTCONF, "CARGO" => "/no/cargo")
      assert_predicate status, :success?, output
      assert_match(/without its native part/, output)
      assert_match(/without its native part/, make("all"))
      make("install", "sitearchdir=#{@dir}/site")
      make("clean")
    end
  end

  def test_on_macos_a_failed_build_does_not_fail_the_installation
    cargo = File.join(@dir, "cargo")
    File.write(cargo, "#!/bin/sh\n[ \"$1\" = --version ]\n", perm: 0o755)
    output, status = on("darwin23", EXTCONF, "CARGO" => cargo)
    assert_predicate status, :success?, output
    assert_match(/without its native part/, make("install", "sitearchdir=#{@dir}/site"))
    assert_empty Dir[File.join(@dir, "site/quipu/*")]
  end

  # The crates of the native part do not support Windows.
  def test_on_windows_nothing_is_built
    cargo = File.join(@dir, "cargo")
    File.write(cargo, "#!/bin/sh\n", perm: 0o755)
    output, status = on("mingw32", EXTCONF, "CARGO" => cargo)
    assert_predicate status, :success?, output
    refute_match(/cargo/, File.read(File.join(@dir, "Makefile")).lines.drop(1).join)
    assert_match(/without its native part/, make("install"))
  end

  def test_a_native_part_that_macos_cannot_load_is_reported
    FileUtils.cp_r(File.join(ROOT, "lib"), @dir)
    library = File.join(@dir, "lib/quipu/native.#{RbConfig::CONFIG["DLEXT"]}")
    FileUtils.rm_f(library)
    File.write(library, "damaged")
    program = File.join(@dir, "program.rb")
    File.write(program, "require 'quipu'; puts Quipu.native?")
    output, status = on("darwin23", program, "QUIPU_PURE_RUBY" => nil)
    assert_predicate status, :success?, output
    assert_match(/\Aquipu: the native part of quipu-metrics cannot be loaded.*native.*\nfalse\n\z/, output)
    output, status = on("linux-gnu", program, "QUIPU_PURE_RUBY" => nil)
    refute_predicate status, :success?
    assert_match(/force_ruby_platform/, output)
  end

  def test_without_the_native_part_linux_raises_and_macos_counts
    FileUtils.cp_r(File.join(ROOT, "lib"), @dir)
    FileUtils.rm_f(Dir[File.join(@dir, "lib/quipu/native.*")])
    program = File.join(@dir, "program.rb")
    File.write(program, <<~'RUBY')
      require "quipu"
      Quipu.registry.counter(:c, docstring: "C.").increment
      puts Quipu.native?, Quipu.registry
    RUBY
    no_switch = { "QUIPU_PURE_RUBY" => nil }
    output, status = on("linux-gnu", program, no_switch)
    refute_predicate status, :success?
    assert_match(/native part of quipu-metrics cannot be loaded.*gem install/, output)
    output, status = on("linux-gnu", program, "QUIPU_PURE_RUBY" => "1")
    assert_predicate status, :success?, output
    output, = on("darwin23", program, no_switch)
    assert_equal "false\n# HELP c_total C.\n# TYPE c_total counter\nc_total 1\n", output
  end

  # The fork of a server is told, once, that the counts are separate.
  def test_without_the_native_part_a_fork_warns
    program = File.join(@dir, "program.rb")
    File.write(program, <<~'RUBY')
      require "quipu"
      Process.wait(fork { 2.times { Quipu.registry.to_s } })
    RUBY
    output, = on(RbConfig::CONFIG["host_os"], program, { "QUIPU_PURE_RUBY" => "1" }, File.join(ROOT, "lib"))
    assert_equal 1, output.lines.size, output
    assert_match(/\Aquipu: .*forked counts separately/, output)
  end

  private

  # Runs a program like on another system; returns its output and status.
  def on(system, program, environment, library = File.join(@dir, "lib"))
    Open3.capture2e(environment, RbConfig.ruby, "-I", library, "-rrbconfig", "-e",
                    "RbConfig::CONFIG['host_os'] = '#{system}'; load '#{program}'", chdir: @dir)
  end

  def make(*arguments)
    output, status = Open3.capture2e("make", *arguments, chdir: @dir)
    assert_predicate status, :success?, output
    output
  end
end
