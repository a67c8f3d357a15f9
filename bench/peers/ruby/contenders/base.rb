# The base class of contenders: their properties, and the code that calls their metrics. If you add
# a contender, override the methods that differ.
#
# The pieces of code are the bodies of measured loops: `c` is a counter, `h` a histogram, `b` a
# metric that is bound to its labels. A point is an update of a random metric: `m` is this metric,
# `l` its labels, `v` the value.

class Contender
  # The options of the program: `tmpfs`, `disk`, `redis`.
  def initialize(options)
    @options = options
  end

  # The places where this contender can keep its metrics: memory, tmpfs, disk, server.
  def places
    %w[tmpfs disk]
  end

  # Starts empty in a folder, which is nil for memory and for a server.
  def open(folder); end

  # Whether its exposition includes the counts of all workers.
  def shared?
    true
  end

  # Whether you can bind a counter or a histogram to its labels, to call it without them.
  def binds?
    false
  end

  # Whether several workers can count in this contender, and it can be scraped.
  def exposes?
    shared?
  end

  # The number of scrapes that are measured after the death of many workers.
  def scrapes
    5
  end

  def increment
    "c.increment"
  end

  # An increment with two literal labels.
  def increment_two
    'c.increment(labels: {code: 200, path: "/x"})'
  end

  # An increment with two labels; one of them is a variable.
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

  # The call for a point. This metric can have preset labels.
  def increment_point
    "m.increment"
  end

  def observe_point
    "m.observe(v)"
  end
end
