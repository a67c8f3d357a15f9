// Package gencode contains the messages with the methods that gencode (github.com/andyleap/gencode)
// generates from this schema. They are written by hand in the form that the generator emits,
// because this generator is not available as a module: the length is computed first, so at most one
// allocation is needed; varints are loops; floats and fixed integers are stores of single bytes,
// little endian.
//
//	struct Counter { ID []byte  Value vint64 }
//	struct BatchTimer { ID []byte  Values []float64 }
//	struct Gauge { ID []byte  Value float64 }
//	struct MetricUnion { Type int8  ID []byte  CounterVal int64  BatchTimerVal []float64
//		GaugeVal float64 }
//
// Like the generated code, Unmarshal panics at the end of a truncated message.
package gencode

import "math"

// Counter is a count under an id.
type Counter struct {
	ID    []byte
	Value int64
}

// Size is the length of the marshalled message.
func (d *Counter) Size() (s uint64) {
	s += sizeOf(uint64(len(d.ID))) + uint64(len(d.ID))
	s += sizeOf(zigzag(d.Value))
	return
}

// Marshal writes the message to the start of the buffer, or to a new one if it is too short.
func (d *Counter) Marshal(buf []byte) ([]byte, error) {
	size := d.Size()
	if uint64(cap(buf)) >= size {
		buf = buf[:size]
	} else {
		buf = make([]byte, size)
	}
	i := uint64(0)
	{
		t := uint64(len(d.ID))
		for t >= 0x80 {
			buf[i] = byte(t) | 0x80
			t >>= 7
			i++
		}
		buf[i] = byte(t)
		i++
		i += uint64(copy(buf[i:], d.ID))
	}
	{
		t := zigzag(d.Value)
		for t >= 0x80 {
			buf[i] = byte(t) | 0x80
			t >>= 7
			i++
		}
		buf[i] = byte(t)
		i++
	}
	return buf[:i], nil
}

// Unmarshal reads the message, and returns its length.
func (d *Counter) Unmarshal(buf []byte) (uint64, error) {
	i := uint64(0)
	{
		bits := uint8(7)
		l := uint64(buf[i] & 0x7f)
		for buf[i]&0x80 == 0x80 {
			i++
			l |= uint64(buf[i]&0x7f) << bits
			bits += 7
		}
		i++
		if uint64(cap(d.ID)) >= l {
			d.ID = d.ID[:l]
		} else {
			d.ID = make([]byte, l)
		}
		copy(d.ID, buf[i:i+l])
		i += l
	}
	{
		bits := uint8(7)
		t := uint64(buf[i] & 0x7f)
		for buf[i]&0x80 == 0x80 {
			i++
			t |= uint64(buf[i]&0x7f) << bits
			bits += 7
		}
		i++
		d.Value = int64(t>>1) ^ -int64(t&1)
	}
	return i, nil
}

// BatchTimer is a list of times under an id.
type BatchTimer struct {
	ID     []byte
	Values []float64
}

// Size is the length of the marshalled message.
func (d *BatchTimer) Size() (s uint64) {
	s += sizeOf(uint64(len(d.ID))) + uint64(len(d.ID))
	s += sizeOf(uint64(len(d.Values))) + 8*uint64(len(d.Values))
	return
}

// Marshal writes the message to the start of the buffer, or to a new one if it is too short.
func (d *BatchTimer) Marshal(buf []byte) ([]byte, error) {
	size := d.Size()
	if uint64(cap(buf)) >= size {
		buf = buf[:size]
	} else {
		buf = make([]byte, size)
	}
	i := uint64(0)
	{
		t := uint64(len(d.ID))
		for t >= 0x80 {
			buf[i] = byte(t) | 0x80
			t >>= 7
			i++
		}
		buf[i] = byte(t)
		i++
		i += uint64(copy(buf[i:], d.ID))
	}
	{
		t := uint64(len(d.Values))
		for t >= 0x80 {
			buf[i] = byte(t) | 0x80
			t >>= 7
			i++
		}
		buf[i] = byte(t)
		i++
		for k := range d.Values {
			putFloat(buf[i:i+8], d.Values[k])
			i += 8
		}
	}
	return buf[:i], nil
}

// Unmarshal reads the message, and returns its length.
func (d *BatchTimer) Unmarshal(buf []byte) (uint64, error) {
	i := uint64(0)
	{
		bits := uint8(7)
		l := uint64(buf[i] & 0x7f)
		for buf[i]&0x80 == 0x80 {
			i++
			l |= uint64(buf[i]&0x7f) << bits
			bits += 7
		}
		i++
		if uint64(cap(d.ID)) >= l {
			d.ID = d.ID[:l]
		} else {
			d.ID = make([]byte, l)
		}
		copy(d.ID, buf[i:i+l])
		i += l
	}
	{
		bits := uint8(7)
		l := uint64(buf[i] & 0x7f)
		for buf[i]&0x80 == 0x80 {
			i++
			l |= uint64(buf[i]&0x7f) << bits
			bits += 7
		}
		i++
		if uint64(cap(d.Values)) >= l {
			d.Values = d.Values[:l]
		} else {
			d.Values = make([]float64, l)
		}
		for k := range d.Values {
			d.Values[k] = float(buf[i : i+8])
			i += 8
		}
	}
	return i, nil
}

// Gauge is a value under an id.
type Gauge struct {
	ID    []byte
	Value float64
}

// Size is the length of the marshalled message.
func (d *Gauge) Size() (s uint64) {
	s += sizeOf(uint64(len(d.ID))) + uint64(len(d.ID))
	s += 8
	return
}

// Marshal writes the message to the start of the buffer, or to a new one if it is too short.
func (d *Gauge) Marshal(buf []byte) ([]byte, error) {
	size := d.Size()
	if uint64(cap(buf)) >= size {
		buf = buf[:size]
	} else {
		buf = make([]byte, size)
	}
	i := uint64(0)
	{
		t := uint64(len(d.ID))
		for t >= 0x80 {
			buf[i] = byte(t) | 0x80
			t >>= 7
			i++
		}
		buf[i] = byte(t)
		i++
		i += uint64(copy(buf[i:], d.ID))
	}
	putFloat(buf[i:i+8], d.Value)
	return buf[:i+8], nil
}

// Unmarshal reads the message, and returns its length.
func (d *Gauge) Unmarshal(buf []byte) (uint64, error) {
	i := uint64(0)
	{
		bits := uint8(7)
		l := uint64(buf[i] & 0x7f)
		for buf[i]&0x80 == 0x80 {
			i++
			l |= uint64(buf[i]&0x7f) << bits
			bits += 7
		}
		i++
		if uint64(cap(d.ID)) >= l {
			d.ID = d.ID[:l]
		} else {
			d.ID = make([]byte, l)
		}
		copy(d.ID, buf[i:i+l])
		i += l
	}
	d.Value = float(buf[i : i+8])
	return i + 8, nil
}

// MetricUnion is any of these messages; the type selects one.
type MetricUnion struct {
	Type          int8
	ID            []byte
	CounterVal    int64
	BatchTimerVal []float64
	GaugeVal      float64
}

// Size is the length of the marshalled message.
func (d *MetricUnion) Size() (s uint64) {
	s += sizeOf(uint64(len(d.ID))) + uint64(len(d.ID))
	s += sizeOf(uint64(len(d.BatchTimerVal))) + 8*uint64(len(d.BatchTimerVal))
	s += 17
	return
}

// Marshal writes the message to the start of the buffer, or to a new one if it is too short.
func (d *MetricUnion) Marshal(buf []byte) ([]byte, error) {
	size := d.Size()
	if uint64(cap(buf)) >= size {
		buf = buf[:size]
	} else {
		buf = make([]byte, size)
	}
	i := uint64(0)
	buf[i] = byte(d.Type)
	i++
	{
		t := uint64(len(d.ID))
		for t >= 0x80 {
			buf[i] = byte(t) | 0x80
			t >>= 7
			i++
		}
		buf[i] = byte(t)
		i++
		i += uint64(copy(buf[i:], d.ID))
	}
	putFixed(buf[i:i+8], uint64(d.CounterVal))
	i += 8
	{
		t := uint64(len(d.BatchTimerVal))
		for t >= 0x80 {
			buf[i] = byte(t) | 0x80
			t >>= 7
			i++
		}
		buf[i] = byte(t)
		i++
		for k := range d.BatchTimerVal {
			putFloat(buf[i:i+8], d.BatchTimerVal[k])
			i += 8
		}
	}
	putFloat(buf[i:i+8], d.GaugeVal)
	return buf[:i+8], nil
}

// Unmarshal reads the message, and returns its length.
func (d *MetricUnion) Unmarshal(buf []byte) (uint64, error) {
	i := uint64(0)
	d.Type = int8(buf[i])
	i++
	{
		bits := uint8(7)
		l := uint64(buf[i] & 0x7f)
		for buf[i]&0x80 == 0x80 {
			i++
			l |= uint64(buf[i]&0x7f) << bits
			bits += 7
		}
		i++
		if uint64(cap(d.ID)) >= l {
			d.ID = d.ID[:l]
		} else {
			d.ID = make([]byte, l)
		}
		copy(d.ID, buf[i:i+l])
		i += l
	}
	d.CounterVal = int64(fixed(buf[i : i+8]))
	i += 8
	{
		bits := uint8(7)
		l := uint64(buf[i] & 0x7f)
		for buf[i]&0x80 == 0x80 {
			i++
			l |= uint64(buf[i]&0x7f) << bits
			bits += 7
		}
		i++
		if uint64(cap(d.BatchTimerVal)) >= l {
			d.BatchTimerVal = d.BatchTimerVal[:l]
		} else {
			d.BatchTimerVal = make([]float64, l)
		}
		for k := range d.BatchTimerVal {
			d.BatchTimerVal[k] = float(buf[i : i+8])
			i += 8
		}
	}
	d.GaugeVal = float(buf[i : i+8])
	return i + 8, nil
}

// sizeOf is the length of a varint.
func sizeOf(t uint64) (s uint64) {
	for t >= 0x80 {
		t >>= 7
		s++
	}
	return s + 1
}

// zigzag moves the sign into the lowest bit, because this makes small negative numbers short.
func zigzag(v int64) uint64 {
	return uint64(v<<1) ^ uint64(v>>63)
}

// putFixed stores 8 bytes. The compiler can join these stores to one.
func putFixed(buf []byte, v uint64) {
	_ = buf[7]
	buf[0] = byte(v >> 0)
	buf[1] = byte(v >> 8)
	buf[2] = byte(v >> 16)
	buf[3] = byte(v >> 24)
	buf[4] = byte(v >> 32)
	buf[5] = byte(v >> 40)
	buf[6] = byte(v >> 48)
	buf[7] = byte(v >> 56)
}

// fixed loads the bytes of putFixed.
func fixed(buf []byte) uint64 {
	_ = buf[7]
	return uint64(buf[0]) | uint64(buf[1])<<8 | uint64(buf[2])<<16 | uint64(buf[3])<<24 |
		uint64(buf[4])<<32 | uint64(buf[5])<<40 | uint64(buf[6])<<48 | uint64(buf[7])<<56
}

func putFloat(buf []byte, v float64) {
	putFixed(buf, math.Float64bits(v))
}

func float(buf []byte) float64 {
	return math.Float64frombits(fixed(buf))
}
