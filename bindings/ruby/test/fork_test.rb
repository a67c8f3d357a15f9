# frozen_string_literal: true

require "helper"

class ForkTest < Minitest::Test
  CHILDREN = 10_000

  def test_ten_thousand_children_count_exactly
    registry = fresh
    counter = registry.counter(:c, docstring: "C.", labels: [:a])
    child = counter.with_labels(a: "bound")
    threads = Array.new(4) { |i| Thread.new { 2_000.times { counter.increment(labels: { a: "t#{i}" }) } } }
    running = 0
    CHILDREN.times do |i|
      fork do
        child.increment
        counter.increment(by: 2, labels: { a: i % 7 })
        exit!(0)
      end
      running += 1
      next if running < 16

      Process.wait
      running -= 1
    end
    running.times { Process.wait }
    threads.each(&:join)
    values = counter.values
    assert_equal CHILDREN.to_f, child.get
    assert_equal 2.0 * CHILDREN, (0..6).sum { |i| values[{ a: i.to_s }] }
    assert_equal [2_000.0] * 4, (0..3).map { |i| values[{ a: "t#{i}" }] }
  end

  # A storm: children fork while their threads and the parent's create series and scrape.
  def test_a_storm_with_threads_running
    registry = fresh
    counter = registry.counter(:c, docstring: "C.", labels: %i[who n])
    done = false
    threads = Array.new(3) do |i|
      Thread.new do
        n = 0
        until done
          counter.increment(labels: { who: "parent", n: "#{i}-#{n += 1}" }) if n < 3_000
          registry.to_s if (n % 100).zero?
          Thread.pass
        end
      end
    end
    pids = Array.new(60) do |i|
      fork_child do
        registry.to_s
        inner = Array.new(2) { |t| Thread.new { 50.times { |n| counter.increment(labels: { who: "c#{i}", n: "#{t}-#{n}" }) } } }
        in_grandchild = fork { counter.increment(labels: { who: "g", n: i }); exit!(0) }
        inner.each(&:join)
        Process.wait(in_grandchild)
        registry.to_s
      end
    end
    pids.each { |pid| assert_predicate Process.wait2(pid).last, :success? }
    done = true
    threads.each(&:join)
    values = counter.values
    60.times { |i| assert_equal(100.0, values.sum { |labels, n| labels[:who] == "c#{i}" ? n : 0 }) }
    assert_equal(60.0, values.sum { |labels, n| labels[:who] == "g" ? n : 0 })
  end

  def test_metrics_made_in_children_are_shared
    registry = fresh
    3.times do
      in_child { registry.counter(:late, docstring: "Late.", labels: [:a]).increment(labels: { a: 1 }) }
    end
    assert_includes samples(registry), 'late_total{a="1"} 3'
    assert_equal 3.0, registry.counter(:late, docstring: "Late.", labels: [:a]).get(labels: { a: 1 })
  end

  def test_killed_children_leave_what_they_counted
    registry = fresh
    counter = registry.counter(:c, docstring: "C.")
    gauge = registry.gauge(:g, docstring: "G.", store_settings: { aggregation: :livesum })
    gauge.set(1)
    10.times do
      reader, writer = IO.pipe
      pid = fork_child do
        gauge.set(100)
        100.times { counter.increment }
        writer.write("x")
        loop { Thread.pass }
      end
      writer.close
      assert_equal "x", reader.read(1), "the child ended by itself"
      Process.kill(:KILL, pid)
      Process.wait(pid)
    end
    assert_equal 1_000.0, counter.get
    assert_includes samples(registry), "g 1"
  end
end
