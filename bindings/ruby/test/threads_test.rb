# frozen_string_literal: true

require "helper"

class ThreadsTest < Minitest::Test
  def test_no_increment_is_lost
    registry = fresh
    counter = registry.counter(:c, docstring: "C.", labels: [:a])
    child = counter.with_labels(a: "x")
    histogram = registry.histogram(:h, docstring: "H.", labels: [:a])
    done = false
    scraper = Thread.new do
      until done
        assert_includes registry.to_s, "c_total"
        Thread.pass
      end
    end
    threads = Array.new(8) do |i|
      Thread.new do
        5_000.times do |n|
          child.increment
          counter.increment(labels: { a: "x" })
          counter.increment(labels: { a: "new_#{i}_#{n % 50}" })
          histogram.observe(n, labels: { a: i })
        end
      end
    end
    child.increment(by: 0)
    threads.each(&:join)
    done = true
    scraper.join
    assert_equal 80_000.0, child.get
    values = counter.values
    assert_equal 401, values.size
    assert_equal 120_000.0, values.values.sum
    assert_equal([5_000.0] * 8, histogram.values.values.map { |value| value["+Inf"] })
  end

  # Killing a thread, or raising in it, during a scrape does no harm.
  def test_scrapes_are_interrupted
    registry = fresh
    counter = registry.counter(:c, docstring: "C.", labels: [:a])
    5_000.times { |n| counter.increment(labels: { a: n }) }
    20.times do |i|
      scraping = Queue.new
      thread = Thread.new do
        scraping << true
        loop { registry.to_s }
      rescue ArgumentError
        nil
      end
      # An exception before the thread reaches this point would not be rescued.
      scraping.pop
      sleep 0.005
      i.even? ? thread.kill : thread.raise(ArgumentError)
      thread.join
    end
    assert_equal 5_000, samples(registry).size
  end
end
