# frozen_string_literal: true

module Quipu
  # Where metrics lie. The native part has the rest.
  class Segment
    @open = {}
    @lock = Mutex.new

    class << self
      # The segment in that file; nil for one without a file, which children of forks share. A file
      # is opened once in a process.
      def at(path, limit: nil)
        return new(nil, limit).tap(&:warn_now) unless path

        path = File.expand_path(path)
        make_directory(File.dirname(path))
        @lock.synchronize { @open[path] ||= new(path, limit) }.tap(&:warn_now)
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
    # written, a full disk. Each is said once.
    def warn_now
      warnings.each { |warning| warn("quipu: #{warning}") }
    end
  end
end
