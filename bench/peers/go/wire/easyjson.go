package wire

import (
	"github.com/mailru/easyjson/jwriter"

	"quipu/bench/peers/wire/easyjson"
)

// easyJSON is mailru/easyjson.
var easyJSON = Row{
	Name: "easyjson", Reuses: true,
	New: easy(
		newEasyJSON[easyjson.Counter], newEasyJSON[easyjson.BatchTimer],
		newEasyJSON[easyjson.Gauge], newEasyJSON[easyjson.MetricUnion],
	),
}

// easy makes codecs for the structs with methods of easyjson.
func easy(
	counter func(slots[easyjson.Counter]) Codec,
	batchTimer func(slots[easyjson.BatchTimer]) Codec,
	gauge func(slots[easyjson.Gauge]) Codec,
	union func(slots[easyjson.MetricUnion]) Codec,
) func(Kind) Codec {
	return byKind(
		func() Codec {
			return counter(newSlots(func(m *easyjson.Counter) fields { return (*Counter)(m) }))
		},
		func() Codec {
			return batchTimer(newSlots(func(m *easyjson.BatchTimer) fields { return (*BatchTimer)(m) }))
		},
		func() Codec {
			return gauge(newSlots(func(m *easyjson.Gauge) fields { return (*Gauge)(m) }))
		},
		func() Codec {
			return union(newSlots(func(m *easyjson.MetricUnion) fields { return (*MetricUnion)(m) }))
		},
	)
}

// easyMethods are the methods that easyjson generates.
type easyMethods[T any] interface {
	*T
	MarshalEasyJSON(*jwriter.Writer)
	MarshalJSON() ([]byte, error)
	UnmarshalJSON([]byte) error
}

// easyCodec is the codec of one message.
type easyCodec[T any, P easyMethods[T]] struct{ slots[T] }

func newEasyJSON[T any, P easyMethods[T]](s slots[T]) Codec {
	return &easyCodec[T, P]{s}
}

// room is the free space that the writer requires for a number. With less, it continues in another
// buffer.
const room = 32

// Marshal gives the writer the buffer of the last message, and takes this buffer back.
func (c *easyCodec[T, P]) Marshal(n int) ([]byte, error) {
	in := P(c.in)
	var w jwriter.Writer
	var out []byte
	for range n {
		w.Buffer.Buf = c.buffer[:0]
		in.MarshalEasyJSON(&w)
		var err error
		if out, err = w.BuildBytes(); err != nil {
			return nil, err
		}
		if cap(c.buffer) < len(out)+room {
			c.buffer = make([]byte, 0, len(out)+room)
		}
	}
	return out, nil
}

// MarshalFresh is the generated method.
func (c *easyCodec[T, P]) MarshalFresh(n int) (fresh []byte, err error) {
	in := P(c.in)
	for range n {
		fresh, err = in.MarshalJSON()
		if err != nil {
			return nil, err
		}
	}
	return fresh, nil
}

// Unmarshal is the generated method, into a struct that is reused.
func (c *easyCodec[T, P]) Unmarshal(data []byte, n int) error {
	out := P(c.out)
	for range n {
		if err := out.UnmarshalJSON(data); err != nil {
			return err
		}
	}
	return nil
}
