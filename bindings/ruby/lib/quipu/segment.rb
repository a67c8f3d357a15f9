# frozen_string_literal: true

module Quipu
  # A segment: the file or memory that holds metrics. Most of the class is native; this part opens
  # files and issues warnings.
  #
  # @api private
  class Segment
    @open = {}
    @lock = Mutex.new

    class << self
      # Returns the segment in a file; with nil, one in memory that the children of forks share. A
      # process opens a file only once, unless it was removed or replaced. A new file gets the
      # permission bits `mode` and the group `group`.
      def at(path, limit: nil, mode: nil, group: nil)
        options = [limit, mode && Permissions.mode(mode), group && Permissions.group(group)]
        return new(nil, *options).tap(&:warn_now) unless path

        path = File.expand_path(path)
        @lock.synchronize do
          @open.delete(path) if @open[path]&.gone?
          @open[path] ||= begin
            make_directory(File.dirname(path))
            new(path, *options).tap(&:note_place)
          end
        end.tap(&:warn_now)
      end

      private

      # If this fails, the native part cannot open the file, and warns.
      def make_directory(path)
        FileUtils.mkdir_p(path)
      rescue SystemCallError
        nil
      end
    end

    # Issues pending warnings, each once: a damaged file that was set aside, a directory that is not
    # writable, a full disk, a file that was removed.
    def warn_now
      warnings.each { |warning| warn("quipu: #{warning}") }
      return if @has_told || !gone?

      @has_told = true
      warn("quipu: #{path} was removed or replaced: this process and its forks continue without a " \
           "file, and no other process sees their counts; open it again, or restart")
    end

    # Starts a recording. With a block, passes it to the block, and closes it at its end.
    def record(**options)
      recording = Recording.new(self, **options).start
      return recording unless block_given?

      begin
        yield recording
      ensure
        recording.close
      end
    end

    # Starts the recording of the setting `record:`, if there is one. Warns if the environment does
    # not allow a recording.
    def record_as(setting)
      options = Recording.options(setting)
      recording = Recording.new(self, **options) if options
      recording&.start
    rescue RecordingError => e
      raise unless recording

      warn("quipu: #{e.message}; nothing is recorded")
    end

    # Returns whether its file was removed or replaced.
    def gone?
      !@place.nil? && @place != place
    end

    # Records the identity of the file.
    def note_place
      @place = place
    end

    # Returns the same segment for another registry, with its own set of names.
    def view
      self.class.allocate.view_of(self, @place)
    end

    protected

    def view_of(other, place)
      native_view(other)
      @place = place
      self
    end

    private

    # Returns the identity of the file at the path, or nil if there is none. If the file cannot be
    # examined, for example after a change of the user, it is taken to be unchanged.
    def place
      stat = path && File.stat(path)
      stat && [stat.dev, stat.ino]
    rescue Errno::ENOENT, Errno::ENOTDIR
      nil
    rescue SystemCallError
      @place
    end
  end
end
