package quipu

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// Errors about frames. An error of Reader wraps one of them if it applies.
var (
	// ErrChecksum is for a frame with a wrong checksum.
	ErrChecksum = errors.New("quipu: the checksum of a frame is wrong")
	// ErrLost is for a frame that does not follow the previous one.
	ErrLost = errors.New("quipu: frames were lost")
	// ErrNoDictionary is for a first frame that does not begin the dictionary. See FindStart.
	ErrNoDictionary = errors.New("quipu: the dictionary begins in an earlier frame")
)

// Reader reads the messages of a stream (8.4), one at a time.
type Reader struct {
	reader io.Reader
	// offset is the number of bytes of the stream that were read.
	offset int64
	failed error

	// frame is the content of the current frame; messages is the number that were not read yet.
	frame    source
	messages uint32

	// joined says that a frame was read; sequence is its number.
	joined   bool
	sequence uint32

	series []series
	// idBytes is the sum of the lengths of all ids.
	idBytes int
}

// series is an entry of a stream's dictionary.
type series struct {
	kind Kind
	id   []byte
	// last is the last value of a counter, and the last number of a gauge.
	last int64
	// places is the number of decimal places of a gauge.
	places byte
}

// NewReader reads a stream from a frame that begins the dictionary: from the start of a stream, or
// from an offset that FindStart returned.
func NewReader(reader io.Reader) *Reader {
	return &Reader{reader: reader}
}

// FindStart returns the offset of the first frame with which a reader can start, and whether there
// is one. Such a frame is complete, has the right checksum and begins the dictionary. A receiver
// that has lost frames, or joins a stream in its middle, calls it and makes a new Reader.
//
// Maliciously crafted input can make it compute a checksum of all bytes for every 24 of them: limit
// untrusted input to a few MiB.
func FindStart(input []byte) (offset int, found bool) {
	for {
		next := bytes.Index(input[offset:], magic)
		if next < 0 {
			return 0, false
		}
		offset += next
		if startsDictionary(input[offset:]) {
			return offset, true
		}
		offset++
	}
}

// Next is the next message, or io.EOF at the end of the last frame. Every other error is an *Error
// with the offset in the stream and the problem. The messages of a frame before the invalid one are
// still returned; after an error, every call returns it again.
//
// The message's id is shared with the reader and with other messages: do not modify it.
func (r *Reader) Next() (Message, error) {
	if r.failed != nil {
		return Message{}, r.failed
	}
	m, err := r.next()
	if err != nil {
		r.failed = err
		return Message{}, err
	}
	return m, nil
}

func (r *Reader) next() (Message, error) {
	for r.messages == 0 {
		if err := r.readFrame(); err != nil {
			return Message{}, err
		}
	}
	m, err := r.message()
	if err != nil {
		return Message{}, err
	}
	r.messages--
	return m, r.endOfFrame()
}

// endOfFrame fails if there are bytes after the last message of the frame.
func (r *Reader) endOfFrame() error {
	if r.messages > 0 {
		return nil
	}
	return r.frame.end("the end of the frame after its last message")
}

// readFrame reads a frame, checks it, and resets the dictionary if its flag says so.
func (r *Reader) readFrame() error {
	begin := r.offset
	var h header
	read, err := io.ReadFull(r.reader, h[:])
	r.offset += int64(read)
	switch {
	case err == io.EOF:
		return io.EOF
	case err == io.ErrUnexpectedEOF:
		return cutFrame(r.offset, "a frame's header of 24 bytes", read)
	case err != nil:
		return &Error{r.offset, "a frame's header", "an error: " + err.Error(), err}
	}
	if !h.hasMagic() {
		return &Error{begin, "a frame, fc 71 77", fmt.Sprintf("% x", h[:len(magic)]), nil}
	}
	if h[offsetVersion] != version {
		found := fmt.Sprintf("version %d", h[offsetVersion])
		return &Error{begin + offsetVersion, "version 1", found, nil}
	}
	body, err := r.readBody(h.length())
	if err != nil {
		return err
	}
	if sum := h.sum(body); sum != h.checksum() {
		expected := fmt.Sprintf("the checksum %08x of the frame", sum)
		found := fmt.Sprintf("%08x", h.checksum())
		return &Error{begin + offsetChecksum, expected, found, ErrChecksum}
	}
	if !h.sound() {
		found := fmt.Sprintf("% x", h[offsetFlags:offsetSequence])
		return &Error{begin + offsetFlags, "the flags 0 or 1, and 3 zeros", found, nil}
	}
	if err := r.follow(h, begin); err != nil {
		return err
	}
	r.joined, r.sequence, r.messages = true, h.sequence(), h.count()
	if h.startsDictionary() {
		r.series, r.idBytes = nil, 0
	}
	r.frame = source{bytes: body, base: begin + headerLength}
	return r.endOfFrame()
}

// readBody reads the messages of a frame. It allocates what arrives, not what the header promises.
func (r *Reader) readBody(length uint32) ([]byte, error) {
	var body bytes.Buffer
	read, err := io.Copy(&body, io.LimitReader(r.reader, int64(length)))
	r.offset += read
	if err != nil {
		return nil, &Error{r.offset, "a frame's messages", "an error: " + err.Error(), err}
	}
	if read < int64(length) {
		expected := fmt.Sprintf("a frame's messages of %d bytes", length)
		return nil, cutFrame(r.offset, expected, int(read))
	}
	return body.Bytes(), nil
}

// follow checks that a frame can follow the previous one.
func (r *Reader) follow(h header, begin int64) error {
	switch {
	case !r.joined && !h.startsDictionary():
		const expected = "a frame that begins the dictionary"
		return &Error{begin, expected, "one that does not", ErrNoDictionary}
	case !r.joined, h.sequence() == r.sequence+1, h.sequence() == 0 && h.startsDictionary():
		return nil
	}
	expected := fmt.Sprintf("the frame of sequence %d", r.sequence+1)
	found := fmt.Sprintf("sequence %d", h.sequence())
	return &Error{begin + offsetSequence, expected, found, ErrLost}
}

// message reads the next message of the frame.
func (r *Reader) message() (Message, error) {
	begin := r.frame.at
	number, err := r.frame.whole()
	if err != nil {
		return Message{}, err
	}
	if number < 0 || number > int64(len(r.series)) {
		expected := fmt.Sprintf("the number of a series, 0 to %d", len(r.series))
		return Message{}, r.frame.wrong(begin, expected, "%d", number)
	}
	if number == int64(len(r.series)) {
		if err := r.define(begin); err != nil {
			return Message{}, err
		}
	}
	s := &r.series[number]
	m := Message{Kind: s.kind, ID: s.id}
	switch s.kind {
	case KindCounter:
		m.Counter, err = r.frame.counter(s)
	case KindBatchTimer:
		m.Values, err = r.frame.list()
	case KindGauge:
		m.Gauge, err = r.frame.gauge(s)
	case KindUnion:
		err = r.frame.union(&m)
	}
	return m, err
}

// define reads the definition of a new series, whose number was read at an index.
func (r *Reader) define(begin int) error {
	if len(r.series) == mostSeries {
		return r.frame.wrong(begin, "one of 1048576 series", "another series")
	}
	kind, err := r.frame.byte("the kind of a series")
	if err != nil {
		return err
	}
	if Kind(kind) > KindUnion {
		return r.frame.wrong(r.frame.at-1, "a kind of series, 0 to 3", "%d", kind)
	}
	shared, err := r.frame.byte("how many bytes of the last id are shared")
	if err != nil {
		return err
	}
	var last []byte
	if len(r.series) > 0 {
		last = r.series[len(r.series)-1].id
	}
	if int(shared) > len(last) {
		expected := fmt.Sprintf("0 to %d bytes that are shared with the last id", len(last))
		return r.frame.wrong(r.frame.at-1, expected, "%d", shared)
	}
	length, err := r.frame.varint("the length of the rest of an id")
	if err != nil {
		return err
	}
	rest, err := r.frame.take(length, "the rest of an id")
	if err != nil {
		return err
	}
	if len(rest) > mostIDBytes-r.idBytes-int(shared) {
		return r.frame.wrong(begin, "ids of at most 64 MiB", "more")
	}
	id := make([]byte, 0, int(shared)+len(rest))
	id = append(append(id, last[:shared]...), rest...)
	r.idBytes += len(id)
	r.series = append(r.series, series{kind: Kind(kind), id: id})
	return nil
}

// counter reads the body of a counter in a stream (8.4).
func (s *source) counter(of *series) (int64, error) {
	lead, err := s.byte("a counter")
	if err != nil {
		return 0, err
	}
	if lead >= leadAbsolute && lead < leadDouble {
		of.last, err = s.wholeAfter(lead - leadAbsolute + leadPositive)
		return of.last, err
	}
	change, err := s.wholeAfter(lead)
	of.last += change
	return of.last, err
}

// gauge reads the body of a gauge in a stream (8.4).
func (s *source) gauge(of *series) (float64, error) {
	begin := s.at
	lead, err := s.byte("a gauge")
	if err != nil {
		return 0, err
	}
	switch {
	case lead <= leadNegative+7:
		change, err := s.wholeAfter(lead)
		if err != nil {
			return 0, err
		}
		if change < 0 {
			return 0, s.wrong(begin, "a change of a gauge, not below 0", "%d", change)
		}
		of.last += change>>1 ^ -(change & 1)
	case lead >= leadQuotient && lead <= leadQuotient+mostPlaces:
		if of.last, err = s.whole(); err != nil {
			return 0, err
		}
		of.places = lead - leadQuotient
	case lead >= leadDouble && lead <= leadDouble+8:
		return s.doubleAfter(lead)
	default:
		return 0, s.wrong(begin, "a gauge", "%#02x", lead)
	}
	return quotient(of.last, of.places), nil
}

// startsDictionary tells whether the bytes begin with a frame with which a reader can start.
func startsDictionary(input []byte) bool {
	if len(input) < headerLength {
		return false
	}
	h, body := header(input[:headerLength]), input[headerLength:]
	if h[offsetVersion] != version || !h.sound() || !h.startsDictionary() {
		return false
	}
	return uint64(h.length()) <= uint64(len(body)) && h.sum(body[:h.length()]) == h.checksum()
}

// cutFrame is the error if a stream ends after read bytes of a part of a frame.
func cutFrame(offset int64, expected string, read int) error {
	found := fmt.Sprintf("the end of the stream after %d of them", read)
	return &Error{offset, expected, found, io.ErrUnexpectedEOF}
}

// header is the header of a frame (8.4).
type header [headerLength]byte

func (h *header) hasMagic() bool         { return bytes.Equal(h[:len(magic)], magic) }
func (h *header) startsDictionary() bool { return h[offsetFlags] == 1 }
func (h *header) sequence() uint32       { return binary.LittleEndian.Uint32(h[offsetSequence:]) }
func (h *header) length() uint32         { return binary.LittleEndian.Uint32(h[offsetLength:]) }
func (h *header) count() uint32          { return binary.LittleEndian.Uint32(h[offsetCount:]) }
func (h *header) checksum() uint32       { return binary.LittleEndian.Uint32(h[offsetChecksum:]) }

// sound tells whether the flags are known and the reserved bytes are 0.
func (h *header) sound() bool {
	return h[offsetFlags] <= 1 && h[offsetFlags+1]|h[offsetFlags+2]|h[offsetFlags+3] == 0
}

// sum is the checksum that a frame of these messages should have.
func (h *header) sum(body []byte) uint32 {
	return crc32.Update(crc32.ChecksumIEEE(h[offsetFlags:offsetChecksum]), crc32.IEEETable, body)
}

// magic is the start of every frame.
var magic = []byte{0xfc, 0x71, 0x77}

const (
	version      = 1
	headerLength = 24

	offsetVersion  = 3
	offsetFlags    = 4
	offsetSequence = 8
	offsetLength   = 12
	offsetCount    = 16
	offsetChecksum = 20
)

// leadAbsolute is the first lead of a counter that does not refer to the last one.
const leadAbsolute = 0xe0

// The bounds of a dictionary.
const (
	mostSeries  = 1 << 20
	mostIDBytes = 64 << 20
)
