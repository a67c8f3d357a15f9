// Package colfer contains the messages with the methods that colfer
// (github.com/pascaldekloe/colfer) generates from this schema. They are written by hand in the form
// that the compiler emits, because this compiler is not available as a module: a header byte for
// each nonzero field, varints of at most 9 bytes, floats as big endian words, and new slices for
// bytes and lists that are read.
//
//	type counter struct { ID binary  value int64 }
//	type batchTimer struct { ID binary  values []float64 }
//	type gauge struct { ID binary  value float64 }
//	type metricUnion struct { type uint8  ID binary  counterVal int64  batchTimerVal []float64
//		gaugeVal float64 }
package colfer

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
)

// The limits that the compiler sets by default.
const (
	// SizeMax is the upper limit of the length of a message, in bytes.
	SizeMax = 16 * 1024 * 1024
	// ListMax is the upper limit of the number of elements of a list.
	ListMax = 64 * 1024
)

// end is the byte after the last field.
const end = 0x7f

// TooLarge is the error for a value that exceeds a limit.
type TooLarge string

// Error names the value and the limit.
func (m TooLarge) Error() string { return string(m) }

// Unknown is the error of a byte, at this index, that is neither a known header nor the end.
type Unknown int

// Error names the position of the byte.
func (i Unknown) Error() string {
	return fmt.Sprintf("colfer: unknown header at byte %d", int(i))
}

// Counter is a count under an id.
type Counter struct {
	ID    []byte
	Value int64
}

// MarshalTo writes the message to a buffer that must be long enough, and returns its length.
func (o *Counter) MarshalTo(buf []byte) int {
	var i int
	if l := len(o.ID); l != 0 {
		buf[i] = 0
		i++
		x := uint(l)
		for x >= 0x80 {
			buf[i] = byte(x | 0x80)
			x >>= 7
			i++
		}
		buf[i] = byte(x)
		i++
		i += copy(buf[i:], o.ID)
	}
	if v := o.Value; v != 0 {
		x := uint64(v)
		if v >= 0 {
			buf[i] = 1
		} else {
			x = ^x + 1
			buf[i] = 1 | 0x80
		}
		i++
		for n := 0; x >= 0x80 && n < 8; n++ {
			buf[i] = byte(x | 0x80)
			x >>= 7
			i++
		}
		buf[i] = byte(x)
		i++
	}
	buf[i] = end
	return i + 1
}

// MarshalLen is the length of the marshalled message.
func (o *Counter) MarshalLen() (int, error) {
	l := 1
	if x := len(o.ID); x != 0 {
		if x > SizeMax {
			return 0, TooLarge("colfer: field counter.ID exceeds the limit of bytes")
		}
		for l += x + 2; x >= 0x80; l++ {
			x >>= 7
		}
	}
	if v := o.Value; v != 0 {
		l += lenInt64(v)
	}
	if l > SizeMax {
		return l, TooLarge("colfer: struct counter exceeds the limit of bytes")
	}
	return l, nil
}

// MarshalBinary writes the message to a new buffer.
func (o *Counter) MarshalBinary() ([]byte, error) {
	l, err := o.MarshalLen()
	if err != nil {
		return nil, err
	}
	data := make([]byte, l)
	o.MarshalTo(data)
	return data, nil
}

// Unmarshal reads this message, and returns its length. A field that is zero stays unchanged.
func (o *Counter) Unmarshal(data []byte) (int, error) {
	if len(data) == 0 {
		return 0, io.EOF
	}
	header := data[0]
	i := 1
	if header == 0 {
		x, next := length(data, i)
		if next < 0 {
			return 0, io.EOF
		}
		i = next
		if x > SizeMax {
			return 0, TooLarge("colfer: counter.ID exceeds the limit of bytes")
		}
		start := i
		i += int(x)
		if i >= len(data) {
			return 0, io.EOF
		}
		v := make([]byte, int(x))
		copy(v, data[start:i])
		o.ID = v
		header = data[i]
		i++
	}
	if header&0x7f == 1 {
		x, next := word(data, i)
		if next < 0 || next >= len(data) {
			return 0, io.EOF
		}
		i = next
		if header&0x80 != 0 {
			x = ^x + 1
		}
		o.Value = int64(x)
		header = data[i]
		i++
	}
	if header != end {
		return 0, Unknown(i - 1)
	}
	return i, nil
}

// BatchTimer is a list of times under an id.
type BatchTimer struct {
	ID     []byte
	Values []float64
}

// MarshalTo writes the message to a buffer that must be long enough, and returns its length.
func (o *BatchTimer) MarshalTo(buf []byte) int {
	var i int
	if l := len(o.ID); l != 0 {
		buf[i] = 0
		i++
		x := uint(l)
		for x >= 0x80 {
			buf[i] = byte(x | 0x80)
			x >>= 7
			i++
		}
		buf[i] = byte(x)
		i++
		i += copy(buf[i:], o.ID)
	}
	if l := len(o.Values); l != 0 {
		buf[i] = 1
		i++
		x := uint(l)
		for x >= 0x80 {
			buf[i] = byte(x | 0x80)
			x >>= 7
			i++
		}
		buf[i] = byte(x)
		i++
		for _, v := range o.Values {
			binary.BigEndian.PutUint64(buf[i:], math.Float64bits(v))
			i += 8
		}
	}
	buf[i] = end
	return i + 1
}

// MarshalLen is the length of the marshalled message.
func (o *BatchTimer) MarshalLen() (int, error) {
	l := 1
	if x := len(o.ID); x != 0 {
		if x > SizeMax {
			return 0, TooLarge("colfer: field batchTimer.ID exceeds the limit of bytes")
		}
		for l += x + 2; x >= 0x80; l++ {
			x >>= 7
		}
	}
	if x := len(o.Values); x != 0 {
		if x > ListMax {
			return 0, TooLarge("colfer: field batchTimer.values exceeds the limit of elements")
		}
		for l += x*8 + 2; x >= 0x80; l++ {
			x >>= 7
		}
	}
	if l > SizeMax {
		return l, TooLarge("colfer: struct batchTimer exceeds the limit of bytes")
	}
	return l, nil
}

// MarshalBinary writes the message to a new buffer.
func (o *BatchTimer) MarshalBinary() ([]byte, error) {
	l, err := o.MarshalLen()
	if err != nil {
		return nil, err
	}
	data := make([]byte, l)
	o.MarshalTo(data)
	return data, nil
}

// Unmarshal reads this message, and returns its length. A field that is zero stays unchanged.
func (o *BatchTimer) Unmarshal(data []byte) (int, error) {
	if len(data) == 0 {
		return 0, io.EOF
	}
	header := data[0]
	i := 1
	if header == 0 {
		x, next := length(data, i)
		if next < 0 {
			return 0, io.EOF
		}
		i = next
		if x > SizeMax {
			return 0, TooLarge("colfer: batchTimer.ID exceeds the limit of bytes")
		}
		start := i
		i += int(x)
		if i >= len(data) {
			return 0, io.EOF
		}
		v := make([]byte, int(x))
		copy(v, data[start:i])
		o.ID = v
		header = data[i]
		i++
	}
	if header == 1 {
		x, next := length(data, i)
		if next < 0 {
			return 0, io.EOF
		}
		i = next
		if x > ListMax {
			return 0, TooLarge("colfer: batchTimer.values exceeds the limit of elements")
		}
		l := int(x)
		if end := i + l*8; end >= len(data) {
			return 0, io.EOF
		}
		a := make([]float64, l)
		for k := range a {
			a[k] = math.Float64frombits(binary.BigEndian.Uint64(data[i:]))
			i += 8
		}
		o.Values = a
		header = data[i]
		i++
	}
	if header != end {
		return 0, Unknown(i - 1)
	}
	return i, nil
}

// Gauge is a value under an id.
type Gauge struct {
	ID    []byte
	Value float64
}

// MarshalTo writes the message to a buffer that must be long enough, and returns its length.
func (o *Gauge) MarshalTo(buf []byte) int {
	var i int
	if l := len(o.ID); l != 0 {
		buf[i] = 0
		i++
		x := uint(l)
		for x >= 0x80 {
			buf[i] = byte(x | 0x80)
			x >>= 7
			i++
		}
		buf[i] = byte(x)
		i++
		i += copy(buf[i:], o.ID)
	}
	if v := o.Value; v != 0 {
		buf[i] = 1
		binary.BigEndian.PutUint64(buf[i+1:], math.Float64bits(v))
		i += 9
	}
	buf[i] = end
	return i + 1
}

// MarshalLen is the length of the marshalled message.
func (o *Gauge) MarshalLen() (int, error) {
	l := 1
	if x := len(o.ID); x != 0 {
		if x > SizeMax {
			return 0, TooLarge("colfer: field gauge.ID exceeds the limit of bytes")
		}
		for l += x + 2; x >= 0x80; l++ {
			x >>= 7
		}
	}
	if o.Value != 0 {
		l += 9
	}
	if l > SizeMax {
		return l, TooLarge("colfer: struct gauge exceeds the limit of bytes")
	}
	return l, nil
}

// MarshalBinary writes the message to a new buffer.
func (o *Gauge) MarshalBinary() ([]byte, error) {
	l, err := o.MarshalLen()
	if err != nil {
		return nil, err
	}
	data := make([]byte, l)
	o.MarshalTo(data)
	return data, nil
}

// Unmarshal reads this message, and returns its length. A field that is zero stays unchanged.
func (o *Gauge) Unmarshal(data []byte) (int, error) {
	if len(data) == 0 {
		return 0, io.EOF
	}
	header := data[0]
	i := 1
	if header == 0 {
		x, next := length(data, i)
		if next < 0 {
			return 0, io.EOF
		}
		i = next
		if x > SizeMax {
			return 0, TooLarge("colfer: gauge.ID exceeds the limit of bytes")
		}
		start := i
		i += int(x)
		if i >= len(data) {
			return 0, io.EOF
		}
		v := make([]byte, int(x))
		copy(v, data[start:i])
		o.ID = v
		header = data[i]
		i++
	}
	if header == 1 {
		start := i
		i += 8
		if i >= len(data) {
			return 0, io.EOF
		}
		o.Value = math.Float64frombits(binary.BigEndian.Uint64(data[start:]))
		header = data[i]
		i++
	}
	if header != end {
		return 0, Unknown(i - 1)
	}
	return i, nil
}

// MetricUnion is any of these messages; the type selects one.
type MetricUnion struct {
	Type          uint8
	ID            []byte
	CounterVal    int64
	BatchTimerVal []float64
	GaugeVal      float64
}

// MarshalTo writes the message to a buffer that must be long enough, and returns its length.
func (o *MetricUnion) MarshalTo(buf []byte) int {
	var i int
	if x := o.Type; x != 0 {
		buf[i] = 0
		i++
		buf[i] = x
		i++
	}
	if l := len(o.ID); l != 0 {
		buf[i] = 1
		i++
		x := uint(l)
		for x >= 0x80 {
			buf[i] = byte(x | 0x80)
			x >>= 7
			i++
		}
		buf[i] = byte(x)
		i++
		i += copy(buf[i:], o.ID)
	}
	if v := o.CounterVal; v != 0 {
		x := uint64(v)
		if v >= 0 {
			buf[i] = 2
		} else {
			x = ^x + 1
			buf[i] = 2 | 0x80
		}
		i++
		for n := 0; x >= 0x80 && n < 8; n++ {
			buf[i] = byte(x | 0x80)
			x >>= 7
			i++
		}
		buf[i] = byte(x)
		i++
	}
	if l := len(o.BatchTimerVal); l != 0 {
		buf[i] = 3
		i++
		x := uint(l)
		for x >= 0x80 {
			buf[i] = byte(x | 0x80)
			x >>= 7
			i++
		}
		buf[i] = byte(x)
		i++
		for _, v := range o.BatchTimerVal {
			binary.BigEndian.PutUint64(buf[i:], math.Float64bits(v))
			i += 8
		}
	}
	if v := o.GaugeVal; v != 0 {
		buf[i] = 4
		binary.BigEndian.PutUint64(buf[i+1:], math.Float64bits(v))
		i += 9
	}
	buf[i] = end
	return i + 1
}

// MarshalLen is the length of the marshalled message.
func (o *MetricUnion) MarshalLen() (int, error) {
	l := 1
	if o.Type != 0 {
		l += 2
	}
	if x := len(o.ID); x != 0 {
		if x > SizeMax {
			return 0, TooLarge("colfer: field metricUnion.ID exceeds the limit of bytes")
		}
		for l += x + 2; x >= 0x80; l++ {
			x >>= 7
		}
	}
	if v := o.CounterVal; v != 0 {
		l += lenInt64(v)
	}
	if x := len(o.BatchTimerVal); x != 0 {
		if x > ListMax {
			return 0, TooLarge("colfer: field metricUnion.batchTimerVal exceeds the limit of elements")
		}
		for l += x*8 + 2; x >= 0x80; l++ {
			x >>= 7
		}
	}
	if o.GaugeVal != 0 {
		l += 9
	}
	if l > SizeMax {
		return l, TooLarge("colfer: struct metricUnion exceeds the limit of bytes")
	}
	return l, nil
}

// MarshalBinary writes the message to a new buffer.
func (o *MetricUnion) MarshalBinary() ([]byte, error) {
	l, err := o.MarshalLen()
	if err != nil {
		return nil, err
	}
	data := make([]byte, l)
	o.MarshalTo(data)
	return data, nil
}

// Unmarshal reads this message, and returns its length. A field that is zero stays unchanged.
func (o *MetricUnion) Unmarshal(data []byte) (int, error) {
	if len(data) == 0 {
		return 0, io.EOF
	}
	header := data[0]
	i := 1
	if header == 0 {
		start := i
		i++
		if i >= len(data) {
			return 0, io.EOF
		}
		o.Type = data[start]
		header = data[i]
		i++
	}
	if header == 1 {
		x, next := length(data, i)
		if next < 0 {
			return 0, io.EOF
		}
		i = next
		if x > SizeMax {
			return 0, TooLarge("colfer: metricUnion.ID exceeds the limit of bytes")
		}
		start := i
		i += int(x)
		if i >= len(data) {
			return 0, io.EOF
		}
		v := make([]byte, int(x))
		copy(v, data[start:i])
		o.ID = v
		header = data[i]
		i++
	}
	if header&0x7f == 2 {
		x, next := word(data, i)
		if next < 0 || next >= len(data) {
			return 0, io.EOF
		}
		i = next
		if header&0x80 != 0 {
			x = ^x + 1
		}
		o.CounterVal = int64(x)
		header = data[i]
		i++
	}
	if header == 3 {
		x, next := length(data, i)
		if next < 0 {
			return 0, io.EOF
		}
		i = next
		if x > ListMax {
			return 0, TooLarge("colfer: metricUnion.batchTimerVal exceeds the limit of elements")
		}
		l := int(x)
		if end := i + l*8; end >= len(data) {
			return 0, io.EOF
		}
		a := make([]float64, l)
		for k := range a {
			a[k] = math.Float64frombits(binary.BigEndian.Uint64(data[i:]))
			i += 8
		}
		o.BatchTimerVal = a
		header = data[i]
		i++
	}
	if header == 4 {
		start := i
		i += 8
		if i >= len(data) {
			return 0, io.EOF
		}
		o.GaugeVal = math.Float64frombits(binary.BigEndian.Uint64(data[start:]))
		header = data[i]
		i++
	}
	if header != end {
		return 0, Unknown(i - 1)
	}
	return i, nil
}

// lenInt64 is the length of an integer that is not zero, with its header.
func lenInt64(v int64) int {
	x := uint64(v)
	if v < 0 {
		x = ^x + 1
	}
	l := 2
	for n := 0; x >= 0x80 && n < 8; n++ {
		x >>= 7
		l++
	}
	return l
}

// length reads the length of bytes or of a list at an index, and returns the index after it, or -1
// at the end of the data. A length of one byte takes the short way.
func length(data []byte, i int) (x uint, next int) {
	if i >= len(data) {
		return 0, -1
	}
	if x = uint(data[i]); x < 0x80 {
		return x, i + 1
	}
	return longLength(data, i)
}

func longLength(data []byte, i int) (x uint, next int) {
	for shift := uint(0); i < len(data); shift += 7 {
		b := uint(data[i])
		i++
		if b < 0x80 {
			return x | b<<shift, i
		}
		x |= (b & 0x7f) << shift
	}
	return 0, -1
}

// word reads an integer at an index: the ninth byte contains 8 bits of this integer. It returns the
// index after the integer, or -1 at the end of the data.
func word(data []byte, i int) (x uint64, next int) {
	for shift := uint(0); i < len(data); shift += 7 {
		b := uint64(data[i])
		i++
		if b < 0x80 || shift == 56 {
			return x | b<<shift, i
		}
		x |= (b & 0x7f) << shift
	}
	return 0, -1
}
