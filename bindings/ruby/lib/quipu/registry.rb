# frozen_string_literal: true

module Quipu
  # The metrics of a program, and the segment that holds them.
  class Registry
    # The name of the file in a directory.
    FILE = "metrics.quipu"

    # With `dir` or `path`, metrics are in a file; otherwise in memory that the children of later
    # forks share. `limit` is the maximum size of the segment in bytes. `mode` has the permission
    # bits of a new file, by default 0600 whatever the umask is; `group` is the ID or the name of its
    # group. A user without the right to write the file cannot count in it.
    #
    # With `record: true`, or a Hash of the options of #record, the metrics are recorded.
    #
    # If the directory is not writable, this warns and uses memory instead; if there is no room for a
    # recording, it warns. Raises ArgumentError for a `mode` or `group` that cannot be meant, and
    # RecordingError for options of `record` that are out of range.
    def initialize(dir: nil, path: nil, limit: nil, mode: nil, group: nil, record: nil)
      path ||= File.join(dir, FILE) if dir
      @segment = Segment.at(path&.to_s, limit: limit, mode: mode, group: group).view
      @metrics = {}
      @lock = Monitor.new
      @recording = @segment.record_as(record)
    end

    # The recording that the setting `record:` has started, or nil.
    attr_reader :recording

    # Records the metrics every `interval` seconds, 0.001 to 3600, so that `quipu inspect --history
    # FILE` shows what led to a crash, also after a SIGKILL. Returns the Recording. With a block,
    # passes it to the block, and closes it at its end.
    #
    # Takes `bytes` of the segment, 16 KiB to 64 MiB, by default 4 MiB, at once; when they are full,
    # the oldest sixteenth makes room. Records at most `series` series, 1 to 16,384, by default
    # 1,000, of the metrics named in `families`, or of all.
    #
    # It goes on until it is closed or the process ends, and in children of forks. If several
    # processes that share the metrics record, one of them writes, and another one takes over when
    # it ends. Counting does not notice.
    #
    # Raises RecordingError for options out of range, and if there is no room or no thread.
    def record(interval: 1.0, **options, &block)
      @segment.record(interval: interval, **options, &block)
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

    # Registers a metric again after it was unregistered. A metric belongs to one registry, which
    # registers it when it is created. Raises AlreadyRegisteredError if another metric has the name,
    # and ArgumentError for a metric of another registry.
    def register(metric)
      return metric if get(metric.name).equal?(metric)

      unless metric.registry.equal?(self)
        raise AlreadyRegisteredError, "#{metric.name} has already been registered" if exist?(metric.name)

        raise ArgumentError, "#{metric.name} belongs to another registry: make it with " \
                             "registry: or with the methods of this registry"
      end
      add(metric) { |segment| metric.open_again(segment) }
      metric
    end

    # Unregisters a metric and removes its series, for all processes. Its name may be used again.
    # Returns the metric, or nil.
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

    # Resets all metrics to zero, for all processes. Series with labels are removed, except those of
    # children that the program still holds.
    def reset
      @segment.reset
    end

    # The metrics of all processes in the Prometheus text format.
    def to_s
      render("text").last
    end

    # Returns the content type and the body. `accept` is an `Accept` header, or one of "text",
    # "openmetrics" and "protobuf".
    def render(accept)
      @segment.render(accept)
    ensure
      @segment.warn_now
    end

    # The path of the file, or nil if the metrics are in memory.
    def path
      @segment.path
    end

    # The number of updates that were lost or counted without their labels, for example because the
    # disk was full or a limit was reached.
    def dropped
      @segment.dropped
    end

    def inspect
      "#<#{self.class.name} #{path || "in memory"}, #{metrics.size} metrics>"
    end

    # Called by the constructor of a metric.
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
