package wire

import (
	"context"

	apache "github.com/apache/thrift/lib/go/thrift"

	"quipu/bench/peers/wire/thrift"
)

// thriftBinary is apache/thrift with its binary protocol.
var thriftBinary = thriftRow("thrift", apache.NewTBinaryProtocolFactoryConf(nil))

// thriftCompact is apache/thrift with its compact protocol.
var thriftCompact = thriftRow("thrift-compact", apache.NewTCompactProtocolFactoryConf(nil))

func thriftRow(name string, factory apache.TProtocolFactory) Row {
	return Row{
		Name: name, Reuses: true,
		New: byKind(
			newThrift(factory, func(m *thrift.Counter) fields { return (*Counter)(m) }),
			newThrift(factory, func(m *thrift.BatchTimer) fields { return (*BatchTimer)(m) }),
			newThrift(factory, func(m *thrift.Gauge) fields { return (*Gauge)(m) }),
			newThrift(factory, func(m *thrift.MetricUnion) fields { return (*MetricUnion)(m) }),
		),
	}
}

// thriftMethods are the methods that thrift generates.
type thriftMethods[T any] interface {
	*T
	apache.TStruct
}

// thriftCodec is the codec of one message.
type thriftCodec[T any, P thriftMethods[T]] struct {
	slots[T]
	serializer   *apache.TSerializer
	deserializer *apache.TDeserializer
}

func newThrift[T any, P thriftMethods[T]](
	factory apache.TProtocolFactory, view func(P) fields,
) func() Codec {
	return func() Codec {
		writer, reader := apache.NewTMemoryBuffer(), apache.NewTMemoryBuffer()
		return &thriftCodec[T, P]{
			slots:        newSlots(func(m *T) fields { return view(P(m)) }),
			serializer:   &apache.TSerializer{Transport: writer, Protocol: factory.GetProtocol(writer)},
			deserializer: &apache.TDeserializer{Transport: reader, Protocol: factory.GetProtocol(reader)},
		}
	}
}

// Marshal reuses the protocol and its transport's buffer, and does not copy its content.
func (c *thriftCodec[T, P]) Marshal(n int) ([]byte, error) {
	in, ctx := P(c.in), context.Background()
	transport, protocol := c.serializer.Transport, c.serializer.Protocol
	for range n {
		transport.Reset()
		if err := in.Write(ctx, protocol); err != nil {
			return nil, err
		}
		if err := protocol.Flush(ctx); err != nil {
			return nil, err
		}
	}
	return transport.Bytes(), nil
}

// MarshalFresh is thrift's serializer, which copies its buffer to a new one.
func (c *thriftCodec[T, P]) MarshalFresh(n int) (fresh []byte, err error) {
	in, ctx := P(c.in), context.Background()
	for range n {
		if fresh, err = c.serializer.Write(ctx, in); err != nil {
			return nil, err
		}
	}
	return fresh, nil
}

// Unmarshal is thrift's deserializer, which copies the data to the buffer of its transport.
func (c *thriftCodec[T, P]) Unmarshal(data []byte, n int) error {
	out, ctx := P(c.out), context.Background()
	for range n {
		if err := c.deserializer.Read(ctx, out, data); err != nil {
			return err
		}
	}
	return nil
}
