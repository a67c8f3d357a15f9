# What a contender says of itself, and how its metrics are called.
#
# The codes are the bodies of measured loops: `c` is a counter, `h` a histogram, `b` one that is
# bound to its labels, `l` the labels of a point, `v` its value.

class Contender
  # The options that the program was started with: `tmpfs`, `disk`, `redis`.
  def initialize(options)
    @options = options
  end

  # Where it can keep its metrics: memory, tmpfs, disk, server.
  def places
    %w[tmpfs disk]
  end

  # Begins anew in a folder, which is nil for memory and for a server.
  def open(folder); end

  # Whether all workers' counts are in what it exposes.
  def shared?
    true
  end

  # A counter or a histogram whose labels are all known is called without them.
  def binds?
    false
  end

  # Whether it can count by several workers, and be scraped.
  def exposes?
    shared?
  end

  # How often the scrape after many dead workers runs.
  def scrapes
    5
  end

  def increment
    "c.increment"
  end

  # Of two labels, written out.
  def increment_two
    'c.increment(labels: {code: 200, path: "/x"})'
  end

  # Of two labels, of which one is a variable.
  def increment_path(path)
    "c.increment(labels: {code: code, path: #{path}})"
  end

  def increment_four
    'c.increment(labels: {code: 200, path: "/x", method: "GET", host: "a"})'
  end

  def observe_two
    'h.observe(0.3, labels: {code: 200, path: "/x"})'
  end

  def increment_bound
    "b.increment"
  end

  def observe_bound
    "b.observe(0.3)"
  end

  # What is called of a point with preset labels.
  def increment_point
    "m.increment"
  end

  def observe_point
    "m.observe(v)"
  end
end
