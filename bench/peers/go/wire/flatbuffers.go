package wire

import (
	"slices"

	google "github.com/google/flatbuffers/go"

	"quipu/bench/peers/wire/flatbuffers"
)

// flatBuffers is google/flatbuffers, read into a struct like the other rows, with the id copied.
//
// Builders from version 1.8, the oldest available, omit the end of a vtable if all its fields are
// defaults. The builder of the original comparison did not do this, so its union took 4 bytes more.
// Builders after version 1.9 also align the whole to 8 bytes, which adds 4 bytes, for example to a
// timer.
var flatBuffers = Row{
	Name: "flatbuffers", Reuses: true,
	New: plain(
		newFlat(buildCounter, readCounter, false),
		newFlat(buildBatchTimer, readBatchTimer, false),
		newFlat(buildGauge, readGauge, false),
		newFlat(buildUnion, readUnion, false),
	),
}

// flatBuffersBorrowed is google/flatbuffers with the id borrowed from the data. Floats must be read
// one by one in any case.
var flatBuffersBorrowed = Row{
	Name: "flatbuffers-borrowed", Reuses: true,
	New: plain(
		newFlat(buildCounter, readCounter, true),
		newFlat(buildBatchTimer, readBatchTimer, true),
		newFlat(buildGauge, readGauge, true),
		newFlat(buildUnion, readUnion, true),
	),
}

// freshCapacity is the capacity of a new builder: enough for the original messages, because the
// library cannot compute their size.
const freshCapacity = 128

// flatCodec is the codec of one message.
type flatCodec[T any] struct {
	slots[T]
	builder *google.Builder
	build   func(*google.Builder, *T)
	read    func(data []byte, out *T, borrow bool)
	borrow  bool
}

func newFlat[T any](
	build func(*google.Builder, *T), read func([]byte, *T, bool), borrow bool,
) func(slots[T]) Codec {
	return func(s slots[T]) Codec {
		return &flatCodec[T]{s, google.NewBuilder(0), build, read, borrow}
	}
}

// Marshal reuses the builder.
func (c *flatCodec[T]) Marshal(n int) ([]byte, error) {
	for range n {
		c.builder.Reset()
		c.build(c.builder, c.in)
	}
	return c.builder.FinishedBytes(), nil
}

// MarshalFresh makes a builder each time.
func (c *flatCodec[T]) MarshalFresh(n int) (fresh []byte, _ error) {
	for range n {
		builder := google.NewBuilder(freshCapacity)
		c.build(builder, c.in)
		fresh = builder.FinishedBytes()
	}
	return fresh, nil
}

// Unmarshal reads all fields with the generated accessors.
func (c *flatCodec[T]) Unmarshal(data []byte, n int) error {
	for range n {
		c.read(data, c.out, c.borrow)
	}
	return nil
}

// The readers borrow the id, or copy it to the slice of the struct.

func readCounter(data []byte, out *Counter, borrow bool) {
	var table flatbuffers.Counter
	table.Init(data, google.GetUOffsetT(data))
	out.ID = taken(out.ID, table.IdBytes(), borrow)
	out.Value = table.Value()
}

func readBatchTimer(data []byte, out *BatchTimer, borrow bool) {
	var table flatbuffers.BatchTimer
	table.Init(data, google.GetUOffsetT(data))
	out.ID = taken(out.ID, table.IdBytes(), borrow)
	length := table.ValuesLength()
	out.Values = slices.Grow(out.Values[:0], length)[:length]
	for i := range out.Values {
		out.Values[i] = table.Values(i)
	}
}

func readGauge(data []byte, out *Gauge, borrow bool) {
	var table flatbuffers.Gauge
	table.Init(data, google.GetUOffsetT(data))
	out.ID = taken(out.ID, table.IdBytes(), borrow)
	out.Value = table.Value()
}

func readUnion(data []byte, out *MetricUnion, borrow bool) {
	var table flatbuffers.MetricUnion
	table.Init(data, google.GetUOffsetT(data))
	out.Type = table.Type()
	out.ID = taken(out.ID, table.IdBytes(), borrow)
	out.CounterVal = table.CounterVal()
	length := table.BatchTimerValLength()
	out.BatchTimerVal = slices.Grow(out.BatchTimerVal[:0], length)[:length]
	for i := range out.BatchTimerVal {
		out.BatchTimerVal[i] = table.BatchTimerVal(i)
	}
	out.GaugeVal = table.GaugeVal()
}

// taken is the id itself, or a copy of it in the reused slice.
func taken(kept, id []byte, borrow bool) []byte {
	if borrow {
		return id
	}
	return append(kept[:0], id...)
}

// The builders write from the end: first the values that the table refers to, then the table.

func buildCounter(b *google.Builder, in *Counter) {
	id := b.CreateByteVector(in.ID)
	flatbuffers.CounterStart(b)
	flatbuffers.CounterAddId(b, id)
	flatbuffers.CounterAddValue(b, in.Value)
	b.Finish(flatbuffers.CounterEnd(b))
}

func buildBatchTimer(b *google.Builder, in *BatchTimer) {
	id := b.CreateByteVector(in.ID)
	flatbuffers.BatchTimerStartValuesVector(b, len(in.Values))
	values := buildValues(b, in.Values)
	flatbuffers.BatchTimerStart(b)
	flatbuffers.BatchTimerAddId(b, id)
	flatbuffers.BatchTimerAddValues(b, values)
	b.Finish(flatbuffers.BatchTimerEnd(b))
}

func buildGauge(b *google.Builder, in *Gauge) {
	id := b.CreateByteVector(in.ID)
	flatbuffers.GaugeStart(b)
	flatbuffers.GaugeAddId(b, id)
	flatbuffers.GaugeAddValue(b, in.Value)
	b.Finish(flatbuffers.GaugeEnd(b))
}

func buildUnion(b *google.Builder, in *MetricUnion) {
	id := b.CreateByteVector(in.ID)
	flatbuffers.MetricUnionStartBatchTimerValVector(b, len(in.BatchTimerVal))
	values := buildValues(b, in.BatchTimerVal)
	flatbuffers.MetricUnionStart(b)
	flatbuffers.MetricUnionAddType(b, in.Type)
	flatbuffers.MetricUnionAddId(b, id)
	flatbuffers.MetricUnionAddCounterVal(b, in.CounterVal)
	flatbuffers.MetricUnionAddBatchTimerVal(b, values)
	flatbuffers.MetricUnionAddGaugeVal(b, in.GaugeVal)
	b.Finish(flatbuffers.MetricUnionEnd(b))
}

// buildValues fills a vector that was started. The builder has already made room for this vector.
func buildValues(b *google.Builder, values []float64) google.UOffsetT {
	for i := len(values) - 1; i >= 0; i-- {
		b.PlaceFloat64(values[i])
	}
	return b.EndVector(len(values))
}
