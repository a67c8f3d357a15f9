package wire

import (
	"fmt"
	"slices"

	"github.com/davecgh/go-xdr/xdr"
)

// xdrReflection is davecgh/go-xdr with reflection, like in the original comparison. This library
// borrows the id from the data.
var xdrReflection = Row{
	Name: "xdr",
	New:  plain(newXDR, newXDR, newXDR, newXDR),
}

// xdrPrimitives is davecgh/go-xdr called by hand for each field, with an encoder that is reused.
var xdrPrimitives = Row{
	Name: "xdr-primitives", Reuses: true,
	New: plain(
		newXDRPrimitives(writeCounter, scanCounter),
		newXDRPrimitives(writeBatchTimer, scanBatchTimer),
		newXDRPrimitives(writeGauge, scanGauge),
		newXDRPrimitives(writeUnion, scanUnion),
	),
}

// xdrCodec is the codec of one message.
type xdrCodec[T any] struct{ slots[T] }

func newXDR[T any](s slots[T]) Codec {
	return &xdrCodec[T]{s}
}

// Marshal is MarshalFresh, because the library makes the buffer.
func (c *xdrCodec[T]) Marshal(n int) ([]byte, error) { return c.MarshalFresh(n) }

// MarshalFresh is xdr.Marshal.
func (c *xdrCodec[T]) MarshalFresh(n int) (fresh []byte, err error) {
	for range n {
		fresh, err = xdr.Marshal(c.in)
		if err != nil {
			return nil, err
		}
	}
	return fresh, nil
}

// Unmarshal is xdr.Unmarshal into a struct that is reused. The codec clears this struct
// first, because xdr.Unmarshal does not shorten a slice.
func (c *xdrCodec[T]) Unmarshal(data []byte, n int) error {
	out := c.view(c.out)
	for range n {
		out.clear()
		if _, err := xdr.Unmarshal(data, c.out); err != nil {
			return err
		}
	}
	return nil
}

// xdrPrimitive is the codec of one message, with a function for each direction.
type xdrPrimitive[T any] struct {
	slots[T]
	encoder *xdr.Encoder
	write   func(*xdr.Encoder, *T) error
	read    func(*xdr.Decoder, *T) error
}

func newXDRPrimitives[T any](
	write func(*xdr.Encoder, *T) error, read func(*xdr.Decoder, *T) error,
) func(slots[T]) Codec {
	return func(s slots[T]) Codec {
		return &xdrPrimitive[T]{s, xdr.NewEncoder(), write, read}
	}
}

// Marshal reuses the encoder, which contains the buffer.
func (c *xdrPrimitive[T]) Marshal(n int) ([]byte, error) {
	for range n {
		c.encoder.Reset()
		if err := c.write(c.encoder, c.in); err != nil {
			return nil, err
		}
	}
	return c.encoder.Data(), nil
}

// MarshalFresh makes an encoder each time.
func (c *xdrPrimitive[T]) MarshalFresh(n int) (fresh []byte, _ error) {
	for range n {
		encoder := xdr.NewEncoder()
		if err := c.write(encoder, c.in); err != nil {
			return nil, err
		}
		fresh = encoder.Data()
	}
	return fresh, nil
}

// Unmarshal makes a decoder each time, because the data of a decoder cannot be changed.
func (c *xdrPrimitive[T]) Unmarshal(data []byte, n int) error {
	for range n {
		if err := c.read(xdr.NewDecoder(data), c.out); err != nil {
			return err
		}
	}
	return nil
}

func writeCounter(to *xdr.Encoder, in *Counter) error {
	if err := to.EncodeOpaque(in.ID); err != nil {
		return err
	}
	return to.EncodeHyper(in.Value)
}

func writeBatchTimer(to *xdr.Encoder, in *BatchTimer) error {
	if err := to.EncodeOpaque(in.ID); err != nil {
		return err
	}
	return writeValues(to, in.Values)
}

func writeGauge(to *xdr.Encoder, in *Gauge) error {
	if err := to.EncodeOpaque(in.ID); err != nil {
		return err
	}
	return to.EncodeDouble(in.Value)
}

func writeUnion(to *xdr.Encoder, in *MetricUnion) error {
	if err := to.EncodeInt(int32(in.Type)); err != nil {
		return err
	}
	if err := to.EncodeOpaque(in.ID); err != nil {
		return err
	}
	if err := to.EncodeHyper(in.CounterVal); err != nil {
		return err
	}
	if err := writeValues(to, in.BatchTimerVal); err != nil {
		return err
	}
	return to.EncodeDouble(in.GaugeVal)
}

func writeValues(to *xdr.Encoder, values []float64) error {
	if err := to.EncodeUint(uint32(len(values))); err != nil {
		return err
	}
	for _, value := range values {
		if err := to.EncodeDouble(value); err != nil {
			return err
		}
	}
	return nil
}

func scanCounter(from *xdr.Decoder, out *Counter) (err error) {
	if out.ID, err = readID(from, out.ID); err != nil {
		return err
	}
	out.Value, err = from.DecodeHyper()
	return err
}

func scanBatchTimer(from *xdr.Decoder, out *BatchTimer) (err error) {
	if out.ID, err = readID(from, out.ID); err != nil {
		return err
	}
	out.Values, err = readValues(from, out.Values)
	return err
}

func scanGauge(from *xdr.Decoder, out *Gauge) (err error) {
	if out.ID, err = readID(from, out.ID); err != nil {
		return err
	}
	out.Value, err = from.DecodeDouble()
	return err
}

func scanUnion(from *xdr.Decoder, out *MetricUnion) error {
	tag, err := from.DecodeInt()
	if err != nil {
		return err
	}
	out.Type = int8(tag)
	if out.ID, err = readID(from, out.ID); err != nil {
		return err
	}
	if out.CounterVal, err = from.DecodeHyper(); err != nil {
		return err
	}
	if out.BatchTimerVal, err = readValues(from, out.BatchTimerVal); err != nil {
		return err
	}
	out.GaugeVal, err = from.DecodeDouble()
	return err
}

// readID copies the id, like most rows.
func readID(from *xdr.Decoder, kept []byte) ([]byte, error) {
	id, err := from.DecodeOpaque()
	return append(kept[:0], id...), err
}

func readValues(from *xdr.Decoder, kept []float64) ([]float64, error) {
	length, err := from.DecodeUint()
	if err != nil {
		return kept, err
	}
	if length > 1<<20 {
		return kept, fmt.Errorf("xdr: a list of %d values", length)
	}
	kept = slices.Grow(kept[:0], int(length))[:length]
	for i := range kept {
		if kept[i], err = from.DecodeDouble(); err != nil {
			return kept, err
		}
	}
	return kept, nil
}
