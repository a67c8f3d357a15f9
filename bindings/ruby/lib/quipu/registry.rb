# frozen_string_literal: true

module Quipu
  # The metrics of a program, and where they lie.
  class Registry
    # The name of the file in a directory.
    FILE = "metrics.quipu"

    # Metrics in a file when `dir` or `path` is given; in memory that the children of later forks
    # share, when none is. `limit` is the bytes to which the segment may grow.
    #
    # A directory that cannot be written is warned of, and memory serves instead.
    def initialize(dir: nil, path: nil, limit: nil)
      path ||= File.join(dir, FILE) if dir
      @segment = Segment.at(path&.to_s, limit: limit).view
      @metrics = {}
      @lock = Monitor.new
    end

    def counter(name, **options)
      Counter.new(name, **options, registry: self)
    end

    def gauge(name, **options)
      Gauge.new(name, **options, registry: self)
    end

    def histogram(name, **options)
      Histogram.new(name, **options, registry: self)
    end

    def summary(name, **options)
      Summary.new(name, **options, registry: self)
    end

    def info(name, **options)
      Info.new(name, **options, registry: self)
    end

    def state_set(name, **options)
      StateSet.new(name, **options, registry: self)
    end

    # A metric is registered when it is made, with one registry, and may be registered there again
    # after it was unregistered. This raises for any other of its name.
    def register(metric)
      return metric if get(metric.name).equal?(metric)

      unless metric.registry.equal?(self)
        raise AlreadyRegisteredError, "#{metric.name} has already been registered" if exist?(metric.name)

        raise ArgumentError, "#{metric.name} was made for another registry; make it with " \
                             "registry: or with the registry's methods"
      end
      add(metric) { |segment| metric.open_again(segment) }
      metric
    end

    # Forgets a metric, and removes its series, for all processes. Its name may be used again.
    def unregister(name)
      @lock.synchronize do
        metric = @metrics.delete(name.to_sym)
        if metric
          metric.clear
          @segment.forget(metric.family_name)
        end
        metric
      end
    end

    def exist?(name)
      @lock.synchronize { @metrics.key?(name.to_sym) }
    end

    def get(name)
      @lock.synchronize { @metrics[name.to_sym] }
    end

    def metrics
      @lock.synchronize { @metrics.values }
    end

    # Begins everything at zero, for all processes. Series with labels are removed, but for those of
    # children that are kept.
    def reset
      @segment.reset
    end

    # The metrics of all processes as text for Prometheus.
    def to_s
      render("text").last
    end

    # Content type and body. `accept` is the header, or one of "text", "openmetrics", "protobuf".
    def render(accept)
      @segment.render(accept)
    ensure
      @segment.warn_now
    end

    # The file; nil where they lie in memory.
    def path
      @segment.path
    end

    # How many updates could not be kept as they were meant: a full disk, a limit that is reached.
    def dropped
      @segment.dropped
    end

    def inspect
      "#<#{self.class.name} #{path || "in memory"}, #{metrics.size} metrics>"
    end

    # Called by a metric that is made.
    def add(metric)
      @lock.synchronize do
        if @metrics.key?(metric.name)
          raise AlreadyRegisteredError, "#{metric.name} has already been registered"
        end
        yield @segment
        @metrics[metric.name] = metric
      end
      @segment.warn_now
    end
  end
end
