# frozen_string_literal: true

require "minitest/autorun"
require "fileutils"
require "tmpdir"

require "quipu"

# Helpers that several tests use.
module Helper
  # A new registry in memory.
  def fresh
    Quipu::Registry.new
  end

  # Runs the block in a child process; fails unless the child succeeds.
  def in_child(&block)
    pid = fork_child(&block)
    _, status = Process.wait2(pid)
    assert status.success?, "a child process failed: #{status.inspect}"
  end

  # Forks a child that runs only the block; returns its process ID.
  def fork_child
    fork do
      yield
      exit!(0)
    rescue Exception => e # rubocop:disable Lint/RescueException
      warn e.full_message
      exit!(1)
    end
  end

  # The lines of the text format that are not comments.
  def samples(registry)
    registry.to_s.lines(chomp: true).reject { |line| line.start_with?("#") }
  end
end

Minitest::Test.include(Helper)
