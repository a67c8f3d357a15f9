# frozen_string_literal: true

require "rbconfig"

module Quipu
  # Loads the native part, or its replacement in plain Ruby, which counts in one process.
  #
  # @api private
  module Backend
    # The systems where the native part cannot be built.
    WINDOWS = /mswin|mingw|cygwin/.freeze
    # The systems that use the replacement if there is no native part. On all others, a missing native
    # part is an error, because the workers of a server would count separately. `extconf.rb` also uses
    # this pattern.
    OPTIONAL = Regexp.union(/darwin/, WINDOWS).freeze
    # The native part in a precompiled gem, which contains one for each version of Ruby.
    VERSIONED = "quipu/#{RUBY_VERSION[/\A\d+\.\d+/]}/native"
    # The native part of an installation that built it.
    BUILT = "quipu/native"

    class << self
      # Loads the native part or its replacement.
      def load
        return load_pure if ENV["QUIPU_PURE_RUBY"] == "1"

        load_native
      rescue LoadError => e
        raise LoadError, explanation(e) unless OPTIONAL.match?(RbConfig::CONFIG["host_os"])

        # The error about a missing file names the file as it was required.
        warn("quipu: #{explanation(e)}") unless e.path == BUILT
        load_pure
      end

      # Returns whether the native part was loaded.
      def native?
        !defined?(Pure)
      end

      private

      def load_pure
        require "quipu/pure"
      end

      def load_native
        require VERSIONED
      rescue LoadError => e
        # Any other error is about a file that exists, such as a library that it needs.
        raise unless e.path == VERSIONED

        require BUILT
      end

      def explanation(error)
        "the native part of quipu-metrics cannot be loaded (#{error.message}): build it by " \
          "`gem install quipu-metrics --platform ruby`, or for Bundler by `bundle config " \
          "force_ruby_platform true` and `bundle install`, which need Rust, or set " \
          "QUIPU_PURE_RUBY=1 to let each process count separately"
      end
    end
  end
end
