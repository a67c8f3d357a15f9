package wire

import (
	"bytes"
	"encoding/gob"
	"io"
)

// gobFresh is encoding/gob with a new encoder and decoder for each message. This includes the
// definition of the type each time.
var gobFresh = Row{
	Name: "gob", Reuses: true,
	New: plain(newGob, newGob, newGob, newGob),
}

// gobStream is encoding/gob in the middle of a stream: only the message of the value.
var gobStream = Row{
	Name: "gob-stream", Reuses: true,
	New: plain(newGobStream, newGobStream, newGobStream, newGobStream),
}

// Gob numbers the types of a process in the order of their first use. This function fixes the
// order.
func init() {
	encoder := gob.NewEncoder(io.Discard)
	for _, m := range []any{&Counter{}, &BatchTimer{}, &Gauge{}, &MetricUnion{}} {
		if err := encoder.Encode(m); err != nil {
			panic(err)
		}
	}
}

// gobCodec is the codec of one message, without a stream.
type gobCodec[T any] struct {
	slots[T]
	kept   bytes.Buffer
	reader bytes.Reader
}

func newGob[T any](s slots[T]) Codec {
	return &gobCodec[T]{slots: s}
}

// Marshal reuses the buffer.
func (c *gobCodec[T]) Marshal(n int) ([]byte, error) {
	for range n {
		c.kept.Reset()
		if err := gob.NewEncoder(&c.kept).Encode(c.in); err != nil {
			return nil, err
		}
	}
	return c.kept.Bytes(), nil
}

// MarshalFresh reuses neither the buffer nor the encoder.
func (c *gobCodec[T]) MarshalFresh(n int) ([]byte, error) {
	var fresh *bytes.Buffer
	for range n {
		fresh = new(bytes.Buffer)
		if err := gob.NewEncoder(fresh).Encode(c.in); err != nil {
			return nil, err
		}
	}
	return fresh.Bytes(), nil
}

// Unmarshal reuses the reader and the struct. Gob does not reset a field that is zero.
func (c *gobCodec[T]) Unmarshal(data []byte, n int) error {
	out := c.view(c.out)
	for range n {
		out.clear()
		c.reader.Reset(data)
		if err := gob.NewDecoder(&c.reader).Decode(c.out); err != nil {
			return err
		}
	}
	return nil
}

// gobStreamCodec is the codec of one message, with its own stream.
type gobStreamCodec[T any] struct {
	slots[T]
	encoder *gob.Encoder
	decoder *gob.Decoder
	// writer is the target of the encoder.
	writer redirected
	kept   bytes.Buffer
	reader bytes.Reader
}

// redirected forwards to another writer, which can be changed.
type redirected struct{ to io.Writer }

func (r *redirected) Write(p []byte) (int, error) { return r.to.Write(p) }

func newGobStream[T any](s slots[T]) Codec {
	c := &gobStreamCodec[T]{slots: s}
	c.writer.to = &c.kept
	c.encoder = gob.NewEncoder(&c.writer)
	c.decoder = gob.NewDecoder(&c.reader)
	// The first message carries the definition to the decoder.
	if err := c.encoder.Encode(c.in); err != nil {
		panic(err)
	}
	c.reader.Reset(c.kept.Bytes())
	if err := c.decoder.Decode(c.out); err != nil {
		panic(err)
	}
	return c
}

// Marshal reuses the encoder and the buffer.
func (c *gobStreamCodec[T]) Marshal(n int) ([]byte, error) {
	c.writer.to = &c.kept
	for range n {
		c.kept.Reset()
		if err := c.encoder.Encode(c.in); err != nil {
			return nil, err
		}
	}
	return c.kept.Bytes(), nil
}

// MarshalFresh reuses the encoder.
func (c *gobStreamCodec[T]) MarshalFresh(n int) ([]byte, error) {
	var fresh *bytes.Buffer
	for range n {
		fresh = new(bytes.Buffer)
		c.writer.to = fresh
		if err := c.encoder.Encode(c.in); err != nil {
			return nil, err
		}
	}
	return fresh.Bytes(), nil
}

// Unmarshal reuses the decoder, the reader and the struct.
func (c *gobStreamCodec[T]) Unmarshal(data []byte, n int) error {
	out := c.view(c.out)
	for range n {
		out.clear()
		c.reader.Reset(data)
		if err := c.decoder.Decode(c.out); err != nil {
			return err
		}
	}
	return nil
}
