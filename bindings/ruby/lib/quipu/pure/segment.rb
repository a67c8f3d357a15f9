# frozen_string_literal: true

module Quipu
  # Metrics in the memory of this process. Several segments can show the same families, each with
  # its own names.
  class Segment
    # @return [nil] always, because there is no file
    attr_reader :path

    def initialize(path, limit, _mode, _group)
      unless limit.nil? || limit.is_a?(Integer)
        raise TypeError, "the limit is not an Integer: use a number of bytes"
      end
      @families = []
      @stores = Hash.new { |stores, name| stores[name] = {} }
      @lock = Monitor.new
      show_all
      return unless path

      @warnings << "#{path} is not used, because the native part is not loaded: the metrics are in " \
                   "the memory of this process"
    end

    # Returns the pending warnings, each only once.
    def warnings
      @warnings.slice!(0..)
    end

    # The native part drops updates if there is no room.
    def dropped
      0
    end

    # Returns the content type and the page.
    def render(accept)
      if accept == "protobuf"
        raise StoreError, "protobuf requires the native part of quipu-metrics: use text or OpenMetrics"
      end
      warn_of_fork
      is_open_metrics = accept == "openmetrics" || (accept != "text" && Pure::Accept.open_metrics?(accept))
      page = Pure::Page.new(open_metrics: is_open_metrics)
      content_type = (is_open_metrics ? Formats::OpenMetrics : Formats::Text)::CONTENT_TYPE
      [content_type, page.render(shown)]
    end

    # Removes all series with labels, and sets all others to zero.
    def reset
      @lock.synchronize { @families.each(&:reset) }
      nil
    end

    # Hides a family and frees its name; returns whether the name was taken.
    def forget(name)
      @lock.synchronize do
        family = @names.delete(name)
        @hidden |= [family] if family
        !family.nil?
      end
    end

    # Registers a family. If one with the same description exists, it is shown again.
    #
    # @api private
    def open_family(name, *description)
      @lock.synchronize do
        raise AlreadyRegisteredError, "#{name} has already been registered" if @names.key?(name)

        wanted = Pure::Family.new(name, *description)
        family = @families.find { |one| one.description == wanted.description }
        @families << family = wanted unless family
        @hidden -= [family]
        @names[name] = family
      end
    end

    # @api private
    def family?(family)
      @lock.synchronize { @families.include?(family) }
    end

    # Returns the values of a metric of a data store, and their lock.
    #
    # @api private
    def store(name)
      [@lock.synchronize { @stores[name] }, @lock]
    end

    private

    def native_view(other)
      %i[@families @stores @lock].each do |name|
        instance_variable_set(name, other.instance_variable_get(name))
      end
      show_all
      self
    end

    def show_all
      @names = {}
      @hidden = []
      @warnings = []
      @process = Process.pid
    end

    def shown
      @lock.synchronize { @families - @hidden }
    end

    def warn_of_fork
      return if @process == Process.pid

      @process = Process.pid
      @warnings << "a process that was forked counts separately, because the native part is not loaded"
    end
  end
end
