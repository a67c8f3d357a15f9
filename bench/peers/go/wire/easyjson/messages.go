package easyjson

// Counter is a count under an id.
type Counter struct {
	ID    []byte
	Value int64
}

// BatchTimer is a list of times under an id.
type BatchTimer struct {
	ID     []byte
	Values []float64
}

// Gauge is a value under an id.
type Gauge struct {
	ID    []byte
	Value float64
}

// MetricUnion is any of these messages; the type selects one.
type MetricUnion struct {
	Type          int8
	ID            []byte
	CounterVal    int64
	BatchTimerVal []float64
	GaugeVal      float64
}
