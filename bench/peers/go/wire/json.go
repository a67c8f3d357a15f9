package wire

import (
	"bytes"
	"encoding/json"
)

// jsonReflection is encoding/json by itself. It writes exponents for fewer floats than easyjson, so
// the output for large and small floats differs.
var jsonReflection = Row{
	Name: "json-reflection", Reuses: true,
	New: plain(newJSON, newJSON, newJSON, newJSON),
}

// jsonMethods is encoding/json like in the original comparison: with the structs that easyjson
// generated methods for. These methods write and read JSON, and encoding/json validates this JSON.
var jsonMethods = Row{
	Name: "json", Reuses: true,
	New: easy(newJSON, newJSON, newJSON, newJSON),
}

// jsonCodec is the codec of one message.
type jsonCodec[T any] struct {
	slots[T]
	encoder *json.Encoder
	kept    bytes.Buffer
}

func newJSON[T any](s slots[T]) Codec {
	c := &jsonCodec[T]{slots: s}
	c.encoder = json.NewEncoder(&c.kept)
	return c
}

// Marshal reuses the encoder and the buffer. The encoder writes a newline after a message. This
// newline is not part of the message.
func (c *jsonCodec[T]) Marshal(n int) ([]byte, error) {
	for range n {
		c.kept.Reset()
		if err := c.encoder.Encode(c.in); err != nil {
			return nil, err
		}
	}
	return bytes.TrimSuffix(c.kept.Bytes(), []byte("\n")), nil
}

// MarshalFresh is json.Marshal.
func (c *jsonCodec[T]) MarshalFresh(n int) (fresh []byte, err error) {
	for range n {
		fresh, err = json.Marshal(c.in)
		if err != nil {
			return nil, err
		}
	}
	return fresh, nil
}

// Unmarshal is json.Unmarshal into a struct that is reused.
func (c *jsonCodec[T]) Unmarshal(data []byte, n int) error {
	for range n {
		if err := json.Unmarshal(data, c.out); err != nil {
			return err
		}
	}
	return nil
}
