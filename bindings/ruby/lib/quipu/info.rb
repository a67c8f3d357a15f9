# frozen_string_literal: true

module Quipu
  # Text about the program, such as its version, as the labels of a series that is always 1.
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
    # @raise [InvalidLabelSetError] if the metric has other label names
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

    # An info has only one series.
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
