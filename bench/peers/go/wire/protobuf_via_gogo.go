package wire

import (
	"fmt"

	"github.com/gogo/protobuf/proto"
)

// protobufViaGogo is called golang/protobuf in the original comparison. It is really gogo/protobuf:
// its runtime, with reflection, on structs whose tags do not contain proto3, so this row writes
// zeros.
var protobufViaGogo = Row{
	Name: "protobuf-via-gogo", Reuses: true,
	New: byKind(
		newViaGogo(func(m *gogoCounter) fields { return m }),
		newViaGogo(func(m *gogoBatchTimer) fields { return m }),
		newViaGogo(func(m *gogoGauge) fields { return m }),
		newViaGogo(func(m *gogoUnion) fields { return m }),
	),
}

// viaGogoMethods are the methods that the runtime requires.
type viaGogoMethods[T any] interface {
	*T
	proto.Message
}

// viaGogo is the codec of one message.
type viaGogo[T any, P viaGogoMethods[T]] struct {
	slots[T]
	kept *proto.Buffer
}

func newViaGogo[T any, P viaGogoMethods[T]](view func(P) fields) func() Codec {
	return func() Codec {
		return &viaGogo[T, P]{newSlots(func(m *T) fields { return view(P(m)) }), proto.NewBuffer(nil)}
	}
}

// Marshal reuses the buffer.
func (c *viaGogo[T, P]) Marshal(n int) ([]byte, error) {
	in := P(c.in)
	for range n {
		c.kept.Reset()
		if err := c.kept.Marshal(in); err != nil {
			return nil, err
		}
	}
	return c.kept.Bytes(), nil
}

// MarshalFresh is proto.Marshal.
func (c *viaGogo[T, P]) MarshalFresh(n int) (fresh []byte, err error) {
	in := P(c.in)
	for range n {
		if fresh, err = proto.Marshal(in); err != nil {
			return nil, err
		}
	}
	return fresh, nil
}

// Unmarshal merges into a struct that is reused. This struct is cleared by hand, because its list
// is reused.
func (c *viaGogo[T, P]) Unmarshal(data []byte, n int) error {
	out, cleared := P(c.out), c.view(c.out)
	for range n {
		cleared.clear()
		if err := proto.UnmarshalMerge(data, out); err != nil {
			return err
		}
	}
	return nil
}

// orNil returns nil for an empty list. Otherwise the runtime would write this list, unlike in the
// original comparison.
func orNil[E any](list []E) []E {
	if len(list) == 0 {
		return nil
	}
	return list
}

type gogoCounter struct {
	ID    []byte `protobuf:"bytes,1,opt,name=ID"`
	Value int64  `protobuf:"varint,2,opt,name=Value"`
}

// Reset, String and ProtoMessage make this struct a message.
func (c *gogoCounter) Reset()         { *c = gogoCounter{} }
func (c *gogoCounter) String() string { return fmt.Sprint(c.message()) }
func (c *gogoCounter) ProtoMessage()  {}

func (c *gogoCounter) load(m Message)   { *c = gogoCounter{orNil(m.ID), m.Counter} }
func (c *gogoCounter) message() Message { return (*Counter)(c).message() }
func (c *gogoCounter) clear()           { (*Counter)(c).clear() }

type gogoBatchTimer struct {
	ID     []byte    `protobuf:"bytes,1,opt,name=ID"`
	Values []float64 `protobuf:"fixed64,2,rep,packed,name=Values"`
}

// Reset, String and ProtoMessage make this struct a message.
func (b *gogoBatchTimer) Reset()         { *b = gogoBatchTimer{} }
func (b *gogoBatchTimer) String() string { return fmt.Sprint(b.message()) }
func (b *gogoBatchTimer) ProtoMessage()  {}

func (b *gogoBatchTimer) load(m Message)   { *b = gogoBatchTimer{orNil(m.ID), orNil(m.Values)} }
func (b *gogoBatchTimer) message() Message { return (*BatchTimer)(b).message() }
func (b *gogoBatchTimer) clear()           { (*BatchTimer)(b).clear() }

type gogoGauge struct {
	ID    []byte  `protobuf:"bytes,1,opt,name=ID"`
	Value float64 `protobuf:"fixed64,2,opt,name=Value"`
}

// Reset, String and ProtoMessage make this struct a message.
func (g *gogoGauge) Reset()         { *g = gogoGauge{} }
func (g *gogoGauge) String() string { return fmt.Sprint(g.message()) }
func (g *gogoGauge) ProtoMessage()  {}

func (g *gogoGauge) load(m Message)   { *g = gogoGauge{orNil(m.ID), m.Gauge} }
func (g *gogoGauge) message() Message { return (*Gauge)(g).message() }
func (g *gogoGauge) clear()           { (*Gauge)(g).clear() }

type gogoUnion struct {
	Type          int32     `protobuf:"varint,1,opt,name=Type"`
	ID            []byte    `protobuf:"bytes,2,opt,name=ID"`
	CounterVal    int64     `protobuf:"varint,3,opt,name=CounterVal"`
	BatchTimerVal []float64 `protobuf:"fixed64,4,rep,packed,name=BatchTimerVal"`
	GaugeVal      float64   `protobuf:"fixed64,5,opt,name=GaugeVal"`
}

// Reset, String and ProtoMessage make this struct a message.
func (u *gogoUnion) Reset()         { *u = gogoUnion{} }
func (u *gogoUnion) String() string { return fmt.Sprint(u.message()) }
func (u *gogoUnion) ProtoMessage()  {}

func (u *gogoUnion) load(m Message) {
	*u = gogoUnion{int32(m.Type), orNil(m.ID), m.Counter, orNil(m.Values), m.Gauge}
}

func (u *gogoUnion) message() Message {
	return Message{
		Kind: KindUnion, Type: int8(u.Type), ID: u.ID,
		Counter: u.CounterVal, Values: u.BatchTimerVal, Gauge: u.GaugeVal,
	}
}

func (u *gogoUnion) clear() {
	*u = gogoUnion{ID: u.ID[:0], BatchTimerVal: u.BatchTimerVal[:0]}
}
