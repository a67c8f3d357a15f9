package wire

import (
	"google.golang.org/protobuf/proto"

	"quipu/bench/peers/wire/protobuf"
)

// googleProtobuf is golang/protobuf, which moved to google.golang.org/protobuf.
var googleProtobuf = Row{
	Name: "protobuf", Reuses: true,
	New: byKind(
		newProtobuf(func(m *protobuf.Counter) fields { return &protoCounter{m} }),
		newProtobuf(func(m *protobuf.BatchTimer) fields { return &protoBatchTimer{m} }),
		newProtobuf(func(m *protobuf.Gauge) fields { return &protoGauge{m} }),
		newProtobuf(func(m *protobuf.MetricUnion) fields { return &protoUnion{m} }),
	),
}

// protoMethods are the methods that protoc-gen-go generates.
type protoMethods[T any] interface {
	*T
	proto.Message
}

// protoCodec is the codec of one message.
type protoCodec[T any, P protoMethods[T]] struct{ slots[T] }

func newProtobuf[T any, P protoMethods[T]](view func(P) fields) func() Codec {
	return func() Codec {
		return &protoCodec[T, P]{newSlots(func(m *T) fields { return view(P(m)) })}
	}
}

// Marshal appends to the cleared buffer.
func (c *protoCodec[T, P]) Marshal(n int) (_ []byte, err error) {
	in := P(c.in)
	for range n {
		if c.buffer, err = (proto.MarshalOptions{}).MarshalAppend(c.buffer[:0], in); err != nil {
			return nil, err
		}
	}
	return c.buffer, nil
}

// MarshalFresh is proto.Marshal.
func (c *protoCodec[T, P]) MarshalFresh(n int) (fresh []byte, err error) {
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
func (c *protoCodec[T, P]) Unmarshal(data []byte, n int) error {
	out, cleared := P(c.out), c.view(c.out)
	options := proto.UnmarshalOptions{Merge: true}
	for range n {
		cleared.clear()
		if err := options.Unmarshal(data, out); err != nil {
			return err
		}
	}
	return nil
}

type protoCounter struct{ *protobuf.Counter }

func (c *protoCounter) load(m Message) { c.Id, c.Value = m.ID, m.Counter }

func (c *protoCounter) message() Message {
	return Message{Kind: KindCounter, ID: c.Id, Counter: c.Value}
}

func (c *protoCounter) clear() { c.Id, c.Value = c.Id[:0], 0 }

type protoBatchTimer struct{ *protobuf.BatchTimer }

func (b *protoBatchTimer) load(m Message) { b.Id, b.Values = m.ID, m.Values }

func (b *protoBatchTimer) message() Message {
	return Message{Kind: KindBatchTimer, ID: b.Id, Values: b.Values}
}

func (b *protoBatchTimer) clear() { b.Id, b.Values = b.Id[:0], b.Values[:0] }

type protoGauge struct{ *protobuf.Gauge }

func (g *protoGauge) load(m Message) { g.Id, g.Value = m.ID, m.Gauge }

func (g *protoGauge) message() Message {
	return Message{Kind: KindGauge, ID: g.Id, Gauge: g.Value}
}

func (g *protoGauge) clear() { g.Id, g.Value = g.Id[:0], 0 }

type protoUnion struct{ *protobuf.MetricUnion }

func (u *protoUnion) load(m Message) {
	u.Type, u.Id, u.CounterVal = protobuf.Type(m.Type), m.ID, m.Counter
	u.BatchTimerVal, u.GaugeVal = m.Values, m.Gauge
}

func (u *protoUnion) message() Message {
	return Message{
		Kind: KindUnion, Type: int8(u.Type), ID: u.Id,
		Counter: u.CounterVal, Values: u.BatchTimerVal, Gauge: u.GaugeVal,
	}
}

func (u *protoUnion) clear() {
	u.Type, u.Id, u.CounterVal = 0, u.Id[:0], 0
	u.BatchTimerVal, u.GaugeVal = u.BatchTimerVal[:0], 0
}
