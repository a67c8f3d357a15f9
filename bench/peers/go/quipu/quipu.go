// Package quipu reads quipu's own format on the wire: separate messages (Decode) and streams of
// blocks, version 2 (Reader).
//
// It was written only from section 8 of docs/formats.md and shares no code with the Rust library,
// because it tests whether you can implement the format from this page. It is plain rather than
// fast. Section numbers in comments refer to this page. If the page does not define the meaning of
// bytes that no writer writes, they are refused.
package quipu

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
)

// Kind is one of the four kinds of messages. Its numbers are the numbers on the wire.
type Kind uint8

// The kinds.
const (
	KindCounter Kind = iota
	KindBatchTimer
	KindGauge
	KindUnion
)

// String is the name of the message.
func (k Kind) String() string {
	if int(k) < len(kindNames) {
		return kindNames[k]
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Message is a message of any kind. Fields that this kind lacks are zero.
type Message struct {
	Kind Kind
	// Type is the type of a union: 1 counter, 2 batch timer, 3 gauge, or any other.
	Type    int8
	ID      []byte
	Counter int64
	Values  []float64
	Gauge   float64
}

// Union returns the message as a union: a message of kind 0 to 2 becomes the union of its type. The
// result shares the slices of this message.
func (m Message) Union() Message {
	if m.Kind != KindUnion {
		m.Type = int8(m.Kind) + 1
		m.Kind = KindUnion
	}
	return m
}

// Decode reads a separate message (8.3). Bytes after this message are an error, and so is the start
// of a block. Every error is an *Error, which wraps io.ErrUnexpectedEOF if the message is
// truncated. The message does not share the input, so you can reuse the input. It takes at most 64
// times its memory.
func Decode(input []byte) (Message, error) {
	s := source{bytes: input, cut: io.ErrUnexpectedEOF}
	head, err := s.byte("a message")
	if err != nil {
		return Message{}, err
	}
	m := Message{Kind: Kind(head >> 6)}
	if m.ID, err = s.id(head); err != nil {
		return Message{}, err
	}
	switch m.Kind {
	case KindCounter:
		m.Counter, err = s.whole()
	case KindBatchTimer:
		m.Values, err = s.list()
	case KindGauge:
		m.Gauge, err = s.number()
	case KindUnion:
		err = s.union(&m)
	}
	if err != nil {
		return Message{}, err
	}
	if err := s.end("the end of the message"); err != nil {
		return Message{}, err
	}
	return m, nil
}

// Error describes the expected value and the found one at an offset of the input.
type Error struct {
	// Offset is the position of the first invalid byte, from the start of the message or stream.
	Offset   int64
	Expected string
	Found    string

	cause error
}

func (e *Error) Error() string {
	return fmt.Sprintf("quipu: at offset %d: expected %s, found %s", e.Offset, e.Expected, e.Found)
}

// Unwrap is io.ErrUnexpectedEOF if the input ended too early, one of this package's errors about
// blocks, the error of the stream's reader, or nil.
func (e *Error) Unwrap() error { return e.cause }

// source is the bytes of a message, or the body of a block.
type source struct {
	bytes []byte
	// at is the index of the next byte.
	at int
	// base is the offset of the first byte.
	base int64
	// cut is the cause of errors about missing bytes.
	cut error
}

// union reads type, presence and values (8.3).
func (s *source) union(m *Message) error {
	unionType, err := s.byte("the type of a union")
	if err != nil {
		return err
	}
	m.Type = int8(unionType)
	at := s.at
	presence, err := s.byte("which values of a union follow")
	if err != nil {
		return err
	}
	if presence > hasCounter|hasValues|hasGauge {
		return s.wrong(at, "which values of a union follow, 0 to 7", "%#02x", presence)
	}
	if presence&hasCounter != 0 {
		if m.Counter, err = s.whole(); err != nil {
			return err
		}
	}
	if presence&hasValues != 0 {
		if m.Values, err = s.list(); err != nil {
			return err
		}
	}
	if presence&hasGauge != 0 {
		if m.Gauge, err = s.number(); err != nil {
			return err
		}
	}
	return nil
}

// id reads the id of a separate message, whose head was already read (8.3).
func (s *source) id(head byte) ([]byte, error) {
	length := uint64(head & 0x3f)
	var bits uint64
	switch length {
	case lengthLater:
		if Kind(head>>6) == KindUnion {
			return nil, s.wrong(s.at-1, "a message that stands alone", "a block, %#02x", head)
		}
		return nil, s.wrong(s.at-1, "a length of the id other than 60", "%#02x", head)
	case length5Bits, length6Bits, lengthFollows:
		var err error
		if length, err = s.varint("the length of an id"); err != nil {
			return nil, err
		}
		switch head & 0x3f {
		case length5Bits:
			bits = 5
		case length6Bits:
			bits = 6
		}
	}
	if bits > 0 {
		packed, err := s.packed(length, bits, "an id")
		if err != nil {
			return nil, err
		}
		id := make([]byte, 0, length)
		for i := range length {
			id = append(id, characters[packed.at(i)])
		}
		return id, nil
	}
	id, err := s.take(length, "an id")
	return append([]byte{}, id...), err
}

// list reads a list of values (8.2). If this list is empty, the result is nil.
func (s *source) list() ([]float64, error) {
	begin := s.at
	head, err := s.byte("a list")
	if err != nil {
		return nil, err
	}
	count := uint64(head & 0x1f)
	if count == countFollows {
		if count, err = s.varint("the number of values"); err != nil {
			return nil, err
		}
	}
	switch form := head >> 5; form {
	case formBytes:
		return s.fixed(count, 1, func(value []byte) float64 { return float64(value[0]) })
	case formTwoBytes:
		return s.fixed(count, 2, func(value []byte) float64 {
			return float64(binary.LittleEndian.Uint16(value))
		})
	case formFourBytes:
		return s.fixed(count, 4, func(value []byte) float64 {
			return float64(binary.LittleEndian.Uint32(value))
		})
	case formDoubles:
		return s.fixed(count, 8, func(value []byte) float64 {
			return math.Float64frombits(binary.LittleEndian.Uint64(value))
		})
	case formFewPlaces:
		return s.decimals(count, 1)
	case formManyPlaces:
		return s.decimals(count, 5)
	case formNumbers:
		// A number takes at least one byte.
		if count > s.left() {
			return nil, s.missing(fmt.Sprintf("%d numbers", count))
		}
		var values []float64
		for range count {
			value, err := s.number()
			if err != nil {
				return nil, err
			}
			values = append(values, value)
		}
		return values, nil
	default:
		return nil, s.wrong(begin, "a list of form 0 to 5 or 7", "form %d", form)
	}
}

// fixed reads count values of width bytes each.
func (s *source) fixed(count, width uint64, value func([]byte) float64) ([]float64, error) {
	if count > s.left()/width {
		return nil, s.missing(fmt.Sprintf("%d values of %d bytes", count, width))
	}
	bytes, err := s.take(count*width, "values")
	if err != nil || count == 0 {
		return nil, err
	}
	values := make([]float64, count)
	for i := range values {
		values[i] = value(bytes[uint64(i)*width:])
	}
	return values, nil
}

// decimals reads places, width and packed numbers. The places are relative to fewest.
func (s *source) decimals(count uint64, fewest byte) ([]float64, error) {
	head, err := s.byte("places and width of packed numbers")
	if err != nil {
		return nil, err
	}
	width := uint64(head & 0x3f)
	if width < 1 || width > widest {
		return nil, s.wrong(s.at-1, "a width of 1 to 51 bits", "%d", width)
	}
	packed, err := s.packed(count, width, "packed numbers")
	if err != nil || count == 0 {
		return nil, err
	}
	values := make([]float64, count)
	for i := range values {
		values[i] = quotient(int64(packed.at(uint64(i))), fewest+head>>6)
	}
	return values, nil
}

// number reads a number where a double is expected (8.1).
func (s *source) number() (float64, error) {
	begin := s.at
	lead, err := s.byte("a number")
	if err != nil {
		return 0, err
	}
	switch {
	case lead <= leadNegative+7:
		whole, err := s.wholeAfter(lead)
		return float64(whole), err
	case lead > leadQuotient && lead <= leadQuotient+mostPlaces:
		whole, err := s.whole()
		return quotient(whole, lead-leadQuotient), err
	case lead >= leadDouble && lead <= leadDouble+8:
		return s.doubleAfter(lead)
	}
	return 0, s.wrong(begin, "a number", "%#02x", lead)
}

// whole reads a whole number (8.1).
func (s *source) whole() (int64, error) {
	lead, err := s.byte("a whole number")
	if err != nil {
		return 0, err
	}
	return s.wholeAfter(lead)
}

// wholeAfter reads the rest of a whole number, whose lead was already read.
func (s *source) wholeAfter(lead byte) (int64, error) {
	begin := s.at - 1
	switch {
	case lead < leadTwoBytes:
		return int64(lead), nil
	case lead < leadPositive:
		low, err := s.byte("the low byte of a whole number")
		return 128 + int64(lead&0x3f)<<8 + int64(low), err
	case lead > leadNegative+7:
		return 0, s.wrong(begin, "a whole number", "%#02x", lead)
	}
	bytes, err := s.take(uint64(lead&7)+1, "the bytes of a whole number")
	if err != nil {
		return 0, err
	}
	var padded [8]byte
	copy(padded[:], bytes)
	bits := binary.LittleEndian.Uint64(padded[:])
	if bits > math.MaxInt64 {
		const expected = "a whole number of 64 bits with its sign"
		return 0, s.wrong(begin, expected, "% x", s.bytes[begin:s.at])
	}
	if lead >= leadNegative {
		bits = ^bits
	}
	return int64(bits), nil
}

// doubleAfter reads the rest of a double, whose lead, 0xf0 to 0xf8, was already read.
func (s *source) doubleAfter(lead byte) (float64, error) {
	bytes, err := s.take(uint64(lead-leadDouble), "the bytes of a double")
	if err != nil {
		return 0, err
	}
	var padded [8]byte
	copy(padded[:], bytes)
	return math.Float64frombits(binary.BigEndian.Uint64(padded[:])), nil
}

// quotient is number / 10^places, for 0 to 8 places: the double nearest to number, divided.
func quotient(number int64, places byte) float64 {
	return float64(number) / float64(powers[places])
}

// varint reads a varint of at most 64 bits.
func (s *source) varint(what string) (uint64, error) {
	number, length := binary.Uvarint(s.bytes[s.at:])
	switch {
	case length == 0:
		return 0, s.missing(what)
	case length < 0:
		return 0, s.wrong(s.at, what+", a varint of at most 64 bits", "more bits")
	}
	s.at += length
	return number, nil
}

// packed takes the bytes of count numbers of width bits each, 1 to 57. Bits after the last number
// must be 0.
func (s *source) packed(count, width uint64, what string) (packed, error) {
	what = fmt.Sprintf("%s of %d times %d bits", what, count, width)
	// The product cannot overflow, because both factors are bounded by the maximum length of a slice.
	if count > s.left()*8 || count*width > s.left()*8 {
		return packed{}, s.missing(what)
	}
	bytes, err := s.take((count*width+7)/8, what)
	if err != nil {
		return packed{}, err
	}
	if rest := count * width % 8; rest != 0 {
		if last := bytes[len(bytes)-1]; last>>rest != 0 {
			return packed{}, s.wrong(s.at-1, "zeros in the bits after the last", "%#02x", last)
		}
	}
	return packed{bytes, width}, nil
}

// packed is numbers of width bits each, the first in the lowest bits of the first byte.
type packed struct {
	bytes []byte
	width uint64
}

func (p packed) at(index uint64) uint64 {
	first := index * p.width
	var window [8]byte
	copy(window[:], p.bytes[first/8:])
	return binary.LittleEndian.Uint64(window[:]) >> (first % 8) & (1<<p.width - 1)
}

// byte takes one byte of something.
func (s *source) byte(what string) (byte, error) {
	if s.left() == 0 {
		return 0, s.missing(what)
	}
	s.at++
	return s.bytes[s.at-1], nil
}

// take takes the bytes of something. These bytes are shared with the source.
func (s *source) take(length uint64, what string) ([]byte, error) {
	if length > s.left() {
		return nil, s.missing(fmt.Sprintf("%s, %d bytes", what, length))
	}
	begin := s.at
	s.at += int(length)
	return s.bytes[begin:s.at], nil
}

// end fails if there are bytes left.
func (s *source) end(what string) error {
	if s.left() > 0 {
		return s.wrong(s.at, what, "%d more bytes", s.left())
	}
	return nil
}

func (s *source) left() uint64 { return uint64(len(s.bytes) - s.at) }

// missing returns the error for too few remaining bytes.
func (s *source) missing(expected string) error {
	found := fmt.Sprintf("the end after %d bytes", s.left())
	return &Error{s.base + int64(s.at), expected, found, s.cut}
}

// wrong returns the error for an unexpected value at an index.
func (s *source) wrong(at int, expected, found string, arguments ...any) error {
	return &Error{s.base + int64(at), expected, fmt.Sprintf(found, arguments...), nil}
}

var kindNames = [...]string{"Counter", "BatchTimer", "Gauge", "MetricUnion"}

// Lengths of an id with special meanings (8.3).
const (
	lengthLater   = 60
	length5Bits   = 61
	length6Bits   = 62
	lengthFollows = 63
)

// characters contains the characters of packed ids, by their code. The first 32 use codes of 5
// bits.
const characters = `abcdefghijklmnopqrstuvwxyz=,._-/` + `0123456789:;{}"@+~%#*&?!<>()[]| `

// The values of a union that follow (8.3).
const (
	hasCounter = 1 << iota
	hasValues
	hasGauge
)

// Forms of a list (8.2), and the count that means that the count follows.
const (
	formBytes = iota
	formTwoBytes
	formFourBytes
	formFewPlaces
	formNumbers
	formDoubles
	_
	formManyPlaces

	countFollows = 31
)

// widest is the maximum width of a packed number in bits (8.2).
const widest = 51

// First leads of numbers (8.1).
const (
	leadTwoBytes = 0x80
	leadPositive = 0xc0
	leadNegative = 0xc8
	leadQuotient = 0xd0
	leadDouble   = 0xf0

	mostPlaces = 8
)

// powers are the powers of 10. All of them are exact as doubles.
var powers = [mostPlaces + 1]int64{1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8}
