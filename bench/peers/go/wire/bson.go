package wire

import "gopkg.in/mgo.v2/bson"

// bsonMgo is the bson of mgo.v2.
var bsonMgo = Row{
	Name: "bson",
	New:  plain(newBSON, newBSON, newBSON, newBSON),
}

// bsonCodec is the codec of one message.
type bsonCodec[T any] struct{ slots[T] }

func newBSON[T any](s slots[T]) Codec {
	return &bsonCodec[T]{s}
}

// Marshal is MarshalFresh, because the library makes the buffer.
func (c *bsonCodec[T]) Marshal(n int) ([]byte, error) { return c.MarshalFresh(n) }

// MarshalFresh is bson.Marshal.
func (c *bsonCodec[T]) MarshalFresh(n int) (fresh []byte, err error) {
	for range n {
		fresh, err = bson.Marshal(c.in)
		if err != nil {
			return nil, err
		}
	}
	return fresh, nil
}

// Unmarshal is bson.Unmarshal, which clears the struct.
func (c *bsonCodec[T]) Unmarshal(data []byte, n int) error {
	for range n {
		if err := bson.Unmarshal(data, c.out); err != nil {
			return err
		}
	}
	return nil
}
