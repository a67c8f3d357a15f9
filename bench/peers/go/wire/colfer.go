package wire

import "quipu/bench/peers/wire/colfer"

// colferRow is pascaldekloe/colfer.
var colferRow = Row{
	Name: "colfer", Reuses: true,
	New: byKind(
		newColfer(colferCounters, func(m *colfer.Counter) fields { return (*Counter)(m) }),
		newColfer(colferBatchTimers, func(m *colfer.BatchTimer) fields { return (*BatchTimer)(m) }),
		newColfer(colferGauges, func(m *colfer.Gauge) fields { return (*Gauge)(m) }),
		newColfer(colferUnions, func(m *colfer.MetricUnion) fields { return (*colferUnion)(m) }),
	),
}

// colferUnion is the message with an unsigned type, because colfer lacks signed 8-bit integers.
type colferUnion colfer.MetricUnion

func (u *colferUnion) load(m Message) {
	*u = colferUnion{uint8(m.Type), m.ID, m.Counter, m.Values, m.Gauge}
}

func (u *colferUnion) message() Message {
	return Message{
		Kind: KindUnion, Type: int8(u.Type), ID: u.ID,
		Counter: u.CounterVal, Values: u.BatchTimerVal, Gauge: u.GaugeVal,
	}
}

func (u *colferUnion) clear() {
	*u = colferUnion{ID: u.ID[:0], BatchTimerVal: u.BatchTimerVal[:0]}
}

// colferMethods are the generated methods that one loop can use for all messages.
type colferMethods[T any] interface {
	*T
	MarshalBinary() ([]byte, error)
	MarshalLen() (int, error)
	MarshalTo([]byte) int
}

// colferCodec is the codec of one message.
type colferCodec[T any, P colferMethods[T]] struct {
	slots[T]
	unmarshal func(out *T, data []byte, n int) error
}

func newColfer[T any, P colferMethods[T]](
	unmarshal func(P, []byte, int) error, view func(P) fields,
) func() Codec {
	return func() Codec {
		return &colferCodec[T, P]{
			slots:     newSlots(func(m *T) fields { return view(P(m)) }),
			unmarshal: func(m *T, data []byte, n int) error { return unmarshal(P(m), data, n) },
		}
	}
}

// Marshal writes to a buffer that is grown before if necessary.
func (c *colferCodec[T, P]) Marshal(n int) ([]byte, error) {
	in := P(c.in)
	length, err := in.MarshalLen()
	if err != nil {
		return nil, err
	}
	c.buffer = grow(c.buffer, length)
	for range n {
		length = in.MarshalTo(c.buffer)
	}
	return c.buffer[:length], nil
}

// MarshalFresh is the generated method, which makes a buffer of the right length.
func (c *colferCodec[T, P]) MarshalFresh(n int) (fresh []byte, err error) {
	in := P(c.in)
	for range n {
		if fresh, err = in.MarshalBinary(); err != nil {
			return nil, err
		}
	}
	return fresh, nil
}

// Unmarshal reads into a struct that is reused.
func (c *colferCodec[T, P]) Unmarshal(data []byte, n int) error {
	return c.unmarshal(c.out, data, n)
}

// The generated method does not reset a field that is zero, and makes new slices. This is why each
// message needs a separate loop that clears the struct in place.

func colferCounters(out *colfer.Counter, data []byte, n int) error {
	for range n {
		*out = colfer.Counter{}
		if _, err := out.Unmarshal(data); err != nil {
			return err
		}
	}
	return nil
}

func colferBatchTimers(out *colfer.BatchTimer, data []byte, n int) error {
	for range n {
		*out = colfer.BatchTimer{}
		if _, err := out.Unmarshal(data); err != nil {
			return err
		}
	}
	return nil
}

func colferGauges(out *colfer.Gauge, data []byte, n int) error {
	for range n {
		*out = colfer.Gauge{}
		if _, err := out.Unmarshal(data); err != nil {
			return err
		}
	}
	return nil
}

func colferUnions(out *colfer.MetricUnion, data []byte, n int) error {
	for range n {
		*out = colfer.MetricUnion{}
		if _, err := out.Unmarshal(data); err != nil {
			return err
		}
	}
	return nil
}
