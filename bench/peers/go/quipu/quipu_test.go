package quipu

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
)

// vector is a line of the tables that the Rust library wrote.
type vector struct {
	message Message
	// bytes is nil in the table of the stream.
	bytes []byte
}

// sameBits returns whether two messages are equal bit by bit. An empty slice equals nil.
func sameBits(a, b Message) bool {
	same := func(a, b float64) bool { return math.Float64bits(a) == math.Float64bits(b) }
	return a.Kind == b.Kind && a.Type == b.Type && bytes.Equal(a.ID, b.ID) &&
		a.Counter == b.Counter && same(a.Gauge, b.Gauge) &&
		slices.EqualFunc(a.Values, b.Values, same)
}

func readVectors(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(vectors, name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func table(t testing.TB, name string) (all []vector) {
	t.Helper()
	for line := range strings.Lines(string(readVectors(t, name))) {
		columns := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(columns) != 6 && len(columns) != 7 {
			t.Fatalf("%s: a line of %d columns", name, len(columns))
		}
		var v vector
		v.message = parse(t, columns)
		if len(columns) == 7 {
			v.bytes = unhex(t, columns[6])
		}
		all = append(all, v)
	}
	if len(all) == 0 {
		t.Fatalf("%s is empty", name)
	}
	return all
}

// parse makes a message from KIND TYPE ID COUNTER VALUES GAUGE.
func parse(t testing.TB, columns []string) (m Message) {
	t.Helper()
	kind := slices.Index(kindNames[:], columns[0])
	if kind < 0 {
		t.Fatalf("no kind has the name %q", columns[0])
	}
	m.Kind = Kind(kind)
	m.ID = unhex(t, columns[2])
	var err error
	fail := func(what string) {
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	if columns[1] != absent {
		var number int64
		number, err = strconv.ParseInt(columns[1], 10, 8)
		fail("type")
		m.Type = int8(number)
	}
	if columns[3] != absent {
		m.Counter, err = strconv.ParseInt(columns[3], 10, 64)
		fail("counter")
	}
	double := func(text string) float64 {
		var bits uint64
		bits, err = strconv.ParseUint(text, 16, 64)
		fail("double")
		return math.Float64frombits(bits)
	}
	if columns[4] != absent && columns[4] != "" {
		for text := range strings.SplitSeq(columns[4], ",") {
			m.Values = append(m.Values, double(text))
		}
	}
	if columns[5] != absent {
		m.Gauge = double(columns[5])
	}
	return m
}

func unhex(t testing.TB, text string) []byte {
	t.Helper()
	data, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// readAll returns all messages up to the end or an error.
func readAll(input []byte) (all []Message, err error) {
	r := NewReader(bytes.NewReader(input))
	for {
		m, err := r.Next()
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		all = append(all, m)
	}
}

// compare fails the test unless these messages equal the vectors, bit by bit, as unions.
func compare(t *testing.T, got []Message, want []vector) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%d messages, want %d", len(got), len(want))
	}
	for i := range min(len(got), len(want)) {
		if m := got[i].Union(); !sameBits(m, want[i].message) {
			t.Fatalf("message %d: got\n%+v, want\n%+v", i, m, want[i].message)
		}
	}
}

// described fails the test unless an error contains an offset and the expected value.
func described(t *testing.T, err error, length int) {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("%v is not an *Error", err)
	}
	if e.Offset < 0 || e.Offset > int64(length) || e.Expected == "" || e.Found == "" {
		t.Fatalf("%+v of an input of %d bytes", e, length)
	}
}

func TestMessagesComeOutBitForBit(t *testing.T) {
	for i, v := range table(t, "quipu-messages.tsv") {
		m, err := Decode(v.bytes)
		if err != nil {
			t.Fatalf("message %d: %v", i, err)
		}
		if v.message.Kind == KindUnion {
			m = m.Union()
		}
		if !sameBits(m, v.message) {
			t.Fatalf("message %d: got\n%+v, want\n%+v", i, m, v.message)
		}
	}
}

func TestTruncatedAndLongerMessagesAreErrors(t *testing.T) {
	for i, v := range table(t, "quipu-messages.tsv") {
		for length := range v.bytes {
			_, err := Decode(v.bytes[:length])
			if !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Fatalf("message %d cut to %d bytes: %v", i, length, err)
			}
			described(t, err, length)
		}
		_, err := Decode(append(v.bytes, 0))
		if err == nil || errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("message %d and a byte: %v", i, err)
		}
		described(t, err, len(v.bytes)+1)
	}
}

func TestEveryFormOfAMessage(t *testing.T) {
	gauge := func(value float64) Message { return Message{Kind: KindGauge, Gauge: value} }
	timer := func(values ...float64) Message {
		return Message{Kind: KindBatchTimer, Values: values}
	}
	counter := func(value int64) Message { return Message{Counter: value} }
	for input, want := range map[string]Message{
		"00 7f":                         counter(127),
		"00 80 00":                      counter(128),
		"00 bf ff":                      counter(16511),
		"00 c0 00":                      counter(0),
		"00 c1 01 02":                   counter(0x201),
		"00 c7 ff ff ff ff ff ff ff 7f": counter(math.MaxInt64),
		"00 c8 00":                      counter(-1),
		"00 cf ff ff ff ff ff ff ff 7f": counter(math.MinInt64),
		"80 c8 02":                      gauge(-3),
		"80 d1 03":                      gauge(0.3),
		"80 d8 c8 00":                   gauge(-1e-8),
		// Rounded once: 2^53 + 1 is not a double.
		"80 d1 c6 01 00 00 00 00 00 20": gauge(900719925474099.3),
		"80 f0":                         gauge(0),
		"80 f1 80":                      gauge(math.Copysign(0, -1)),
		"80 f2 7f f0":                   gauge(math.Inf(1)),
		"80 c7 ff ff ff ff ff ff ff 7f": gauge(1 << 63),
		"40 00":                         timer(),
		"40 1f 00":                      timer(),
		"40 1f 82 00 01 ff":             timer(1, 255),
		"40 21 01 ff":                   timer(0xff01),
		"40 41 01 00 00 ff":             timer(0xff000001),
		"40 62 04 a1":                   timer(0.1, 1),
		"40 61 c1 01":                   timer(1e-4),
		"40 e1 01 01":                   timer(1e-5),
		"40 e1 c8 64":                   timer(1e-6),
		"40 82 01 d1 01":                timer(1, 0.1),
		"40 a1 00 00 00 00 00 00 f0 3f": timer(1),
		"bd 02 20 00 01":                {Kind: KindGauge, ID: []byte("ab"), Gauge: 1},
		"02 61 62 01":                   {ID: []byte("ab"), Counter: 1},
		"3f 02 61 62 01":                {ID: []byte("ab"), Counter: 1},
		"3e 02 fe 0f 01":                {ID: []byte("| "), Counter: 1},
		"c0 ff 00":                      {Kind: KindUnion, Type: -1},
		"c0 00 07 01 01 02 03":          {Kind: KindUnion, Counter: 1, Values: []float64{2}, Gauge: 3},
	} {
		if m, err := Decode(unhex(t, input)); err != nil || !sameBits(m, want) {
			t.Errorf("%s: %+v, %v; want %+v", input, m, err, want)
		}
	}
}

func TestPackedIds(t *testing.T) {
	for input, want := range map[string]string{
		// b is 1 and c is 2: 2<<5 + 1.
		"3d 02 41 00 00": "bc",
		"3d 01 1f 00":    "/",
		"3d 00 00":       "",
		// The space is 63 and the bar 62: 62<<6 + 63.
		"3e 02 bf 0f 00":                " |",
		"3e 08 00 00 00 00 00 fc 00":    "aaaaaaa ",
		"3e 09 00 00 00 00 00 00 20 00": "aaaaaaaa0",
		"3d 09 00 00 00 00 00 01 00":    "aaaaaaaab",
		"3d 08 20 00 00 00 f8 00":       "abaaaaa/",
		"3f 03 61 62 63 00":             "abc",
		"3d 25 0d 30 a2 03 5d 01 48 40 e3 9e 11 a0" +
			"46 a2 06 f2 ec 89 1f d1 26 02 29 01 64": "name=bulbasaur,trainer=ash,type=grass",
	} {
		if m, err := Decode(unhex(t, input)); err != nil || string(m.ID) != want {
			t.Errorf("%s: %q, %v; want %q", input, m.ID, err, want)
		}
	}
}

func TestFaultsOfMessagesAreErrors(t *testing.T) {
	for _, input := range []string{
		"3c 00", "7c 00", "bc 00", "fc 00", "fc 71 77 01", // a length of 60
		"00 d0 00", "00 d1 01", "00 f0", "00 e0 00", "00 ff", // not whole numbers
		"80 d0 00", "80 d9 00", "80 e0 00", "80 ef 00", "80 f9 00", "80 ff", // not numbers
		"80 d1 d1 00",                                                    // a quotient of a quotient
		"00 c7 00 00 00 00 00 00 00 80", "00 cf 00 00 00 00 00 00 00 80", // over 64 bits
		"40 c0", "40 c1 01", // form 6
		"40 61 00 00", "40 61 34 00 00 00 00 00 00 00", "40 60 00", // a width of 0, or of 52
		"40 61 01 02", "3d 01 20 00", "3e 02 00 10 00", // bits after the last
		"c0 00 08", "c0 00 80 00", // unknown values
		"3f ff ff ff ff ff ff ff ff ff 02", // a varint of 65 bits
		// Lengths beyond all memory.
		"3d ff ff ff ff ff ff ff ff ff 01", "3e ff ff ff ff ff ff ff ff ff 01 00",
		"3f ff ff ff ff ff ff ff ff ff 01", "40 1f ff ff ff ff ff ff ff ff ff 01",
		"40 3f 80 80 80 80 80 80 80 80 80 01", "40 7f 80 80 80 80 80 80 80 80 80 01 01 00",
		"40 9f ff ff ff ff ff ff ff ff 7f 00", "40 bf 80 80 80 80 80 80 80 80 20",
		"40 ff ff ff ff ff ff ff ff ff ff 01 33 00", "40 7f 80 80 80 80 10 01 00",
	} {
		data := unhex(t, input)
		m, err := Decode(data)
		if err == nil {
			t.Errorf("%s is %+v", input, m)
			continue
		}
		described(t, err, len(data))
	}
}

func TestStreamComesOutBitForBit(t *testing.T) {
	input, want := readVectors(t, "quipu-stream.bin"), table(t, "quipu-stream.tsv")
	got, err := readAll(input)
	if err != nil {
		t.Fatal(err)
	}
	compare(t, got, want)

	r := NewReader(iotest.OneByteReader(bytes.NewReader(input)))
	for i := range want {
		if m, err := r.Next(); err != nil || !sameBits(m.Union(), want[i].message) {
			t.Fatalf("message %d, byte by byte: %+v, %v", i, m, err)
		}
	}
	for range 2 {
		if _, err := r.Next(); err != io.EOF {
			t.Fatalf("after the last message: %v", err)
		}
	}
}

// blocks cuts the vectors' stream into its blocks.
func blocks(t testing.TB) (all [][]byte) {
	t.Helper()
	for rest := readVectors(t, "quipu-stream.bin"); len(rest) > 0; {
		h := header(rest[:headerLength])
		length := headerLength + int(h.length())
		all = append(all, rest[:length:length])
		rest = rest[length:]
	}
	return all
}

// messagesOf returns the number of messages in these blocks.
func messagesOf(blocks [][]byte) (count int) {
	for _, block := range blocks {
		h := header(block[:headerLength])
		count += int(h.count())
	}
	return count
}

func TestJoinsWhereTheDictionaryBegins(t *testing.T) {
	input, want, all := readVectors(t, "quipu-stream.bin"), table(t, "quipu-stream.tsv"), blocks(t)
	starts, offset := 0, 0
	for i, block := range all {
		h := header(block[:headerLength])
		got, err := readAll(input[offset:])
		if h.startsDictionary() {
			starts++
			if err != nil {
				t.Fatalf("block %d: %v", i, err)
			}
			compare(t, got, want[messagesOf(all[:i]):])
			// From any byte after the start of the previous such block, this one is the next.
			for from := max(0, offset-100); from <= offset; from++ {
				if found, ok := FindStart(input[from:]); ok && from+found > offset || !ok {
					t.Fatalf("from %d: %d, %t", from, found, ok)
				}
			}
		} else if !errors.Is(err, ErrNoDictionary) || len(got) > 0 {
			t.Fatalf("block %d: %d messages, %v", i, len(got), err)
		}
		offset += len(block)
	}
	if starts < 2 {
		t.Errorf("the stream has %d blocks that begin the dictionary: no restart is tested", starts)
	}
}

func TestFindStartSeesOnlySoundBlocks(t *testing.T) {
	first := blocks(t)[0]
	junk := []byte{0xfc, 0x71, 0x77, 1, 1, 0xfc, 0xfc, 0x71}
	if at, ok := FindStart(slices.Concat(junk, first)); !ok || at != len(junk) {
		t.Errorf("%d, %t after junk", at, ok)
	}
	if at, ok := FindStart(first[:len(first)-1]); ok {
		t.Errorf("a start at %d in a block that is cut", at)
	}
	for i := range first {
		damaged := slices.Clone(first)
		damaged[i] ^= 0x10
		if at, ok := FindStart(damaged); ok {
			t.Errorf("a start at %d, byte %d being damaged", at, i)
		}
	}
}

func TestCutStreamsAreErrors(t *testing.T) {
	input, want, all := readVectors(t, "quipu-stream.bin"), table(t, "quipu-stream.tsv"), blocks(t)
	ends := map[int]int{0: 0}
	end := 0
	for i, block := range all {
		end += len(block)
		ends[end] = messagesOf(all[:i+1])
	}
	for length := range len(input) {
		count, whole := ends[length]
		// All lengths in the first block, and some in the others.
		if !whole && length > len(all[0])+headerLength && length%37 > 0 {
			continue
		}
		got, err := readAll(input[:length])
		if whole {
			if err != nil {
				t.Fatalf("cut to %d bytes: %v", length, err)
			}
			compare(t, got, want[:count])
			continue
		}
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Fatalf("cut to %d bytes: %v", length, err)
		}
		described(t, err, length)
	}
}

func TestDamagedBlocksAreErrors(t *testing.T) {
	want := table(t, "quipu-stream.tsv")
	all := blocks(t)
	start := 0
	for i := range all {
		h := header(all[i][:headerLength])
		if h.startsDictionary() {
			start = i
		}
		before := slices.Concat(all[start:i]...)
		for at := 0; at < len(all[i]); at++ {
			if at >= headerLength {
				at += 50
			}
			if at >= len(all[i]) {
				break
			}
			input := slices.Concat(before, all[i], slices.Concat(all[i+1:]...))
			input[len(before)+at] ^= 1 << (at % 8)
			got, err := readAll(input)
			if err == nil {
				t.Fatalf("block %d, byte %d: no error", i, at)
			}
			described(t, err, len(input))
			// A wrong length can reach beyond the end.
			caught := errors.Is(err, ErrChecksum) || errors.Is(err, io.ErrUnexpectedEOF)
			ofLength := at >= offsetLength && at < offsetSequence
			if at >= offsetChecksum && !ofLength && !caught {
				t.Fatalf("block %d, byte %d: %v", i, at, err)
			}
			first := messagesOf(all[:start])
			compare(t, got, want[first:first+messagesOf(all[start:i])])
		}
	}
}

func TestLostBlocksAreErrors(t *testing.T) {
	all := blocks(t)
	if len(all) < 4 {
		t.Fatalf("the stream has %d blocks", len(all))
	}
	for i := 1; i < len(all)-1; i++ {
		for name, input := range map[string][][]byte{
			"lost":      slices.Concat(all[:i], all[i+1:]),
			"repeated":  slices.Concat(all[:i+1], all[i:]),
			"exchanged": slices.Concat(all[:i], all[i+1:i+2], all[i:i+1], all[i+2:]),
		} {
			got, err := readAll(slices.Concat(input...))
			if !errors.Is(err, ErrLost) {
				t.Errorf("block %d %s: %v", i, name, err)
			}
			if whole := messagesOf(all[:i]); len(got) < whole {
				t.Errorf("block %d %s: %d messages, want at least %d", i, name, len(got), whole)
			}
		}
	}
}

func TestANewStreamMayFollow(t *testing.T) {
	input, want := readVectors(t, "quipu-stream.bin"), table(t, "quipu-stream.tsv")
	got, err := readAll(slices.Concat(input, input))
	if err != nil {
		t.Fatal(err)
	}
	compare(t, got, slices.Concat(want, want))
}

// counts are the numbers of messages, definitions and exceptions of a block.
type counts struct{ counters, timers, gauges, unions, definitions, exceptions byte }

// blockOf makes a valid block.
func blockOf(flags byte, sequence uint32, c counts, body []byte) []byte {
	h := header{0: magic[0], 1: magic[1], 2: magic[2], offsetVersion: version, offsetFlags: flags}
	put(h[offsetLength:], uint32(len(body)))
	put(h[offsetSequence:], sequence)
	copy(h[offsetCounts:], []byte{c.counters, c.timers, c.gauges, c.unions})
	h[offsetDefinitions], h[offsetExceptions] = c.definitions, c.exceptions
	put(h[offsetChecksum:], h.sum(body))
	return append(h[:], body...)
}

func put(bytes []byte, number uint32) {
	for i := range 4 {
		bytes[i] = byte(number >> (8 * i))
	}
}

func TestTheExampleOfThePage(t *testing.T) {
	body := unhex(t, "00 00 04 68 69 74 73 0a 00 05 c0 33")
	got, err := readAll(blockOf(1, 0, counts{counters: 3, definitions: 1}, body))
	hits := func(value int64) Message { return Message{ID: []byte("hits"), Counter: value} }
	if err != nil || !slices.EqualFunc(got, []Message{hits(10), hits(25), hits(31)}, sameBits) {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestBodiesReferToTheLastValue(t *testing.T) {
	counter := func(value int64) Message { return Message{ID: []byte("a"), Counter: value} }
	timer := func(values ...float64) Message {
		return Message{Kind: KindBatchTimer, ID: []byte("ab"), Values: values}
	}
	gauge := func(value float64) Message {
		return Message{Kind: KindGauge, ID: []byte("abc"), Gauge: value}
	}
	union := Message{Kind: KindUnion, Type: -1, ID: []byte("x"), Counter: 1}
	body := unhex(t, "00 00 01 61 c7 ff ff ff ff ff ff ff 7f"+ // a, a counter, from the maximum
		"01 01 01 62"+ // ab, a batch timer
		"02 02 01 63 d1 0e"+ // abc, a gauge, from 1.4
		"03 00 01 78"+ // x, a union
		"00"+"00"+"00"+"00"+ // the numbers of all are 0
		"28 00 00 00 00 00  02 00 00 00 00  01 00 00 00 00"+ // counters: 0, +1, -1 in 40 bits
		"02 a8 02"+ // gauges: 0, +1, ignored, ignored, +1, 0 in 2 bits
		"21 03 22"+ // shapes: 1 value of 1 bit; 3 places; 1 value of 2 bits
		"02 f2 3f f0"+"03 d2 83 2c"+ // gauge 2 is 1.0, and gauge 3 is 9.4 with 2 places
		"01"+"61 08 07"+"03"+ // lists: 1; 0.007 in 8 bits; 0.003
		"ff 01 01")
	want := []Message{
		counter(math.MaxInt64), counter(math.MinInt64), counter(math.MaxInt64),
		timer(1), timer(0.7), timer(0.003),
		gauge(1.4), gauge(1.5), gauge(1), gauge(9.4), gauge(9.41), gauge(9.41),
		union,
	}
	c := counts{counters: 3, timers: 3, gauges: 6, unions: 1, definitions: 4, exceptions: 2}
	got, err := readAll(blockOf(1, 0, c, body))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.EqualFunc(got, want, sameBits) {
		t.Errorf("got\n%+v, want\n%+v", got, want)
	}
	// The sequence wraps around at 2^32.
	first := unhex(t, "00 00 01 61 05 00 00")
	one := counts{counters: 1}
	wrapped := slices.Concat(blockOf(1, math.MaxUint32, counts{counters: 1, definitions: 1}, first),
		blockOf(0, 0, one, []byte{0, 0}), blockOf(0, 1, one, []byte{0, 2, 2}))
	if got, err = readAll(wrapped); err != nil || len(got) != 3 || got[2].Counter != 6 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestFaultsInSoundBlocksAreErrors(t *testing.T) {
	counter := counts{counters: 1, definitions: 1}
	timer := counts{timers: 1, definitions: 1}
	gauge := counts{gauges: 1, definitions: 1}
	exception := counts{gauges: 1, definitions: 1, exceptions: 1}
	for name, of := range map[string]struct {
		counts
		body string
	}{
		"a series that is not defined":   {counts{counters: 1}, "00 00"},
		"the number of no series":        {counter, "00 00 00 00 01 01 00"},
		"a kind that is not one":         {counter, "04 00 00 00 00 00"},
		"a shared id without one before": {counter, "00 01 00 00 00 00"},
		"a cut id":                       {counter, "00 00 05 61 62 63"},
		"an id beyond all memory":        {counter, "00 00 ff ff ff ff ff ff ff ff ff 01 61"},
		"a first counter that is none":   {counter, "00 00 00 d0 00 00 00"},
		"a first gauge that is none":     {gauge, "02 00 00 d9 00 00 00"},
		"a first gauge of a double":      {gauge, "02 00 00 f0 00 00"},
		"a width of 33 bits":             {counter, "00 00 00 00 00 21 00 00 00 00 00"},
		"a width of 72 bits":             {counter, "00 00 00 00 00 48 00 00 00 00 00 00 00 00 00"},
		"a shape that is none":           {timer, "01 00 00 00 09 00"},
		"a list that is cut":             {timer, "01 00 00 00 e8 01 02"},
		"a list of form 6":               {timer, "01 00 00 00 00 c0"},
		"an exception of no gauge":       {exception, "02 00 00 00 00 00 01 00"},
		"an exception that is none":      {exception, "02 00 00 00 00 00 00 e0 00"},
		"a message that is cut":          {counter, "00 00 00 00 00"},
		"bytes after the last message":   {counter, "00 00 00 00 00 00 00"},
		"nothing":                        {counter, ""},
	} {
		input := blockOf(1, 0, of.counts, unhex(t, of.body))
		got, err := readAll(input)
		if err == nil || len(got) > 0 {
			t.Errorf("%s: %+v, %v", name, got, err)
			continue
		}
		described(t, err, len(input))
	}
	valid := unhex(t, "00 00 00 00 00 00")
	if _, err := readAll(blockOf(1, 0, counter, valid)); err != nil {
		t.Fatal(err)
	}
	for name, input := range map[string][]byte{
		"an unknown flag":    blockOf(2, 0, counter, valid),
		"no messages":        blockOf(1, 0, counts{definitions: 1}, unhex(t, "00 00 00 00")),
		"many messages":      blockOf(1, 0, counts{counters: 255, timers: 1}, nil),
		"more exceptions":    blockOf(1, 0, counts{counters: 1, exceptions: 1}, nil),
		"no dictionary":      blockOf(0, 0, counter, valid),
		"an earlier version": append([]byte{0xfc, 0x71, 0x77, 1}, blockOf(1, 0, counter, valid)[4:]...),
		"another begin":      append([]byte{0xfd}, blockOf(1, 0, counter, valid)[1:]...),
		"a length of 4 GB":   append(blockOf(1, 0, counter, valid)[:8], bytes.Repeat([]byte{0xff}, 16)...),
	} {
		_, err := readAll(input)
		if err == nil {
			t.Errorf("%s: no error", name)
			continue
		}
		described(t, err, len(input))
	}
	broken := errors.New("broken")
	if _, err := NewReader(iotest.ErrReader(broken)).Next(); !errors.Is(err, broken) {
		t.Errorf("a reader that fails: %v", err)
	}
}

func TestADictionaryHasAtMostSoManySeries(t *testing.T) {
	const inBlock = 128
	// Each block defines a counter without an id, from 0, and contains one message of the first
	// counter.
	body := append(bytes.Repeat([]byte{0, 0, 0, 0}, inBlock), 0, 0)
	one := counts{counters: 1, definitions: inBlock}
	var input []byte
	for sequence := range uint32(mostSeries / inBlock) {
		flags := byte(0)
		if sequence == 0 {
			flags = 1
		}
		input = append(input, blockOf(flags, sequence, one, body)...)
	}
	next := uint32(mostSeries / inBlock)
	more := unhex(t, "00 00 00 00 00 00")
	for flags, isRead := range []bool{false, true} {
		last := blockOf(byte(flags), next, counts{counters: 1, definitions: 1}, more)
		_, err := readAll(slices.Concat(input, last))
		if (err == nil) != isRead {
			t.Errorf("flags %d: %v", flags, err)
		}
	}
}

func TestADictionaryHasAtMostSoManyBytesOfIds(t *testing.T) {
	const length = mostIDBytes / 2
	define := slices.Concat([]byte{0, 0, 0x80, 0x80, 0x80, 0x10}, make([]byte, length), []byte{0})
	body := slices.Concat(define, define, []byte{1, 0b10, 0})
	full := blockOf(1, 0, counts{counters: 2, definitions: 2}, body)
	if got, err := readAll(full); err != nil || len(got) != 2 || len(got[1].ID) != length {
		t.Fatalf("%d messages, %v", len(got), err)
	}
	// Shared bytes count, too.
	more := blockOf(0, 1, counts{counters: 1, definitions: 1}, unhex(t, "00 01 00 00 00 00"))
	if got, err := readAll(slices.Concat(full, more)); err == nil || len(got) != 2 {
		t.Errorf("%d messages, %v", len(got), err)
	}
}

// FuzzMessage decodes any bytes as a message, and as the counts and the body of a valid block.
func FuzzMessage(f *testing.F) {
	for i, v := range table(f, "quipu-messages.tsv") {
		if i%8 == 0 {
			f.Add(v.bytes)
		}
	}
	for _, block := range blocks(f) {
		f.Add(slices.Concat(block[offsetCounts:offsetZero], block[headerLength:]))
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		if m, err := Decode(input); err != nil {
			described(t, err, len(input))
		} else if len(m.ID) > 2*len(input) || len(m.Values) > 8*len(input) {
			t.Fatalf("an id of %d bytes and %d values", len(m.ID), len(m.Values))
		}
		if len(input) < 6 {
			return
		}
		c := counts{input[0], input[1], input[2], input[3], input[4], input[5]}
		if _, err := readAll(blockOf(1, 0, c, input[6:])); err != nil {
			described(t, err, headerLength+len(input))
		}
	})
}

// FuzzStream decodes any bytes as a stream. A reader can start at the offset that FindStart
// returns.
func FuzzStream(f *testing.F) {
	for _, block := range blocks(f) {
		f.Add(block)
	}
	f.Add(readVectors(f, "quipu-stream.bin"))
	f.Fuzz(func(t *testing.T, input []byte) {
		if _, err := readAll(input); err != nil {
			described(t, err, len(input))
		}
		start, found := FindStart(input)
		if !found {
			return
		}
		r := NewReader(bytes.NewReader(input[start:]))
		if err := r.readBlock(); err != nil {
			t.Fatalf("a start at %d: %v", start, err)
		}
	})
}

// vectors is the folder of the Rust library's vectors.
const vectors = "../../../../crates/wire/tests/vectors"

// absent stands for a field that this message lacks.
const absent = "-"
