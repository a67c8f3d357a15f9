# frozen_string_literal: true

module Quipu
  # The flight recorder: a thread that records the last minutes of a segment's metrics, second by
  # second. You get it from Registry#record or DataStore#record. Most of the class is native: this
  # thread runs no Ruby code.
  #
  # It continues until you close it or the process ends, whether or not you keep the object. A child
  # of a fork inherits no threads of its parent, so it starts a new one.
  class Recording
    # The native part refuses all greater numbers as well.
    #
    # @api private
    MAX = 2**61

    @open = []

    class << self
      # Continues all recordings in a child of a fork. The gem calls this method, but with Ruby 3.0
      # your application must call it when a worker starts.
      #
      # @return [nil]
      def resume
        @open.each { |recording| recording.send(:native_resume) }
        nil
      end

      # Returns the options of the setting `record:`; nil for none.
      #
      # @api private
      def options(setting)
        case setting
        when nil, false then nil
        when true then {}
        when Hash then setting
        else
          raise ArgumentError, "record: #{setting.inspect} is not understood: use true, or a Hash " \
                               "of the options of Registry#record, such as { interval: 5 }"
        end
      end

      # Called when a recording starts.
      #
      # @api private
      def opened(recording)
        watch_forks
        @open |= [recording]
      end

      # Called when a recording ends.
      #
      # @api private
      def closed(recording)
        @open -= [recording]
      end

      private

      def watch_forks
        return if @is_watching

        @is_watching = true
        Process.singleton_class.prepend(Forks)
        at_exit { @open.each(&:close) }
      end
    end

    # Continues recordings in children.
    #
    # @api private
    module Forks
      # All forks of Ruby 3.1 and later but the next one.
      def _fork
        super.tap { |pid| Recording.resume if pid.zero? }
      end

      def daemon(*)
        super.tap { Recording.resume }
      end
    end

    # @!method writing?
    #   Whether this process writes, and not another one that shares the metrics.
    #
    #   @return [Boolean]

    # @api private
    def initialize(segment, interval: 1.0, bytes: 4 << 20, series: 1000, families: [])
      @segment = segment
      native_set(interval, whole(:bytes, bytes), whole(:series, series), families.map(&:to_s))
    end

    # Starts the thread. Called once.
    #
    # @return [self]
    # @raise [RecordingError] if there is no room or no thread
    # @api private
    def start
      native_start(@segment)
      Recording.opened(self)
      self
    end

    # Ends the recording. The file keeps the recorded history. A second call has no effect.
    #
    # @return [nil]
    def close
      Recording.closed(self)
      native_close
    end

    private

    def whole(name, number)
      raise TypeError, "#{name} #{number.inspect} is not an Integer" unless number.is_a?(Integer)
      raise RecordingError, "#{name} #{number} is out of range: use a positive number" if number.negative?

      [number, MAX].min
    end
  end
end
