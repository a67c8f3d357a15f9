# frozen_string_literal: true

module Quipu
  # The metrics of a program, and the segment that holds them.
  class Registry
    # The name of the file in a directory.
    FILE = "metrics.quipu"

    # With `dir` or `path`, metrics are in a file; otherwise in memory that the children of later
    # forks share. If the directory is not writable, this method warns and uses memory instead; if
    # there is no room for a recording, it warns.
    #
    # @param dir [String, Pathname, nil] the directory of the file {FILE}
    # @param path [String, Pathname, nil] the path of the file, instead of `dir`
    # @param limit [Integer, nil] the maximum size of the segment in bytes, by default 256 MiB
    # @param mode [Integer, nil] the permission bits of a new file, by default 0600 independent of
    # the umask. A user without the right to write the file cannot count there
    # @param group [Integer, String, nil] the ID or the name of the group of a new file
    # @param record [Boolean, Hash, nil] whether to record the metrics, or the options of {#record}
    # @raise [ArgumentError] if the mode, the group or the setting `record` is not valid
    # @raise [RecordingError] if an option of `record` is out of range
    # @raise [StoreError] if there is no memory
    def initialize(dir: nil, path: nil, limit: nil, mode: nil, group: nil, record: nil)
      path ||= File.join(dir, FILE) if dir
      @segment = Segment.at(path&.to_s, limit: limit, mode: mode, group: group).view
      @metrics = {}
      @lock = Monitor.new
      @recording = @segment.record_as(record)
    end

    # The recording that the setting `record:` started, or nil.
    #
    # @return [Recording, nil]
    attr_reader :recording

    # Records the metrics. After a crash, even a SIGKILL, you can see the last minutes before it by
    # `quipu inspect --history FILE`.
    #
    # A recording continues until you close it or the process ends, and in children of forks. If
    # several processes that share the metrics record, one of them writes, and another one takes
    # over when it ends.
    #
    # @param interval [Numeric] the seconds from tick to tick, 0.001 to 3600
    # @param options [Hash] further options
    # @option options [Integer] :bytes (4 MiB) the memory of the segment that the recording takes at
    #   once, 16 KiB to 64 MiB; when it is full, the oldest sixteenth makes room
    # @option options [Integer] :series (1000) the maximum number of series, 1 to 16,384
    # @option options [Array<Symbol, String>] :families (all) the names of the metrics to record
    # @yieldparam recording [Recording] the recording, which is closed at the end of the block
    # @return [Recording, Object] the recording; with a block, the result of the block
    # @raise [RecordingError] if an option is out of range, or if there is no room or no thread
    # @raise [TypeError] if an option is not a number
    def record(interval: 1.0, **options, &block)
      @segment.record(interval: interval, **options, &block)
    end

    # Creates a counter in this registry.
    #
    # @param name [Symbol] the name
    # @param options [Hash] the other arguments of {Counter#initialize}, except `registry:`
    # @return [Counter]
    # @raise (see Counter#initialize)
    def counter(name, **options)
      Counter.new(name, **options, registry: self)
    end

    # Creates a gauge in this registry.
    #
    # @param name [Symbol] the name
    # @param options [Hash] the other arguments of {Gauge#initialize}, except `registry:`
    # @return [Gauge]
    # @raise (see Gauge#initialize)
    def gauge(name, **options)
      Gauge.new(name, **options, registry: self)
    end

    # Creates a histogram in this registry.
    #
    # @param name [Symbol] the name
    # @param options [Hash] the other arguments of {Histogram#initialize}, except `registry:`
    # @return [Histogram]
    # @raise (see Histogram#initialize)
    def histogram(name, **options)
      Histogram.new(name, **options, registry: self)
    end

    # Creates a summary in this registry.
    #
    # @param name [Symbol] the name
    # @param options [Hash] the other arguments of {Summary#initialize}, except `registry:`
    # @return [Summary]
    # @raise (see Summary#initialize)
    def summary(name, **options)
      Summary.new(name, **options, registry: self)
    end

    # Creates an info in this registry.
    #
    # @param name [Symbol] the name
    # @param options [Hash] the other arguments of {Info#initialize}, except `registry:`
    # @return [Info]
    # @raise (see Info#initialize)
    def info(name, **options)
      Info.new(name, **options, registry: self)
    end

    # Creates a set of states in this registry.
    #
    # @param name [Symbol] the name
    # @param options [Hash] the other arguments of {StateSet#initialize}, except `registry:`
    # @return [StateSet]
    # @raise (see StateSet#initialize)
    def state_set(name, **options)
      StateSet.new(name, **options, registry: self)
    end

    # Registers a metric again after it was unregistered. A metric belongs to one registry, which
    # registers it when it is created.
    #
    # @param metric [Metric] the metric
    # @return [Metric] the metric
    # @raise [AlreadyRegisteredError] if another metric uses the name
    # @raise [ArgumentError] if the metric belongs to another registry
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

    # Unregisters a metric and removes its series, for all processes. You can use its name again.
    #
    # @param name [Symbol, String] the name
    # @return [Metric, nil] the metric, or nil if there is none with that name
    # @raise [StoreError] if its series cannot be removed
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

    # @param name [Symbol, String] a name
    # @return [Boolean] whether this registry contains a metric with that name
    def exist?(name)
      @lock.synchronize { @metrics.key?(name.to_sym) }
    end

    # @param name [Symbol, String] a name
    # @return [Metric, nil] the metric with that name
    def get(name)
      @lock.synchronize { @metrics[name.to_sym] }
    end

    # @return [Array<Metric>] the metrics that this process registered
    def metrics
      @lock.synchronize { @metrics.values }
    end

    # Resets all metrics to zero, for all processes. Series with labels are removed, except the
    # series of children that your program still holds.
    #
    # @return [nil]
    # @raise [StoreError] if the metrics cannot be reset
    def reset
      @segment.reset
    end

    # Returns the metrics of all processes in the Prometheus text format.
    #
    # @return [String]
    # @raise [StoreError] if the metrics cannot be read
    def to_s
      render("text").last
    end

    # Returns the metrics of all processes in a format.
    #
    # @param accept [String] an `Accept` header, or one of "text", "openmetrics" and "protobuf"
    # @return [Array(String, String)] the content type and the body
    # @raise [StoreError] if the metrics cannot be read
    def render(accept)
      @segment.render(accept)
    ensure
      @segment.warn_now
    end

    # The path of the file, or nil if the metrics are in memory.
    #
    # @return [String, nil]
    def path
      @segment.path
    end

    # The number of updates that were lost or counted without their labels, for example because the
    # disk was full or a limit was reached.
    #
    # @return [Integer]
    def dropped
      @segment.dropped
    end

    # @return [String] the class, the path and the number of metrics
    def inspect
      "#<#{self.class.name} #{path || "in memory"}, #{metrics.size} metrics>"
    end

    # Called by the constructor of a metric.
    #
    # @api private
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
