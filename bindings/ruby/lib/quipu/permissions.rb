# frozen_string_literal: true

require "etc"

module Quipu
  # Checks the permission bits and the group of a new file.
  #
  # @api private
  module Permissions
    # The bits of the owner. Without them, its processes could not open the file again.
    OWNER = 0o600
    # The greatest group ID; the number above it means no group.
    MAX_GROUP = (2**32) - 2

    class << self
      # Returns the permission bits, or raises ArgumentError.
      def mode(bits)
        unless bits.is_a?(Integer) && bits.between?(0, 0o777)
          raise ArgumentError, "mode #{bits.inspect} is not permission bits: use an octal number, " \
                               "such as 0o640"
        end
        return bits if bits & OWNER == OWNER

        raise ArgumentError, format("mode 0o%03o keeps the owner from reading or writing: add " \
                                    "0o600, such as 0o640", bits)
      end

      # Returns the ID of the group with that ID or name, or raises ArgumentError.
      def group(group)
        return named(group) if group.is_a?(String)
        return group if group.is_a?(Integer) && group.between?(0, MAX_GROUP)

        raise ArgumentError, "group #{group.inspect} is not a group: use its ID or its name"
      end

      private

      def named(name)
        Etc.getgrnam(name).gid
      rescue ArgumentError
        raise ArgumentError, "group #{name.inspect} is unknown to the system: use its ID, or create it"
      end
    end
  end
end
