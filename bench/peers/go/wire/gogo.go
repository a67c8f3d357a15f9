package wire

import "quipu/bench/peers/wire/gogo"

// gogoProtobuf is gogo/protobuf with generated methods.
var gogoProtobuf = Row{
	Name: "gogo-protobuf", Reuses: true,
	New: byKind(
		newGogo(gogoCounters, func(m *gogo.Counter) fields { return (*Counter)(m) }),
		newGogo(gogoBatchTimers, func(m *gogo.BatchTimer) fields { return (*BatchTimer)(m) }),
		newGogo(gogoGauges, func(m *gogo.Gauge) fields { return (*Gauge)(m) }),
		newGogo(gogoUnions, func(m *gogo.MetricUnion) fields { return (*MetricUnion)(m) }),
	),
}

// gogoMethods are the generated methods that one loop can use for all messages.
type gogoMethods[T any] interface {
	*T
	Marshal() ([]byte, error)
	MarshalTo([]byte) (int, error)
	Size() int
}

// gogoCodec is the codec of one message.
type gogoCodec[T any, P gogoMethods[T]] struct {
	slots[T]
	unmarshal func(out *T, data []byte, n int) error
}

func newGogo[T any, P gogoMethods[T]](
	unmarshal func(P, []byte, int) error, view func(P) fields,
) func() Codec {
	return func() Codec {
		return &gogoCodec[T, P]{
			slots:     newSlots(func(m *T) fields { return view(P(m)) }),
			unmarshal: func(m *T, data []byte, n int) error { return unmarshal(P(m), data, n) },
		}
	}
}

// Marshal writes to a buffer that is grown before if necessary.
func (c *gogoCodec[T, P]) Marshal(n int) ([]byte, error) {
	in := P(c.in)
	c.buffer = grow(c.buffer, in.Size())
	var length int
	var err error
	for range n {
		if length, err = in.MarshalTo(c.buffer); err != nil {
			return nil, err
		}
	}
	return c.buffer[:length], nil
}

// MarshalFresh is the generated method, which makes a buffer of the right length.
func (c *gogoCodec[T, P]) MarshalFresh(n int) (fresh []byte, err error) {
	in := P(c.in)
	for range n {
		if fresh, err = in.Marshal(); err != nil {
			return nil, err
		}
	}
	return fresh, nil
}

// Unmarshal reads into a struct that is reused.
func (c *gogoCodec[T, P]) Unmarshal(data []byte, n int) error {
	return c.unmarshal(c.out, data, n)
}

// The generated method does not reset a field that is zero, and appends to a list. This is why each
// message needs a separate loop that clears the struct in place.

func gogoCounters(out *gogo.Counter, data []byte, n int) error {
	for range n {
		*out = gogo.Counter{ID: out.ID[:0]}
		if err := out.Unmarshal(data); err != nil {
			return err
		}
	}
	return nil
}

func gogoBatchTimers(out *gogo.BatchTimer, data []byte, n int) error {
	for range n {
		*out = gogo.BatchTimer{ID: out.ID[:0], Values: out.Values[:0]}
		if err := out.Unmarshal(data); err != nil {
			return err
		}
	}
	return nil
}

func gogoGauges(out *gogo.Gauge, data []byte, n int) error {
	for range n {
		*out = gogo.Gauge{ID: out.ID[:0]}
		if err := out.Unmarshal(data); err != nil {
			return err
		}
	}
	return nil
}

func gogoUnions(out *gogo.MetricUnion, data []byte, n int) error {
	for range n {
		*out = gogo.MetricUnion{ID: out.ID[:0], BatchTimerVal: out.BatchTimerVal[:0]}
		if err := out.Unmarshal(data); err != nil {
			return err
		}
	}
	return nil
}
