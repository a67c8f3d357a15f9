# Times code and prints records, one JSON object per line, with the keys of `Record` in
# bench/report/src/record.rs. A record is of one run: if you start this program several times, you
# merge the runs.

require "json"

module Measure
  # The duration of a run in seconds, and the duration with --quick.
  FULL = 0.06
  QUICK = 0.004

  # The numbers of threads or workers that count at the same time.
  TOGETHER = [1, 2, 4].freeze

  class << self
    attr_accessor :quick

    def run_time
      quick ? QUICK : FULL
    end

    # The full number, or a small one with --quick.
    def some(full, small)
      quick ? small : full
    end

    def now
      Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end

    # Prints a record of the values.
    def record(name, subject, values, metric: "time", unit: "ns", threads: 1)
      sorted = Array(values).map(&:to_f).sort
      middle = sorted.size / 2
      median = sorted.size.odd? ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2
      puts JSON.generate(case: name, subject: subject, threads: threads, metric: metric,
                         unit: unit, median: median, min: sorted.first, max: sorted.last,
                         runs: sorted.size)
      $stdout.flush
    end

    # Returns a loop that runs the code the given number of times. The code is in the body of the
    # loop, because a block would cost a call each time. You can use the index as `i`, and the
    # values of `needed` by their names. `before` runs once before the loop.
    def loop_of(code, before: "", **needed)
      names = needed.keys.join(", ")
      # Like in most Ruby files, string literals are frozen.
      body = "# frozen_string_literal: true\n" \
             "lambda { |n, #{names}| #{before}; i = 0; while i < n; #{code}; i += 1; end }"
      work = eval(body, TOPLEVEL_BINDING.dup, "(measured)") # rubocop:disable Security/Eval
      values = needed.values
      ->(n) { work.call(n, *values) }
    end

    # Times a calibrated loop of the code, in nanoseconds per iteration.
    def code(name, subject, code, before: "", **needed)
      work(name, subject, loop_of(code, before: before, **needed))
    end

    # Times `work`, which does the given number of operations, a multiple of `of`.
    def work(name, subject, work, of: 1)
      n = [calibrate(work, of), of].max / of * of
      GC.start
      record(name, subject, nanoseconds(work, n) / n)
    end

    # Times threads that run at the same time, each with its own loop: the elapsed time divided by
    # the operations of all.
    def threads(name, subject, works)
      n = calibrate(works.first)
      n = [n / works.size, 1].max
      GC.start
      gate = Queue.new
      threads = works.map { |work| Thread.new { gate.pop; work.call(n) } }
      start = now
      works.size.times { gate << true }
      threads.each(&:join)
      record(name, subject, (now - start) * 1e9 / (n * works.size), threads: works.size)
    end

    # Times forked workers that each run a loop until the time is over: the elapsed time divided by
    # the operations of all. Returns the number of operations.
    def workers(name, subject, count, batch: 500)
      ready, go = Array.new(2) { IO.pipe }
      seconds = run_time * 2
      pids = Array.new(count) do
        done_reader, done_writer = IO.pipe
        pid = fork do
          work = yield
          work.call(batch)
          counted = batch
          ready[1].write("r")
          go[0].read(1)
          start = now
          while now - start < seconds
            work.call(batch)
            counted += batch
          end
          timed = counted - batch
          done_writer.write([timed, counted, start, now].pack("QQDD"))
          done_writer.close
          $stdout.reopen(File::NULL)
          exit!(0)
        end
        done_writer.close
        [pid, done_reader]
      end
      ready[0].read(count)
      go[1].write("g" * count)
      done = pids.map do |pid, reader|
        Process.wait(pid)
        reader.read.unpack("QQDD")
      end
      elapsed = done.map(&:last).max - done.map { |d| d[2] }.min
      record(name, subject, elapsed * 1e9 / done.sum(&:first), threads: count)
      done.sum { |d| d[1] }
    end

    # Times `runs` scrapes, after one that is not timed unless `runs` is 1. Returns the exposition.
    def scrape(name, subject, runs:)
      text = yield if runs > 1
      values = Array.new(runs) do
        GC.start
        start = now
        text = yield
        (now - start) * 1e3
      end
      record(name, subject, values, unit: "ms")
      text
    end

    private

    # The number of operations that take the time of a run. This also warms up the code.
    def calibrate(work, of = 1)
      n = of
      n *= 4 while nanoseconds(work, n) / 1e9 < run_time / 4
      elapsed = nanoseconds(work, n) / 1e9
      [(n * run_time / elapsed).to_i, 1].max
    end

    def nanoseconds(work, n)
      start = now
      work.call(n)
      (now - start) * 1e9
    end
  end
end
