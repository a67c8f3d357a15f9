# frozen_string_literal: true

module Quipu
  # The half of the class that the native part defines. Only the native part records.
  class Recording
    # @return [Boolean] always false
    def writing?
      false
    end

    private

    def native_set(*); end

    def native_start(_segment)
      raise RecordingError, "recording requires the native part of quipu-metrics"
    end

    def native_resume; end

    def native_close; end
  end
end
