# frozen_string_literal: true

require "helper"
require "net/http"
require "socket"

# A real pre-fork server, whose workers are killed.
class PumaTest < Minitest::Test
  WORKERS = 3
  # Seconds to wait before giving up, on a busy machine.
  PATIENCE = 120

  def setup
    @dir = Dir.mktmpdir
    File.write(File.join(@dir, "config.ru"), <<~'RUBY')
      require "quipu"
      Quipu.registry.record(interval: 0.005) if ENV["RECORD"]
      use Quipu::Middleware::Exporter
      hits = Quipu::Counter.new(:hits, docstring: "Hits.", labels: [:path])
      alive = Quipu::Gauge.new(:alive, docstring: "Workers.", store_settings: { aggregation: :livesum })
      run(lambda do |env|
        hits.increment(labels: { path: env["PATH_INFO"] })
        alive.set(1)
        [200, { "content-type" => "text/plain" }, [Process.pid.to_s]]
      end)
    RUBY
  end

  def teardown
    stop
    FileUtils.rm_rf(@dir)
  end

  def test_workers_share_memory_that_was_made_before_they_were
    start(<<~RUBY)
      require "quipu"
      preload_app!
    RUBY
    exercise
  end

  def test_workers_that_load_the_application_themselves
    start('require "quipu"')
    exercise
  end

  def test_workers_share_a_file
    start("", "QUIPU_DIR" => File.join(@dir, "metrics"))
    exercise
    restart = samples_of(scrape)
    stop
    start("", "QUIPU_DIR" => File.join(@dir, "metrics"))
    assert_equal restart["hits_total{path=\"/x\"}"], samples_of(scrape)["hits_total{path=\"/x\"}"]
  end

  # Each worker that writes is killed.
  def test_workers_record
    directory = File.join(@dir, "metrics")
    start("", "QUIPU_DIR" => directory, "RECORD" => "yes")
    exercise
    count = samples_of(scrape)['hits_total{path="/x"}']
    hits = -> { history_of(File.join(directory, "metrics.quipu"))["series"]['hits_total{path="/x"}'] }
    wait_until { hits.call.last == count }
    found = hits.call.compact
    assert_equal found.sort, found
    assert_operator found.first, :<, count
    stop
    assert_nil history_of(File.join(directory, "metrics.quipu"))["writer"]
  end

  private

  def start(config, environment = {})
    # Puma inherits the socket, because another process could take a free port first.
    listener = TCPServer.new("127.0.0.1", 0)
    @port = listener.addr[1]
    path = File.join(@dir, "puma.rb")
    File.write(path, <<~RUBY)
      workers #{WORKERS}
      threads 2, 2
      bind "tcp://127.0.0.1:#{@port}"
      worker_check_interval 1
      #{config}
    RUBY
    environment = { "RUBYLIB" => $LOAD_PATH.join(":"), "RUBYOPT" => nil,
                    "PUMA_INHERIT_0" => "#{listener.fileno}:tcp://127.0.0.1:#{@port}" }.merge(environment)
    log = File.join(@dir, "log")
    @server = spawn(environment, "puma", "-C", path, "config.ru",
                    chdir: @dir, out: log, err: log, listener => listener)
    listener.close
    wait_until { workers.size == WORKERS }
  end

  def stop
    return unless @server

    server = @server
    @server = nil
    Process.kill(:TERM, server)
    ended = false
    wait_until { ended = Process.wait(server, Process::WNOHANG) }
  ensure
    if server && !ended
      Process.kill(:KILL, server)
      Process.wait(server)
    end
  end

  # Counts in all workers, kills each of them, and counts in those that replace them.
  def exercise
    sent = 0
    2.times do
      old = workers
      20.times { sent += 1 if get("/x") }
      old.each do |pid|
        Process.kill(:KILL, pid)
        # Scrape at once, because each scrape must show all counts, whether or not there is a new
        # worker.
        assert_equal sent.to_f, samples_of(scrape)['hits_total{path="/x"}']
      end
      wait_until { (workers - old).size == WORKERS }
    end
    10.times do
      found = samples_of(scrape)
      assert_equal sent.to_f, found['hits_total{path="/x"}']
      assert_operator found["alive"] || 0, :<=, WORKERS
    end
  end

  # The processes that currently serve requests.
  def workers
    found = 40.times.map { get("/who") }
    found.compact.map(&:to_i).uniq
  end

  def get(path)
    http = Net::HTTP.new("127.0.0.1", @port)
    http.open_timeout = http.read_timeout = PATIENCE
    # No retry, because a retried request would be counted twice.
    http.max_retries = 0
    http.start { |connection| connection.get(path).body }
  rescue SystemCallError, EOFError, Net::ReadTimeout, Net::OpenTimeout
    nil
  end

  def scrape
    body = nil
    wait_until { body = get("/metrics") }
    body
  end

  def samples_of(text)
    text.lines.grep_v(/^#/).to_h { |line| line.split(/ (?=\S+$)/).then { |name, n| [name, n.to_f] } }
  end

  def wait_until
    limit = Process.clock_gettime(Process::CLOCK_MONOTONIC) + PATIENCE
    until Process.clock_gettime(Process::CLOCK_MONOTONIC) > limit
      return if yield

      sleep 0.1
    end
    flunk "timed out; the server's log: #{File.read(File.join(@dir, "log"))}"
  end
end
