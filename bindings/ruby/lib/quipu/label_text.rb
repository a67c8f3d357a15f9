# frozen_string_literal: true

module Quipu
  # Converts label values to UTF-8 strings, for values that the native part cannot read in place.
  #
  # @api private
  module LabelText
    # Returns a new string. Characters that cannot be expressed in UTF-8 become U+FFFD.
    def self.of(value)
      text = String.new(value.to_s)
      if text.encoding == Encoding::BINARY || text.encoding == Encoding::UTF_8
        return text.force_encoding(Encoding::UTF_8).scrub
      end
      text.encode(Encoding::UTF_8, invalid: :replace, undef: :replace, replace: "\uFFFD")
    rescue EncodingError
      # Ruby knows only the name of this encoding.
      text.force_encoding(Encoding::UTF_8).scrub
    end
  end
end
