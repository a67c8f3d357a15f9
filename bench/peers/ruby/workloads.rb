# The workloads. Each method takes one turn of one contender.

module Workloads
  LABELS_TWO = %i[code path].freeze
  LABELS_FOUR = %i[code path method host].freeze
  SERIES = 1000
  METRICS = 2000

  module_function

  # The calls of an application: counters and histograms, with labels and without.
  def increments(contender, options)
    contender.open(options.folder(contender.places.first))
    subject = contender.subject
    time = ->(name, code, **needed) { Measure.code("ruby #{name}", subject, code, **needed) }

    time.call("increment/no labels", contender.increment, c: contender.counter("plain", []))
    two = contender.counter("two", LABELS_TWO)
    time.call("increment/2 labels", contender.increment_two, c: two)
    many = contender.counter("many", LABELS_TWO)
    paths = Array.new(SERIES) { |number| "/path/#{number}" }
    time.call("increment/2 labels among 1,000", contender.increment_path("paths[i % 1000]"),
              before: "code = 200", c: many, paths: paths)
    four = contender.counter("four", LABELS_FOUR)
    time.call("increment/4 labels", contender.increment_four, c: four)
    if contender.respond_to?(:histogram)
      seen = contender.histogram("seen", LABELS_TWO)
      time.call("observe/2 labels", contender.observe_two, h: seen)
    end
    return unless contender.binds?

    labels = {code: 200, path: "/x"}
    time.call("increment/bound", contender.increment_bound, b: contender.bound(two, labels))
    time.call("observe/bound", contender.observe_bound, b: contender.bound(seen, labels))
  end

  # The main one of the original benchmarks: a hundred metrics, a random one each time. "Simple" are
  # counters without labels; "realistic" are 80 counters and 20 histograms with 0 to 4 labels.
  def stores(contender, options)
    contender.places.each do |place|
      [["simple", 100, 0], ["realistic", 80, 4]].each do |scenario, counters, most_labels|
        contender.open(options.folder(place))
        points = points(contender, counters, most_labels)
        code = "k, m, l, v = points[i % 10000]; " \
               "if k then #{contender.increment_point} else #{contender.observe_point} end"
        Measure.code("ruby stores, #{scenario}/#{place}", contender.subject, code, points: points)
      end
    end
  end

  def points(contender, counters, most_labels)
    random = Random.new(12_345_678)
    metrics = Array.new(100) do |number|
      names = Array.new(random.rand(most_labels + 1)) { |label| :"label#{label + 1}" }
      labels = names.to_h { |name| [name, "foo"] }
      counter = number < counters
      metric = if counter
                 contender.counter("counter#{number}", names)
               else
                 contender.histogram("histogram#{number}", names)
               end
      metric = contender.bound(metric, labels) if contender.binds? && !labels.empty?
      [counter, metric, labels]
    end
    Array.new(10_000) { [*metrics[random.rand(100)], random.rand * 10] }
  end

  # Threads that count in the same series with two labels.
  def threads(contender, options)
    contender.open(options.folder(contender.places.first))
    counter = contender.counter("threads", LABELS_TWO)
    Measure::TOGETHER.each do |count|
      works = Array.new(count) { Measure.loop_of(contender.increment_two, c: counter) }
      Measure.threads("ruby threads/increment", contender.subject, works)
    end
    pool(contender.subject, options) if contender.is_a?(Redises)
  end

  def pool(subject, options)
    require "connection_pool"
    pool = ConnectionPool.new(size: 4) { Redis.new(path: options.redis) }
    counter = Plain::PooledRedisHash.new(pool, "pooled")
    Measure::TOGETHER.each do |count|
      code = 'c.increment({code: 200, path: "/x"})'
      works = Array.new(count) { Measure.loop_of(code, c: counter) }
      Measure.threads("ruby threads/increment", "#{subject}, a pool", works)
    end
  end

  # Forked workers that count in the same series with two labels. A scrape must show all counts.
  def workers(contender, options)
    Measure::TOGETHER.each do |count|
      contender.open(options.folder("tmpfs"))
      counter = contender.counter("workers", LABELS_TWO)
      sum = Measure.workers("ruby workers/increment", contender.subject, count) do
        Measure.loop_of(contender.increment_two, c: counter)
      end
      exposed = value_of(contender.expose, "workers")
      raise "#{contender.subject} has #{exposed} of #{sum} increments" unless exposed == sum
    end
  end

  # The sum of all series of a counter in a scrape.
  def value_of(text, name)
    text.each_line.grep(/\A#{name}(_total)?[{ ]/).sum { |line| line.split.last.to_f }
  end

  # A scrape of 1,000 series: with 8 live workers, and after the death of 50 and of 500.
  def scrape(contender, options)
    runs = Measure.some(contender.scrapes, 1)
    [["8 live workers", 8, true], ["50 dead workers", 50, false],
     ["500 dead workers", Measure.some(500, 60), false]].each do |name, count, live|
      folder = options.folder("tmpfs")
      contender.open(folder)
      counter = contender.counter("scraped", LABELS_TWO)
      work = Measure.loop_of(contender.increment_path("paths[i]"), before: "code = 200",
                             c: counter, paths: Array.new(SERIES) { |n| "/path/#{n}" })
      with_workers(count, live, work) do
        text = Measure.scrape("scrape/#{name}", in_ruby(contender), runs: runs) do
          contender.expose
        end
        raise "a scrape lacks counts" unless value_of(text, "scraped") == count * SERIES
      end
      sizes("scrape/#{name}", in_ruby(contender), folder) unless live
    end
  end

  # An application with many metrics: each is created and counts once; then all are scraped.
  def metrics(contender, options)
    most = Measure.some(METRICS, 100)
    contender.open(options.folder("tmpfs"))
    made = []
    count = Measure.loop_of("c = made[i]; #{contender.increment_two}", made: made)
    start = Measure.now
    most.times { |number| made << contender.counter("metric#{number}", LABELS_TWO) }
    count.call(most)
    time = (Measure.now - start) * 1e3
    Measure.record("metrics/creation", in_ruby(contender), time, unit: "ms")
    text = Measure.scrape("metrics/scrape", in_ruby(contender), runs: 1) { contender.expose }
    lines = text.each_line.grep(/\Ametric\d+(_total)?{/)
    raise "a scrape has #{lines.size} of #{most} metrics" unless lines.size == most
  end

  # Returns the subject, for cases that other languages share.
  def in_ruby(contender)
    contender.subject == "quipu" ? "quipu (Ruby)" : contender.subject
  end

  # Calls the block after `count` forked workers finished their work. If `live`, they stay alive
  # until this block returns; otherwise they exit one after the other.
  def with_workers(count, live, work)
    leave = IO.pipe
    pids = Array.new(count) do
      done = IO.pipe
      pid = fork do
        leave[1].close
        work.call(SERIES)
        done[1].write("d")
        leave[0].read if live
        $stdout.reopen(File::NULL)
        exit!(0)
      end
      done[1].close
      done[0].read(1)
      done[0].close
      Process.wait(pid) unless live
      pid
    end
    yield
  ensure
    leave.last.close
    pids.each { |pid| Process.wait(pid) } if live
  end

  # The growth of files while workers start and end, one at a time: each counts 100 series.
  def respawns(contender, options)
    last = Measure.some(200, 20)
    [false, true].each do |numbered|
      next if numbered && !contender.respond_to?(:numbered)

      folder = options.folder("tmpfs")
      contender.open(folder)
      counter = contender.counter("respawned", LABELS_TWO)
      work = Measure.loop_of(contender.increment_path("paths[i % 100]"), before: "code = 200",
                             c: counter, paths: Array.new(100) { |n| "/path/#{n}" })
      subject = in_ruby(contender) + (numbered ? ", numbered workers" : "")
      1.upto(last) do |worker|
        pid = fork do
          contender.numbered(0) if numbered
          work.call(100)
          $stdout.reopen(File::NULL)
          exit!(0)
        end
        Process.wait(pid)
        sizes("disk/#{worker} respawns", subject, folder) if [last / 2, last].include?(worker)
      end
    end
  end

  # Records the disk usage of the files in a folder, and their number.
  def sizes(name, subject, folder)
    stats = Dir.children(folder).map { |file| File.stat(File.join(folder, file)) }
    bytes = stats.sum { |stat| stat.blocks * 512 }
    Measure.record(name, subject, bytes, metric: "bytes", unit: "B")
    Measure.record(name, subject, stats.size, metric: "files", unit: "files")
  end
end
