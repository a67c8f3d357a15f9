package wire

import "quipu/bench/peers/wire/msgp"

// tinylibMsgp is tinylib/msgp.
var tinylibMsgp = Row{
	Name: "tinylib-msgp", Reuses: true,
	New: byKind(
		newMsgp(func(m *msgp.Counter) fields { return (*Counter)(m) }),
		newMsgp(func(m *msgp.BatchTimer) fields { return (*BatchTimer)(m) }),
		newMsgp(func(m *msgp.Gauge) fields { return (*Gauge)(m) }),
		newMsgp(func(m *msgp.MetricUnion) fields { return (*MetricUnion)(m) }),
	),
}

// msgpMethods are the methods that msgp generates.
type msgpMethods[T any] interface {
	*T
	MarshalMsg([]byte) ([]byte, error)
	UnmarshalMsg([]byte) ([]byte, error)
}

// msgpCodec is the codec of one message.
type msgpCodec[T any, P msgpMethods[T]] struct{ slots[T] }

func newMsgp[T any, P msgpMethods[T]](view func(P) fields) func() Codec {
	return func() Codec {
		return &msgpCodec[T, P]{newSlots(func(m *T) fields { return view(P(m)) })}
	}
}

// Marshal appends to the cleared buffer.
func (c *msgpCodec[T, P]) Marshal(n int) (_ []byte, err error) {
	in := P(c.in)
	for range n {
		if c.buffer, err = in.MarshalMsg(c.buffer[:0]); err != nil {
			return nil, err
		}
	}
	return c.buffer, nil
}

// MarshalFresh appends to a nil slice.
func (c *msgpCodec[T, P]) MarshalFresh(n int) (fresh []byte, err error) {
	in := P(c.in)
	for range n {
		if fresh, err = in.MarshalMsg(nil); err != nil {
			return nil, err
		}
	}
	return fresh, nil
}

// Unmarshal reads into a struct that is reused.
func (c *msgpCodec[T, P]) Unmarshal(data []byte, n int) error {
	out := P(c.out)
	for range n {
		if _, err := out.UnmarshalMsg(data); err != nil {
			return err
		}
	}
	return nil
}
