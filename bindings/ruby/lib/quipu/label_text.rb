# frozen_string_literal: true

module Quipu
  # Label values as text in UTF-8: for those that the native part cannot read where they lie.
  module LabelText
    # Answers a new string. What cannot be said in UTF-8 becomes U+FFFD.
    def self.of(value)
      text = String.new(value.to_s)
      if text.encoding == Encoding::BINARY || text.encoding == Encoding::UTF_8
        return text.force_encoding(Encoding::UTF_8).scrub
      end
      text.encode(Encoding::UTF_8, invalid: :replace, undef: :replace, replace: "\uFFFD")
    rescue EncodingError
      # An encoding of which Ruby knows no more than the name.
      text.force_encoding(Encoding::UTF_8).scrub
    end
  end
end
