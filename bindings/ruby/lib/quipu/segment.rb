# frozen_string_literal: true

module Quipu
  # Where metrics lie. The native part has the rest.
  class Segment
    @open = {}
    @lock = Mutex.new

    class << self
      # The segment in that file; nil for one without a file, which children of forks share. A file
      # is opened once in a process, and again when it was removed or replaced.
      def at(path, limit: nil)
        return new(nil, limit).tap(&:warn_now) unless path

        path = File.expand_path(path)
        @lock.synchronize do
          @open.delete(path) if @open[path]&.gone?
          @open[path] ||= begin
            make_directory(File.dirname(path))
            new(path, limit).tap(&:note_place)
          end
        end.tap(&:warn_now)
      end

      private

      # Where it cannot be made, the native part warns of a file that cannot be had.
      def make_directory(path)
        FileUtils.mkdir_p(path)
      rescue SystemCallError
        nil
      end
    end

    # Says what there is to warn of: a damaged file that was set aside, a directory that cannot be
    # written, a full disk, a file that was removed. Each is said once.
    def warn_now
      warnings.each { |warning| warn("quipu: #{warning}") }
      return if @has_told || !gone?

      @has_told = true
      warn("quipu: #{path} was removed or replaced: this process and the children of its forks " \
           "count on without a file, and no other process sees it; open it again, or restart")
    end

    # Whether its file is not where it was any more.
    def gone?
      !@place.nil? && @place != place
    end

    # Notes which file it is.
    def note_place
      @place = place
    end

    # The same one for another registry: names that are taken in one are free in the other.
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

    # What tells a file from others; nil without one. Where it cannot be looked at, as after a
    # change of the user, it is taken to be there.
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
