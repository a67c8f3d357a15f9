# frozen_string_literal: true

module Quipu
  # The base class of errors about labels.
  class LabelSetError < StandardError; end
  # A Hash whose keys are not the labels of the metric.
  class InvalidLabelSetError < LabelSetError; end
  # A name that is not a valid label name.
  class InvalidLabelError < LabelSetError; end
  # A label name that Prometheus or the format reserves.
  class ReservedLabelError < LabelSetError; end

  # A metric of that name is already registered.
  class AlreadyRegisteredError < StandardError; end
  # Settings that are not valid for a metric.
  class InvalidStoreSettingsError < StandardError; end
  # Metrics cannot be stored or read; the message contains the reason. Counting never raises this
  # error.
  class StoreError < StandardError; end
  # The flight recorder cannot record: an option is out of range, or there is no room or no thread.
  class RecordingError < StoreError; end
end
