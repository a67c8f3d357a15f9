# frozen_string_literal: true

module Quipu
  # Facts about the program, such as its version, as the labels of a series that is always 1.
  #
  #   build = Quipu.registry.info(:build, docstring: "The running build.", labels: [:version])
  #   build.set(version: "1.2.3")
  class Info
    # The type, as {Metric#type} returns it.
    TYPE = :info

    # Replaces the labels, for all processes.
    #
    # @param labels [Hash{Symbol => Object}] the values of all labels
    # @return [nil]
    # @raise [InvalidLabelSetError] if the label names differ from the metric's
    def set(labels)
      texts = text_labels(labels)
      native_set(texts, pairs(texts))
      nil
    end

    # Omits the suffix that the formats add.
    #
    # @return [String]
    # @api private
    def family_name
      name.to_s.delete_suffix("_info")
    end

    # An info consists of only one series, so it cannot be split by labels.
    #
    # @raise [NoMethodError] always
    def with_labels(_labels)
      raise NoMethodError, "an info has only one series: pass all labels to set"
    end

    private

    def nothing
      [0.0]
    end
  end
end
