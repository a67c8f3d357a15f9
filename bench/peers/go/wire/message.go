package wire

import (
	"bytes"
	"math"
	"slices"
)

// Kind is one of the four kinds of messages.
type Kind int

// The kinds, in the order of their type ids in gob.
const (
	KindCounter Kind = iota
	KindBatchTimer
	KindGauge
	KindUnion
)

// Kinds are all kinds.
var Kinds = []Kind{KindCounter, KindBatchTimer, KindGauge, KindUnion}

// String is the name of the type of such messages.
func (k Kind) String() string {
	return [...]string{"Counter", "BatchTimer", "Gauge", "MetricUnion"}[k]
}

// Message is a message of any kind. Fields that this kind lacks are zero.
type Message struct {
	Kind    Kind
	Type    int8
	ID      []byte
	Counter int64
	Values  []float64
	Gauge   float64
}

// differences names the fields that differ between two messages, bit by bit. An empty list equals
// nil.
func (m Message) differences(other Message) []string {
	sameBits := func(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) }
	var names []string
	for _, field := range []struct {
		name string
		same bool
	}{
		{"kind", m.Kind == other.Kind},
		{"type", m.Type == other.Type},
		{"id", bytes.Equal(m.ID, other.ID)},
		{"counter", m.Counter == other.Counter},
		{"values", slices.EqualFunc(m.Values, other.Values, sameBits)},
		{"gauge", sameBits(m.Gauge, other.Gauge)},
	} {
		if !field.same {
			names = append(names, field.name)
		}
	}
	return names
}

// Seed is the message whose sizes and times are measured.
func Seed(kind Kind) Message {
	m := Message{Kind: kind, ID: []byte("name=bulbasaur,trainer=ash,type=grass")}
	switch kind {
	case KindCounter:
		m.Counter = 100
	case KindBatchTimer:
		m.Values = []float64{1, 2, 3, 4, 5}
	case KindGauge:
		m.Gauge = 100
	case KindUnion:
		m.Type = 2
		m.Values = []float64{1, 2, 3, 4, 5}
	}
	return m
}

// fields is the interface of every row's struct of a message. This is a pointer to the struct,
// converted to one of the four types below, or a type of the row.
type fields interface {
	// load takes the message's fields, and shares its slices.
	load(m Message)
	// message makes a message from these fields, and shares their slices.
	message() Message
	// clear sets all fields to zero, but keeps the capacity of the slices.
	clear()
}

// Counter is a count with an id.
type Counter struct {
	ID    []byte
	Value int64
}

func (c *Counter) load(m Message) { *c = Counter{ID: m.ID, Value: m.Counter} }

func (c *Counter) message() Message {
	return Message{Kind: KindCounter, ID: c.ID, Counter: c.Value}
}

func (c *Counter) clear() { *c = Counter{ID: c.ID[:0]} }

// BatchTimer is a list of times with an id.
type BatchTimer struct {
	ID     []byte
	Values []float64
}

func (b *BatchTimer) load(m Message) { *b = BatchTimer{ID: m.ID, Values: m.Values} }

func (b *BatchTimer) message() Message {
	return Message{Kind: KindBatchTimer, ID: b.ID, Values: b.Values}
}

func (b *BatchTimer) clear() { *b = BatchTimer{ID: b.ID[:0], Values: b.Values[:0]} }

// Gauge is a value with an id.
type Gauge struct {
	ID    []byte
	Value float64
}

func (g *Gauge) load(m Message) { *g = Gauge{ID: m.ID, Value: m.Gauge} }

func (g *Gauge) message() Message {
	return Message{Kind: KindGauge, ID: g.ID, Gauge: g.Value}
}

func (g *Gauge) clear() { *g = Gauge{ID: g.ID[:0]} }

// MetricUnion is any of these messages; the type selects one.
type MetricUnion struct {
	Type          int8
	ID            []byte
	CounterVal    int64
	BatchTimerVal []float64
	GaugeVal      float64
}

func (u *MetricUnion) load(m Message) {
	*u = MetricUnion{m.Type, m.ID, m.Counter, m.Values, m.Gauge}
}

func (u *MetricUnion) message() Message {
	return Message{
		Kind: KindUnion, Type: u.Type, ID: u.ID,
		Counter: u.CounterVal, Values: u.BatchTimerVal, Gauge: u.GaugeVal,
	}
}

func (u *MetricUnion) clear() {
	*u = MetricUnion{ID: u.ID[:0], BatchTimerVal: u.BatchTimerVal[:0]}
}
