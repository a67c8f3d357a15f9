# The contenders made from Ruby's own libraries, and one that shows the cost of the loop.

require_relative "base"
require_relative "plain"

# Counts no events, because this contender shows the cost of the loops.
class Nothing < Contender
  def self.key = "nothing"

  def subject = "the loop alone"

  def places = %w[memory]

  def shared? = false

  def counter(_name, _labels) = self

  def histogram(_name, _labels) = self

  def increment = ""

  def increment_two = 'x = {code: 200, path: "/x"}'

  def increment_path(path) = "x = {code: code, path: #{path}}"

  def increment_four = 'x = {code: 200, path: "/x", method: "GET", host: "a"}'

  def observe_two = increment_two

  def increment_point = ""

  def observe_point = ""
end

# The Hash of labels is the key, unchanged.
class Hashes < Contender
  def self.key = "hash"

  def subject = "Hash with Mutex"

  def places = %w[memory]

  def shared? = false

  def counter(_name, _labels) = Plain::HashWithMutex.new

  def histogram(_name, _labels) = Plain::HashWithMutex.new

  def increment_two = 'c.increment({code: 200, path: "/x"})'

  def increment_path(path) = "c.increment({code: code, path: #{path}})"

  def increment_four = 'c.increment({code: 200, path: "/x", method: "GET", host: "a"})'

  def observe_two = 'h.observe({code: 200, path: "/x"}, 0.3)'

  def increment_point = "m.increment(l)"

  def observe_point = "m.observe(l, v)"
end

class PStores < Hashes
  def self.key = "pstore"

  def subject = "PStore"

  def places = %w[tmpfs disk]

  def open(folder)
    @folder = folder
  end

  def counter(name, _labels) = Plain::PStoreFile.new(@folder, name)

  def histogram(name, _labels) = Plain::PStoreFile.new(@folder, name)
end

class Redises < Hashes
  def self.key = "redis"

  def subject = "Redis"

  def places = %w[server]

  def open(_folder)
    require "redis"
    @redis = Redis.new(path: @options.redis)
    @redis.flushall
  end

  def counter(name, _labels) = Plain::RedisHash.new(@redis, name)

  def histogram(name, _labels) = Plain::RedisHash.new(@redis, name)
end
