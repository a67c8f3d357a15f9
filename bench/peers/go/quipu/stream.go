package quipu

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// Errors about blocks. If one of these applies, an error of Reader wraps it.
var (
	// ErrChecksum is for a block with a wrong checksum.
	ErrChecksum = errors.New("quipu: the checksum of a block is wrong")
	// ErrLost is for a block that does not follow the previous one.
	ErrLost = errors.New("quipu: blocks were lost")
	// ErrNoDictionary is for a first block that does not begin the dictionary. In this case, use
	// FindStart.
	ErrNoDictionary = errors.New("quipu: the dictionary begins in an earlier block")
)

// Reader reads the messages of a stream (8.4), one at a time.
type Reader struct {
	reader io.Reader
	// offset is the number of bytes of the stream that were read.
	offset int64
	failed error

	// messages are the messages of the current block that were not returned yet.
	messages []Message

	// joined is true once a block was read; sequence is its number.
	joined   bool
	sequence uint32

	dictionary dictionary
}

// dictionary is the series of a stream.
type dictionary struct {
	// series are the series of each kind, by their numbers.
	series [KindUnion + 1][]*series
	count  int
	// last is the id that was defined last.
	last []byte
	// idBytes is the sum of the lengths of all ids.
	idBytes int
}

// series is an entry of a stream's dictionary.
type series struct {
	id []byte
	// last is the last value of a counter, and the last number of a gauge.
	last int64
	// places is the number of decimal places of a gauge or a batch timer.
	places byte
}

// NewReader reads a stream from a block that begins the dictionary. You can pass a stream from its
// start, or from an offset that FindStart returned.
func NewReader(reader io.Reader) *Reader {
	return &Reader{reader: reader}
}

// FindStart returns the offset of the first block where a reader can start, and whether there is
// one. Such a block is complete and sound, and begins the dictionary. Use this if your receiver
// lost blocks, or joins a stream in its middle, and then make a new Reader.
//
// Maliciously crafted input can make it compute a checksum of all bytes for every 24 of them. If
// you do not trust the input, limit it, for example to a few MiB.
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

// Next returns the next message, or io.EOF at the end of the last block. Every other error is an
// *Error with the offset in the stream and the problem; no message of this block is returned. After
// an error, every call returns the same error again.
//
// The message shares its id with the reader and with other messages, so you must not modify this
// id.
func (r *Reader) Next() (Message, error) {
	for r.failed == nil && len(r.messages) == 0 {
		r.failed = r.readBlock()
	}
	if r.failed != nil {
		return Message{}, r.failed
	}
	m := r.messages[0]
	r.messages = r.messages[1:]
	return m, nil
}

// readBlock reads a block, checks it, and decodes its messages.
func (r *Reader) readBlock() error {
	begin := r.offset
	var h header
	read, err := io.ReadFull(r.reader, h[:])
	r.offset += int64(read)
	switch {
	case err == io.EOF:
		return io.EOF
	case err == io.ErrUnexpectedEOF:
		return cutBlock(r.offset, "a block's header of 24 bytes", read)
	case err != nil:
		return &Error{r.offset, "a block's header", "an error: " + err.Error(), err}
	}
	if !h.hasMagic() {
		return &Error{begin, "a block, fc 71 77", fmt.Sprintf("% x", h[:len(magic)]), nil}
	}
	if h[offsetVersion] != version {
		found := fmt.Sprintf("version %d", h[offsetVersion])
		return &Error{begin + offsetVersion, "version 2", found, nil}
	}
	if h.length() > mostBodyBytes {
		found := fmt.Sprintf("%d", h.length())
		return &Error{begin + offsetLength, "a body of at most 2^27 bytes", found, nil}
	}
	body, err := r.readBody(h.length())
	if err != nil {
		return err
	}
	if sum := h.sum(body); sum != h.checksum() {
		expected := fmt.Sprintf("the checksum %08x of the block", sum)
		found := fmt.Sprintf("%08x", h.checksum())
		return &Error{begin + offsetChecksum, expected, found, ErrChecksum}
	}
	if !h.sound() {
		found := fmt.Sprintf("% x", h[offsetFlags:])
		const expected = "a flag of 0 or 1, 1 to 255 messages and no more exceptions than gauges"
		return &Error{begin + offsetFlags, expected, found, nil}
	}
	if err := r.follow(h, begin); err != nil {
		return err
	}
	if h.startsDictionary() {
		r.dictionary = dictionary{}
	}
	b := block{source: source{bytes: body, base: begin + headerLength}, dictionary: &r.dictionary}
	if err := b.read(h); err != nil {
		return err
	}
	r.joined, r.sequence, r.messages = true, h.sequence(), b.messages
	return nil
}

// readBody reads the body of a block. It allocates by the bytes that arrive, because the length in
// this header cannot be trusted.
func (r *Reader) readBody(length uint32) ([]byte, error) {
	var body bytes.Buffer
	read, err := io.Copy(&body, io.LimitReader(r.reader, int64(length)))
	r.offset += read
	if err != nil {
		return nil, &Error{r.offset, "a block's body", "an error: " + err.Error(), err}
	}
	if read < int64(length) {
		expected := fmt.Sprintf("a block's body of %d bytes", length)
		return nil, cutBlock(r.offset, expected, int(read))
	}
	return body.Bytes(), nil
}

// follow checks that a block can follow the previous one.
func (r *Reader) follow(h header, begin int64) error {
	switch {
	case !r.joined && !h.startsDictionary():
		const expected = "a block that begins the dictionary"
		return &Error{begin, expected, "one that does not", ErrNoDictionary}
	case !r.joined, h.sequence() == r.sequence+1, h.sequence() == 0 && h.startsDictionary():
		return nil
	}
	expected := fmt.Sprintf("the block of sequence %d", r.sequence+1)
	found := fmt.Sprintf("sequence %d", h.sequence())
	return &Error{begin + offsetSequence, expected, found, ErrLost}
}

// define reads the definition of a series.
func (d *dictionary) define(s *source) error {
	begin := s.at
	if d.count == mostSeries {
		return s.wrong(begin, "one of 1048576 series", "another series")
	}
	kind, err := s.byte("the kind of a series")
	if err != nil {
		return err
	}
	if Kind(kind) > KindUnion {
		return s.wrong(begin, "a kind of series, 0 to 3", "%d", kind)
	}
	shared, err := s.byte("how many bytes of the last id are shared")
	if err != nil {
		return err
	}
	if int(shared) > len(d.last) {
		expected := fmt.Sprintf("0 to %d bytes that are shared with the last id", len(d.last))
		return s.wrong(s.at-1, expected, "%d", shared)
	}
	length, err := s.varint("the length of the rest of an id")
	if err != nil {
		return err
	}
	rest, err := s.take(length, "the rest of an id")
	if err != nil {
		return err
	}
	if len(rest) > mostIDBytes-d.idBytes-int(shared) {
		return s.wrong(begin, "ids of at most 64 MiB", "more")
	}
	id := make([]byte, 0, int(shared)+len(rest))
	id = append(append(id, d.last[:shared]...), rest...)
	of := &series{id: id}
	switch Kind(kind) {
	case KindCounter:
		of.last, err = s.whole()
	case KindGauge:
		err = s.decimal(of)
	}
	if err != nil {
		return err
	}
	d.count++
	d.last = id
	d.idBytes += len(id)
	d.series[kind] = append(d.series[kind], of)
	return nil
}

// decimal reads a whole number, which places can precede, into a gauge.
func (s *source) decimal(of *series) (err error) {
	of.places = 0
	if s.left() > 0 {
		if lead := s.bytes[s.at]; lead >= leadQuotient && lead <= leadQuotient+mostPlaces {
			of.places = lead - leadQuotient
			s.at++
		}
	}
	of.last, err = s.whole()
	return err
}

// startsDictionary returns whether a reader can start with this block, at the start of the bytes.
func startsDictionary(input []byte) bool {
	if len(input) < headerLength {
		return false
	}
	h, body := header(input[:headerLength]), input[headerLength:]
	if !h.hasMagic() || h[offsetVersion] != version || !h.sound() || !h.startsDictionary() {
		return false
	}
	length := uint64(h.length())
	return length <= min(uint64(len(body)), mostBodyBytes) && h.sum(body[:length]) == h.checksum()
}

// cutBlock returns the error for a stream that ends after read bytes of a part of a block.
func cutBlock(offset int64, expected string, read int) error {
	found := fmt.Sprintf("the end of the stream after %d of them", read)
	return &Error{offset, expected, found, io.ErrUnexpectedEOF}
}

// header is the header of a block (8.4).
type header [headerLength]byte

func (h *header) hasMagic() bool         { return bytes.Equal(h[:len(magic)], magic) }
func (h *header) checksum() uint32       { return binary.LittleEndian.Uint32(h[offsetChecksum:]) }
func (h *header) length() uint32         { return binary.LittleEndian.Uint32(h[offsetLength:]) }
func (h *header) sequence() uint32       { return binary.LittleEndian.Uint32(h[offsetSequence:]) }
func (h *header) startsDictionary() bool { return h[offsetFlags] == 1 }

// of is the number of messages of a kind.
func (h *header) of(kind Kind) int { return int(h[offsetCounts+int(kind)]) }

// count is the number of all messages.
func (h *header) count() (count int) {
	for kind := KindCounter; kind <= KindUnion; kind++ {
		count += h.of(kind)
	}
	return count
}

// sound returns whether a block can contain these flags and counts.
func (h *header) sound() bool {
	count := h.count()
	return h[offsetFlags] <= 1 && h[offsetZero] == 0 && count >= 1 && count <= mostMessages &&
		int(h[offsetExceptions]) <= h.of(KindGauge)
}

// sum returns the checksum for a block with this body.
func (h *header) sum(body []byte) uint32 {
	return crc32.Update(crc32.ChecksumIEEE(h[offsetLength:]), crc32.IEEETable, body)
}

// magic is the start of every block.
var magic = []byte{0xfc, 0x71, 0x77}

const (
	version      = 2
	headerLength = 24

	offsetVersion     = 3
	offsetChecksum    = 4
	offsetLength      = 8
	offsetSequence    = 12
	offsetFlags       = 16
	offsetCounts      = 17
	offsetDefinitions = 21
	offsetExceptions  = 22
	offsetZero        = 23
)

// The bounds of a dictionary and of a block.
const (
	mostSeries    = 1 << 20
	mostIDBytes   = 64 << 20
	mostBodyBytes = 1 << 27
	mostMessages  = 255
)
