# frozen_string_literal: true

require "minitest/autorun"
require "fileutils"
require "json"
require "open3"
require "tmpdir"

require "quipu"

# Helpers that several tests use.
module Helper
  # A new registry in memory.
  def fresh
    Quipu::Registry.new
  end

  # Skips the rest of a test of the replacement in plain Ruby.
  def needs_native
    skip "NOT RUN: needs the native part" unless Quipu.native?
  end

  # Runs the block in a child process; fails unless the child succeeds.
  def in_child(&block)
    pid = fork_child(&block)
    _, status = Process.wait2(pid)
    assert status.success?, "a child process failed: #{status.inspect}"
  end

  # Forks a child that runs only the block; returns its process ID.
  def fork_child
    needs_native
    fork do
      yield
      exit!(0)
    rescue Exception => e # rubocop:disable Lint/RescueException
      warn e.full_message
      exit!(1)
    end
  end

  COMMAND = ENV.fetch("QUIPU", File.expand_path("../../../target/debug/quipu", __dir__))

  # Returns the recording of a file, in the form of `quipu inspect`; nil if there is none.
  def history_of(path)
    unless File.executable?(COMMAND)
      skip "NOT RUN: needs the command quipu: cargo build --package quipu-cli"
    end
    out, err, status = Open3.capture3(COMMAND, "inspect", "--history", "--format", "json", path)
    return if err.include?("no flight recorder")

    assert_predicate status, :success?, err
    shown = JSON.parse(out)
    shown.merge("series" => shown["series"].to_h { |one| [one["name"], one["values"]] })
  end

  # Returns the lines of an exposition that are not comments.
  def samples(registry)
    registry.to_s.lines(chomp: true).reject { |line| line.start_with?("#") }
  end
end

Minitest::Test.include(Helper)
