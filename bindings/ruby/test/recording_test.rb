# frozen_string_literal: true

require "helper"
require "open3"

# The flight recorder: of processes that are killed, forked and ended; and its errors.
class RecordingTest < Minitest::Test
  # Seconds to wait before giving up, on a busy machine.
  PATIENCE = 120

  def setup
    @dir = Dir.mktmpdir
    @recordings = []
  end

  def teardown
    @recordings.each(&:close)
    FileUtils.rm_rf(@dir)
  end

  def test_what_led_to_a_kill_is_there
    reader, writer = IO.pipe
    process = spawn("ruby", *$LOAD_PATH.flat_map { |path| ["-I", path.to_s] }, "-rquipu", "-e", <<~'RUBY', @dir, out: writer)
      Quipu.configure(dir: ARGV[0], record: { interval: 0.01 })
      counter = Quipu.registry.counter(:c, docstring: "C.", labels: [:a])
      histogram = Quipu.registry.histogram(:h, docstring: "H.")
      $stdout.syswrite("ready\n")
      loop do
        counter.increment(labels: { a: "x" })
        histogram.observe(0.3)
      end
    RUBY
    writer.close
    assert_equal "ready\n", reader.gets
    total = -> { history["series"].fetch('c_total{a="x"}', []).last }
    first = eventually { total.call }
    second = eventually { total.call.then { |now| now if now > first } }
    assert history["writer"]["alive"]
    Process.kill(:KILL, process)
    Process.wait(process)
    shown = history
    refute shown["writer"]["alive"]
    totals = shown["series"]['c_total{a="x"}'].compact
    assert_equal totals.sort, totals
    assert_includes totals, first
    assert_operator totals.last, :>=, second
    assert_operator shown["series"]["h_count"].last, :>=, first - 1
    assert_equal 0.01, shown["interval"]
  end

  def test_children_record_and_one_takes_over_from_another
    registry = Quipu::Registry.new(dir: @dir)
    counter = registry.counter(:c, docstring: "C.", labels: [:a])
    recording = record(registry, interval: 0.005)
    eventually { recording.writing? }
    reader, writer = IO.pipe
    ready, counted = IO.pipe
    children = Array.new(3) do |n|
      fork_child do
        counter.increment(labels: { a: n })
        counted.syswrite("x")
        eventually(600) { recording.writing? }
        writer.syswrite(format("%9d", Process.pid))
        sleep 600
      end
    end
    assert_equal "xxx", ready.read(3)
    eventually { recorders == 1 && recording.writing? }
    recording.close
    until children.empty?
      pid = reader.read(9).to_i
      assert children.delete(pid), pid
      Process.kill(:KILL, pid)
      Process.wait(pid)
    end
    # A closed recording stays closed, even for children.
    in_child do
      sleep 0.05
      raise "it records" if recorders.positive? || recording.writing?
    end
    shown = history
    refute shown["writer"]["alive"]
    assert_equal 1, shown["series"]['c_total{a="2"}'].last
  end

  def test_all_ways_to_fork
    recording = record(fresh, interval: 0.001)
    eventually { recording.writing? }
    counter = fresh.counter(:c, docstring: "C.")
    goes_on = lambda do
      eventually { recorders == 1 }
      counter.increment
      exit!(0)
    end
    ways = {
      "Kernel#fork" => -> { fork { goes_on.call } },
      "Process.fork" => -> { Process.fork || goes_on.call },
      "IO.popen" => -> { IO.popen("-").then { |pipe| pipe ? pipe.pid : goes_on.call } },
      "Process.daemon" => lambda do
        fork do
          reader, writer = IO.pipe
          if fork
            writer.close
            exit!(reader.read == "goes on" ? 0 : 1)
          end
          Process.daemon(true, true)
          eventually { recorders == 1 }
          writer.syswrite("goes on")
          exit!(0)
        end
      end
    }
    ways.each do |name, way|
      _, status = Process.wait2(way.call)
      assert_predicate status, :success?, name
    end
    assert_equal 3.0, counter.get
  end

  def test_a_fork_while_it_ticks_does_not_hang
    [{}, { dir: @dir }].each do |place|
      registry = Quipu::Registry.new(**place)
      counter = registry.counter(:c, docstring: "C.", labels: [:a])
      recording = record(registry, interval: 0.001)
      100.times do |n|
        counter.increment(labels: { a: n })
        in_child do
          eventually { recorders.positive? }
          counter.increment(labels: { a: "child" })
          recording.close
        end
      end
      eventually { recording.writing? }
      assert_equal 100.0, counter.get(labels: { a: "child" })
      recording.close
    end
  end

  def test_closing
    registry = Quipu::Registry.new(dir: @dir)
    registry.counter(:c, docstring: "C.").increment
    recording = registry.record(interval: 0.005) do |own|
      eventually { own.writing? && recorders == 1 }
      own
    end
    refute_predicate recording, :writing?
    2.times { recording.close }
    eventually { recorders.zero? }
    assert_nil history["writer"]
    assert_raises(RuntimeError) { registry.record { raise "ends" } }
    eventually { recorders.zero? }
  end

  def test_a_history_in_memory_is_read_while_a_process_lives
    registry = fresh
    registry.counter(:c, docstring: "C.").increment(by: 7)
    recording = record(registry, interval: 0.005)
    eventually { recording.writing? }
    files = Dir["/proc/self/fd/*"].select do |path|
      File.readlink(path).start_with?("/memfd:quipu")
    rescue SystemCallError
      false
    end
    values = files.map { |path| history_of(path.sub("self", Process.pid.to_s))&.dig("series", "c_total") }
    assert_equal [7], values.compact.flatten.compact.uniq
  end

  def test_the_end_of_a_process_ends_it
    ["", "exit(3)", "exit!(4)", "raise 'ends'", "Thread.new { registry.record }"].each do |code|
      out, err, status = run_ruby(<<~RUBY)
        registry = Quipu::Registry.new(dir: ARGV[0], record: { interval: 3600 })
        registry.counter(:c, docstring: "C.").increment
        $stdout.syswrite(registry.recording.class.name)
        #{code}
      RUBY
      assert_equal "Quipu::Recording", out, err
      refute_match(/quipu/i, err)
      refute_predicate status, :signaled?, code
    end
  end

  def test_the_setting_of_the_default_registry_and_of_stores
    out, err, = run_ruby(<<~'RUBY')
      Quipu.configure(dir: File.join(ARGV[0], "first"), record: true)
      first = Quipu.registry.recording
      Quipu.configure(dir: ARGV[0], record: { interval: 0.005, families: [:c] })
      sleep 0.001 until Quipu.registry.recording.writing?
      raise "the first goes on" if first.writing?

      Quipu.registry.counter(:c, docstring: "C.").increment
      Quipu.registry.counter(:other, docstring: "O.").increment
      store = Quipu::DataStore.new(dir: ARGV[0], record: true)
      store.for_metric(:stored, metric_type: :counter).increment(labels: { a: "x" })
      sleep 0.001 until store.recording.writing?
      sleep 0.1
      p Quipu::Registry.new.recording
    RUBY
    assert_equal ["nil\n", ""], [out, err]
    assert_equal [1], history["series"].fetch("c_total").compact.uniq
    refute_includes history["series"], "other_total"
    assert_equal 1, history("data_store.quipu")["interval"]
  end

  def test_options_that_cannot_be_meant_are_refused
    {
      { interval: 0 } => /an interval of 0ns .* use 1 ms to an hour/,
      { interval: 7200 } => /an interval of 7200s .* use 1 ms to an hour/,
      { interval: -1 } => /an interval of -1 seconds .* use 0.001 to 3600/,
      { interval: Float::NAN } => /an interval of NaN seconds .* use 0.001 to 3600/,
      { bytes: 100 } => /100 bytes .* use 16384 to 67108864/,
      { bytes: 2**80 } => /bytes .* use 16384 to 67108864/,
      { bytes: -1 } => /bytes -1 is out of range: use a positive number/,
      { series: 0 } => /0 series .* use 1 to 16384/
    }.each do |options, message|
      refused(Quipu::RecordingError, message, options)
    end
    refused(TypeError, /can't convert String into Float|no implicit conversion/, interval: "1")
    refused(TypeError, /bytes 1.5 is not an Integer/, bytes: 1.5)
    refused(ArgumentError, /unknown keyword: :speed/, speed: 1)
    error = assert_raises(ArgumentError) { Quipu::Registry.new(record: 5) }
    assert_match(/record: 5 is not understood: use true, or a Hash/, error.message)
    assert_operator Quipu::RecordingError, :<, Quipu::StoreError
  end

  def test_a_segment_without_room
    what = "record with fewer bytes, or create it with a higher limit"
    registry = nil
    _, err = capture_io { registry = Quipu::Registry.new(dir: @dir, limit: 1 << 20, record: true) }
    assert_match(/\Aquipu: .*#{what}; nothing is recorded\n\z/, err)
    assert_nil registry.recording
    error = assert_raises(Quipu::RecordingError) { registry.record }
    assert_includes error.message, what
    counter = registry.counter(:c, docstring: "C.")
    counter.increment
    recording = record(registry, interval: 0.001, bytes: 64 << 10)
    eventually { recording.writing? }
    assert_equal 1.0, counter.get
  end

  private

  def record(registry, **options)
    registry.record(**options).tap { |recording| @recordings << recording }
  end

  def refused(error, message, options)
    registry = fresh
    raised = assert_raises(error, options.inspect) { registry.record(**options) }
    assert_match message, raised.message
    assert_raises(error, options.inspect) { Quipu::Registry.new(record: options) }
  end

  # The threads of this process that record.
  def recorders
    Dir["/proc/self/task/*/comm"].count do |path|
      File.read(path) == "quipu recorder\n"
    rescue SystemCallError
      false
    end
  end

  def history(name = "metrics.quipu")
    history_of(File.join(@dir, name))
  end

  def run_ruby(code)
    command = ["ruby", "-W2", *$LOAD_PATH.flat_map { |path| ["-I", path.to_s] }, "-rquipu", "-e", code]
    Open3.capture3(*command, @dir)
  end

  # Returns the result of the block once it is true.
  def eventually(patience = PATIENCE)
    limit = Process.clock_gettime(Process::CLOCK_MONOTONIC) + patience
    until Process.clock_gettime(Process::CLOCK_MONOTONIC) > limit
      found = yield
      return found if found

      sleep 0.002
    end
    raise "timed out"
  end
end
