# The original small benchmarks: a Hash, a key as a string, a file lock, and a round trip to Redis.

require "cgi"
require "json"
require "yaml"

module Raw
  LABELS = {code: "200", path: "/some/path", method: "GET"}.freeze
  SUBJECT = "Ruby #{RUBY_VERSION}".freeze

  module_function

  def raw_hash(_options)
    time = ->(name, code, **needed) { Measure.code("raw hash/#{name}", SUBJECT, code, **needed) }
    values = Hash.new(0)
    mutex = Mutex.new
    keys = Array.new(1000) { |number| "key#{number}" }
    many = {table: Hash.new(0), mutex: mutex, keys: keys}
    time.call("the loop alone", "")
    time.call("constant key", 'table["key"] += 1', table: values)
    time.call("constant key, with Mutex", 'mutex.synchronize { table["key"] += 1 }',
              table: values, mutex: mutex)
    time.call("1,000 keys", "table[keys[i % 1000]] += 1", **many)
    time.call("1,000 keys, with Mutex", "mutex.synchronize { table[keys[i % 1000]] += 1 }", **many)
    arrays = {table: Hash.new(0), mutex: mutex}
    array = '["200", "/some/path", "GET"]'
    time.call("Array keys", "table[#{array}] += 1", **arrays)
    time.call("Array keys, with Mutex", "mutex.synchronize { table[#{array}] += 1 }", **arrays)
    hashes = {table: Hash.new(0), mutex: mutex}
    hash = '{code: "200", path: "/some/path", method: "GET"}'
    time.call("Hash keys", "table[#{hash}] += 1", **hashes)
    time.call("Hash keys, with Mutex", "mutex.synchronize { table[#{hash}] += 1 }", **hashes)
    hash = '{code: "200", path: keys[i % 1000], method: "GET"}'
    time.call("Hash keys, 1,000, with Mutex", "mutex.synchronize { table[#{hash}] += 1 }", **many)
  end

  def keys(_options)
    {
      "to_json" => "l.to_json",
      "query string" => 'l.map { |k, v| "#{k}=#{v}" }.join("&")',
      "query string, escaped" => 'l.map { |k, v| "#{k}=#{CGI.escape(v)}" }.join("&")',
      "joined" => 'l.to_a.flatten.join("-|-")',
      "values joined" => 'l.values.join("-|-")',
      "Marshal" => "Marshal.dump(l)",
      "YAML" => "l.to_yaml",
      "to_s" => "l.to_s"
    }.each { |name, code| Measure.code("key/#{name}", SUBJECT, code, l: LABELS) }
  end

  def system_calls(options)
    %w[tmpfs disk].each do |place|
      file = File.open(File.join(options.folder(place), "lock"), "w")
      Measure.code("system call/flock and unlock, #{place}", SUBJECT,
                   "f.flock(File::LOCK_EX); f.flock(File::LOCK_UN)", f: file)
    end
    Measure.code("system call/getpid", SUBJECT, "Process.pid")
  end

  def redis(options)
    require "redis"
    {"TCP" => {port: options.redis_port}, "Unix socket" => {path: options.redis}}.each do |way, to|
      redis = Redis.new(**to)
      redis.flushall
      subject = "Ruby redis #{Redis::VERSION}, #{way}"
      Measure.code("redis/round trip", subject, 'r.hincrbyfloat("h", "a=1&b=2", 1)', r: redis)
      [100, 1000].each do |size|
        piped = 'r.pipelined { |p| size.times { p.hincrbyfloat("h", "a=1&b=2", 1) } }'
        pipelines(redis, piped, size, subject)
      end
    end
  end

  # A pipeline of `size` increments is one iteration of the loop.
  def pipelines(redis, code, size, subject)
    work = Measure.loop_of(code, r: redis, size: size)
    batch = ->(n) { work.call([n / size, 1].max) }
    Measure.work("redis/pipeline of #{size}", subject, batch, of: size)
  end
end
