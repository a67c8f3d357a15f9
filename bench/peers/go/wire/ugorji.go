package wire

import "github.com/ugorji/go/codec"

// ugorjiMsgpack is ugorji/go/codec with its handle for MessagePack, configured to write the same
// bytes as in 2017: fields in the order of their names, positive integers unsigned.
var ugorjiMsgpack = Row{
	Name: "ugorji-msgpack", Reuses: true,
	New: plain(newUgorji, newUgorji, newUgorji, newUgorji),
}

// ugorji is the codec of one message.
type ugorji[T any] struct {
	slots[T]
	encoder *codec.Encoder
	decoder *codec.Decoder
}

func newUgorji[T any](s slots[T]) Codec {
	handle := &codec.MsgpackHandle{PositiveIntUnsigned: true}
	handle.Canonical = true
	return &ugorji[T]{
		slots:   s,
		encoder: codec.NewEncoderBytes(new([]byte), handle),
		decoder: codec.NewDecoderBytes(nil, handle),
	}
}

// Marshal reuses the encoder and the buffer.
func (c *ugorji[T]) Marshal(n int) ([]byte, error) {
	for range n {
		c.encoder.ResetBytes(&c.buffer)
		if err := c.encoder.Encode(c.in); err != nil {
			return nil, err
		}
	}
	return c.buffer, nil
}

// MarshalFresh reuses the encoder.
func (c *ugorji[T]) MarshalFresh(n int) ([]byte, error) {
	var fresh []byte
	for range n {
		fresh = nil
		c.encoder.ResetBytes(&fresh)
		if err := c.encoder.Encode(c.in); err != nil {
			return nil, err
		}
	}
	return fresh, nil
}

// Unmarshal reuses the decoder.
func (c *ugorji[T]) Unmarshal(data []byte, n int) error {
	for range n {
		c.decoder.ResetBytes(data)
		if err := c.decoder.Decode(c.out); err != nil {
			return err
		}
	}
	return nil
}
