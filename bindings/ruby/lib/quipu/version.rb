# frozen_string_literal: true

module Quipu
  VERSION = "0.1.0"
end
