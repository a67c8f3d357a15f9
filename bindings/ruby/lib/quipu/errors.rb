# frozen_string_literal: true

module Quipu
  # What is wrong with labels.
  class LabelSetError < StandardError; end
  # A Hash whose keys are not the labels of the metric.
  class InvalidLabelSetError < LabelSetError; end
  # A name that no label can have.
  class InvalidLabelError < LabelSetError; end
  # A name that Prometheus or the format uses itself.
  class ReservedLabelError < LabelSetError; end

  # A metric of that name is registered already.
  class AlreadyRegisteredError < StandardError; end
  # Settings that a metric cannot have.
  class InvalidStoreSettingsError < StandardError; end
  # Metrics cannot be kept or read: the message says why. Counting never raises it.
  class StoreError < StandardError; end
end
