// Package wire marshals four messages of metrics with Go's libraries for wire formats. Each library
// is a row of this comparison. The original comparison is the benchmark of 2017 that this one
// started from.
//
// The rows' loops match the code of a careful user of the library: encoders, decoders and buffers
// are reused and reset, decoding fills a struct that is reused, and no buffer grows from one
// iteration to the next. You must call Check first, because a row must decode the message that it
// encoded.
package wire

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// Codec marshals and unmarshals messages of one kind. It contains the loops, because they must call
// the library as directly as your code would.
type Codec interface {
	// Load sets the message to marshal. You must not change its slices.
	Load(m Message)
	// Marshal marshals the message n times into a buffer that the codec reuses. It returns the last
	// result, which is valid until the next call.
	Marshal(n int) ([]byte, error)
	// MarshalFresh marshals the message n times into a new buffer each.
	MarshalFresh(n int) ([]byte, error)
	// Unmarshal unmarshals the data n times into a struct that the codec reuses.
	Unmarshal(data []byte, n int) error
	// Message returns the last unmarshalled message. You can use this message until the next call, and
	// as long as the data is valid.
	Message() Message
}

// Row is one library, used in one way, for example with ids that are borrowed from the data.
type Row struct {
	// Name is the name in the report.
	Name string
	// Reuses is true if the library can marshal into a given buffer. If it cannot do this, Marshal is
	// the same as MarshalFresh.
	Reuses bool
	// New makes a codec with its own encoders, decoders and buffers.
	New func(kind Kind) Codec
}

// Rows are all rows, in the order of the original table.
func Rows() []Row {
	return []Row{
		vmihailencoMsgpack, tinylibMsgp, ugorjiMsgpack, flatBuffers, flatBuffersBorrowed, googleProtobuf,
		protobufViaGogo, gogoProtobuf, thriftBinary, thriftCompact, gobFresh, gobStream, jsonMethods,
		jsonReflection, easyJSON, bsonMgo, xdrReflection, xdrPrimitives, gencodeRow, colferRow,
	}
}

// Find returns the row with a name.
func Find(name string) (Row, error) {
	for _, row := range Rows() {
		if row.Name == name {
			return row, nil
		}
	}
	return Row{}, fmt.Errorf("no row has the name %q", name)
}

// Check verifies that a codec unmarshals the message that it marshals, repeatedly and from new
// buffers, too. It leaves this message loaded, and returns it marshalled.
func Check(codec Codec, m Message) ([]byte, error) {
	codec.Load(m)
	var data []byte
	for _, n := range []int{1, 3} {
		fresh, err := codec.MarshalFresh(n)
		if err != nil {
			return nil, err
		}
		reused, err := codec.Marshal(n)
		if err != nil {
			return nil, err
		}
		if !bytes.Equal(fresh, reused) || data != nil && !bytes.Equal(fresh, data) {
			return nil, errors.New("the bytes in a new buffer are not those in a used one")
		}
		data = fresh
		if err := codec.Unmarshal(data, n); err != nil {
			return nil, err
		}
		if names := m.differences(codec.Message()); len(names) > 0 {
			return nil, fmt.Errorf("the message came back with another %s", strings.Join(names, ", "))
		}
	}
	return data, nil
}

// byKind chooses among the codecs of the four messages.
func byKind(counter, batchTimer, gauge, union func() Codec) func(Kind) Codec {
	return func(kind Kind) Codec {
		return [...]func() Codec{counter, batchTimer, gauge, union}[kind]()
	}
}

// slots contains the structs of a codec: the one to marshal, and the one to unmarshal into.
type slots[T any] struct {
	in, out *T
	// buffer is for marshalling, in codecs that reuse one.
	buffer []byte
	view   func(*T) fields
}

// newSlots makes slots for structs that the view can read and write.
func newSlots[T any](view func(*T) fields) slots[T] {
	return slots[T]{in: new(T), out: new(T), view: view}
}

// Load sets the message to marshal.
func (s *slots[T]) Load(m Message) { s.view(s.in).load(m) }

// Message is the last unmarshalled message.
func (s *slots[T]) Message() Message { return s.view(s.out).message() }

// grow returns a slice of this length that shares the buffer if it is long enough.
func grow(buffer []byte, length int) []byte {
	if cap(buffer) < length {
		return make([]byte, length)
	}
	return buffer[:length]
}

// plain makes codecs for this package's own structs, for libraries that use reflection.
func plain(
	counter func(slots[Counter]) Codec,
	batchTimer func(slots[BatchTimer]) Codec,
	gauge func(slots[Gauge]) Codec,
	union func(slots[MetricUnion]) Codec,
) func(Kind) Codec {
	return byKind(
		func() Codec { return counter(newSlots(func(m *Counter) fields { return m })) },
		func() Codec { return batchTimer(newSlots(func(m *BatchTimer) fields { return m })) },
		func() Codec { return gauge(newSlots(func(m *Gauge) fields { return m })) },
		func() Codec { return union(newSlots(func(m *MetricUnion) fields { return m })) },
	)
}
