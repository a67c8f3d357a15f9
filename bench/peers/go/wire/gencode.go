package wire

import "quipu/bench/peers/wire/gencode"

// gencodeRow is andyleap/gencode.
var gencodeRow = Row{
	Name: "gencode", Reuses: true,
	New: byKind(
		newGencode(func(m *gencode.Counter) fields { return (*Counter)(m) }),
		newGencode(func(m *gencode.BatchTimer) fields { return (*BatchTimer)(m) }),
		newGencode(func(m *gencode.Gauge) fields { return (*Gauge)(m) }),
		newGencode(func(m *gencode.MetricUnion) fields { return (*MetricUnion)(m) }),
	),
}

// gencodeMethods are the methods that gencode generates.
type gencodeMethods[T any] interface {
	*T
	Marshal([]byte) ([]byte, error)
	Unmarshal([]byte) (uint64, error)
}

// gencodeCodec is the codec of one message.
type gencodeCodec[T any, P gencodeMethods[T]] struct{ slots[T] }

func newGencode[T any, P gencodeMethods[T]](view func(P) fields) func() Codec {
	return func() Codec {
		return &gencodeCodec[T, P]{newSlots(func(m *T) fields { return view(P(m)) })}
	}
}

// Marshal writes to the buffer if it is long enough.
func (c *gencodeCodec[T, P]) Marshal(n int) (_ []byte, err error) {
	in := P(c.in)
	for range n {
		if c.buffer, err = in.Marshal(c.buffer); err != nil {
			return nil, err
		}
	}
	return c.buffer, nil
}

// MarshalFresh writes to a buffer of the right length.
func (c *gencodeCodec[T, P]) MarshalFresh(n int) (fresh []byte, err error) {
	in := P(c.in)
	for range n {
		if fresh, err = in.Marshal(nil); err != nil {
			return nil, err
		}
	}
	return fresh, nil
}

// Unmarshal reads into a struct that is reused.
func (c *gencodeCodec[T, P]) Unmarshal(data []byte, n int) error {
	out := P(c.out)
	for range n {
		if _, err := out.Unmarshal(data); err != nil {
			return err
		}
	}
	return nil
}
