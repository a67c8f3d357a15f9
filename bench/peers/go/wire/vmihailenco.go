package wire

import (
	"bytes"
	"fmt"
	"io"
	"slices"

	"gopkg.in/vmihailenco/msgpack.v2"
)

// vmihailencoMsgpack is vmihailenco/msgpack, called by hand for each field, like in the original
// comparison: there are no names, and no list of the fields.
var vmihailencoMsgpack = Row{
	Name: "vmihailenco-msgpack", Reuses: true,
	New: plain(
		newVmihailenco(packCounter, unpackCounter),
		newVmihailenco(packBatchTimer, unpackBatchTimer),
		newVmihailenco(packGauge, unpackGauge),
		newVmihailenco(packUnion, unpackUnion),
	),
}

// vmihailenco is the codec of one message.
type vmihailenco[T any] struct {
	slots[T]
	encoder *msgpack.Encoder
	kept    bytes.Buffer
	from    unpacker
	pack    func(*msgpack.Encoder, *T) error
	unpack  func(*unpacker, *T) error
}

func newVmihailenco[T any](
	pack func(*msgpack.Encoder, *T) error, unpack func(*unpacker, *T) error,
) func(slots[T]) Codec {
	return func(s slots[T]) Codec {
		c := &vmihailenco[T]{slots: s, pack: pack, unpack: unpack}
		c.encoder = msgpack.NewEncoder(&c.kept)
		c.from.Decoder = msgpack.NewDecoder(&c.from.reader)
		return c
	}
}

// Marshal reuses the encoder and the buffer.
func (c *vmihailenco[T]) Marshal(n int) ([]byte, error) {
	for range n {
		c.kept.Reset()
		if err := c.pack(c.encoder, c.in); err != nil {
			return nil, err
		}
	}
	return c.kept.Bytes(), nil
}

// MarshalFresh makes an encoder each time, because the buffer of an encoder cannot be changed.
func (c *vmihailenco[T]) MarshalFresh(n int) ([]byte, error) {
	var fresh *bytes.Buffer
	for range n {
		fresh = new(bytes.Buffer)
		if err := c.pack(msgpack.NewEncoder(fresh), c.in); err != nil {
			return nil, err
		}
	}
	return fresh.Bytes(), nil
}

// Unmarshal reuses the decoder, the reader and the struct.
func (c *vmihailenco[T]) Unmarshal(data []byte, n int) error {
	for range n {
		c.from.reader.Reset(data)
		if err := c.unpack(&c.from, c.out); err != nil {
			return err
		}
	}
	return nil
}

func packCounter(to *msgpack.Encoder, in *Counter) error {
	if err := to.EncodeBytes(in.ID); err != nil {
		return err
	}
	return to.EncodeInt64(in.Value)
}

func packBatchTimer(to *msgpack.Encoder, in *BatchTimer) error {
	if err := to.EncodeBytes(in.ID); err != nil {
		return err
	}
	return packValues(to, in.Values)
}

func packGauge(to *msgpack.Encoder, in *Gauge) error {
	if err := to.EncodeBytes(in.ID); err != nil {
		return err
	}
	return to.EncodeFloat64(in.Value)
}

func packUnion(to *msgpack.Encoder, in *MetricUnion) error {
	if err := to.EncodeInt8(in.Type); err != nil {
		return err
	}
	if err := to.EncodeBytes(in.ID); err != nil {
		return err
	}
	if err := to.EncodeInt64(in.CounterVal); err != nil {
		return err
	}
	if err := packValues(to, in.BatchTimerVal); err != nil {
		return err
	}
	return to.EncodeFloat64(in.GaugeVal)
}

func packValues(to *msgpack.Encoder, values []float64) error {
	if err := to.EncodeSliceLen(len(values)); err != nil {
		return err
	}
	for _, value := range values {
		if err := to.EncodeFloat64(value); err != nil {
			return err
		}
	}
	return nil
}

// unpacker is a decoder and its input.
type unpacker struct {
	*msgpack.Decoder
	reader bytes.Reader
}

func unpackCounter(from *unpacker, out *Counter) (err error) {
	if out.ID, err = from.id(out.ID); err != nil {
		return err
	}
	out.Value, err = from.DecodeInt64()
	return err
}

func unpackBatchTimer(from *unpacker, out *BatchTimer) (err error) {
	if out.ID, err = from.id(out.ID); err != nil {
		return err
	}
	out.Values, err = from.values(out.Values)
	return err
}

func unpackGauge(from *unpacker, out *Gauge) (err error) {
	if out.ID, err = from.id(out.ID); err != nil {
		return err
	}
	out.Value, err = from.DecodeFloat64()
	return err
}

func unpackUnion(from *unpacker, out *MetricUnion) (err error) {
	if out.Type, err = from.DecodeInt8(); err != nil {
		return err
	}
	if out.ID, err = from.id(out.ID); err != nil {
		return err
	}
	if out.CounterVal, err = from.DecodeInt64(); err != nil {
		return err
	}
	if out.BatchTimerVal, err = from.values(out.BatchTimerVal); err != nil {
		return err
	}
	out.GaugeVal, err = from.DecodeFloat64()
	return err
}

// id reads bytes into the reused slice. It bypasses the decoder, because the decoder's method makes
// a new slice.
func (u *unpacker) id(kept []byte) ([]byte, error) {
	length, err := u.DecodeBytesLen()
	if err != nil {
		return kept, err
	}
	if length < 0 || length > u.reader.Len() {
		return kept, fmt.Errorf("msgpack: an id of %d bytes", length)
	}
	kept = grow(kept, length)
	_, err = io.ReadFull(&u.reader, kept)
	return kept, err
}

func (u *unpacker) values(kept []float64) ([]float64, error) {
	length, err := u.DecodeSliceLen()
	if err != nil {
		return kept, err
	}
	if length < 0 || length > u.reader.Len() {
		return kept, fmt.Errorf("msgpack: a list of %d values", length)
	}
	kept = slices.Grow(kept[:0], length)[:length]
	for i := range kept {
		if kept[i], err = u.DecodeFloat64(); err != nil {
			return kept, err
		}
	}
	return kept, nil
}
