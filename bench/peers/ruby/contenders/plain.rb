# Stores made from Ruby's own libraries and the Redis client: a Hash with a Mutex, a PStore, and a
# Redis server.
#
# Each is a store of one metric, like the stores of prometheus-client: a counter is one key, and an
# observation of a histogram adds to two keys, for its bucket and for its sum.

require "cgi"
require "pstore"

module Plain
  BUCKETS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10].freeze

  module Observes
    def observe(labels, value)
      bucket = BUCKETS.bsearch { |bound| bound >= value } || "+Inf"
      increment(labels.merge(le: bucket.to_s))
      increment(labels.merge(le: "sum"), value)
    end
  end

  # One process only, because this Hash is not shared.
  class HashWithMutex
    include Observes

    def initialize
      @values = Hash.new(0.0)
      @mutex = Mutex.new
    end

    def increment(labels = {}, by = 1)
      @mutex.synchronize { @values[labels] += by }
    end
  end

  # A file for each metric, process and thread, because each transaction rewrites the whole file.
  class PStoreFile
    include Observes

    def initialize(folder, name)
      @folder = folder
      @name = name
    end

    def increment(labels = {}, by = 1)
      store = own_file
      store.transaction { store[labels] = (store[labels] || 0.0) + by }
    end

    private

    def own_file
      files = (Thread.current[:pstore_files] ||= {})
      key = [@name, Process.pid]
      files[key] ||= begin
        path = File.join(@folder, "#{@name}-#{Process.pid}-#{Thread.current.object_id}.pstore")
        # Otherwise counting would continue in a stale file of a process with the same IDs.
        File.unlink(path) if File.exist?(path)
        PStore.new(path)
      end
    end
  end

  # A hash in the server for each metric; one round trip per increment.
  class RedisHash
    include Observes

    def initialize(redis, name)
      @redis = redis
      @name = name
    end

    def increment(labels = {}, by = 1)
      @redis.hincrbyfloat(@name, RedisHash.field(labels), by)
    end

    def observe(labels, value)
      bucket = BUCKETS.bsearch { |bound| bound >= value } || "+Inf"
      @redis.pipelined do |pipeline|
        pipeline.hincrbyfloat(@name, RedisHash.field(labels.merge(le: bucket.to_s)), 1)
        pipeline.hincrbyfloat(@name, RedisHash.field(labels.merge(le: "sum")), value)
      end
    end

    def self.field(labels)
      labels.map { |name, value| "#{name}=#{CGI.escape(value.to_s)}" }.join("&")
    end
  end

  # Redis with a pool of connections, one for each concurrent thread.
  class PooledRedisHash
    def initialize(pool, name)
      @pool = pool
      @name = name
    end

    def increment(labels = {}, by = 1)
      @pool.with { |redis| redis.hincrbyfloat(@name, RedisHash.field(labels), by) }
    end
  end
end
