package wire

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// sizes are the sizes of the original messages. They match the original table, unless a comment
// mentions a difference.
var sizes = map[string][4]int{
	"vmihailenco-msgpack": {40, 85, 48, 96},
	"tinylib-msgp":        {50, 96, 58, 139},
	"ugorji-msgpack":      {51, 97, 59, 140},
	// The union takes 128 bytes in the table, because the builder of that time wrote it.
	"flatbuffers":          {72, 116, 72, 124},
	"flatbuffers-borrowed": {72, 116, 72, 124},
	// The union takes 94 bytes in the table; this is the size of the next row.
	"protobuf":          {41, 81, 48, 83},
	"protobuf-via-gogo": {41, 81, 48, 94},
	"gogo-protobuf":     {41, 81, 48, 83},
	"thrift":            {56, 93, 56, 119},
	// Not in the table.
	"thrift-compact": {43, 82, 49, 95},
	// The counter takes 85 bytes in the table, because Go numbered types from 65 then.
	"gob": {84, 126, 84, 173},
	// Not in the table.
	"gob-stream":      {46, 58, 47, 60},
	"json":            {73, 82, 73, 126},
	"json-reflection": {73, 82, 73, 126},
	"easyjson":        {73, 82, 73, 126},
	"bson":            {66, 119, 66, 174},
	"xdr":             {52, 88, 52, 108},
	"xdr-primitives":  {52, 88, 52, 108},
	"gencode":         {40, 79, 46, 96},
	"colfer":          {42, 82, 49, 84},
}

func TestSizesOfTheSeedsMessages(t *testing.T) {
	if len(sizes) != len(Rows()) {
		t.Errorf("sizes of %d rows, but there are %d", len(sizes), len(Rows()))
	}
	for _, row := range Rows() {
		for _, kind := range Kinds {
			data, err := Check(row.New(kind), Seed(kind))
			if err != nil {
				t.Errorf("%s, %s: %v", row.Name, kind, err)
			} else if want := sizes[row.Name][kind]; len(data) != want {
				t.Errorf("%s, %s: %d bytes, want %d", row.Name, kind, len(data), want)
			}
		}
	}
}

// TestMessagesComeBack uses one codec for many messages, because no data of one message may remain
// in the next.
func TestMessagesComeBack(t *testing.T) {
	for _, row := range Rows() {
		for _, kind := range Kinds {
			codec := row.New(kind)
			for i, m := range messages(kind) {
				if !carries(row.Name, m) {
					continue
				}
				if _, err := Check(codec, m); err != nil {
					t.Errorf("%s, %s %d: %v", row.Name, kind, i, err)
				}
			}
		}
	}
}

// carries returns whether a row preserves a message bit by bit. You can pass any message that
// messages returns.
func carries(row string, m Message) bool {
	floats := append(slices.Clone(m.Values), m.Gauge)
	finite := !slices.ContainsFunc(floats, func(v float64) bool {
		return math.IsNaN(v) || math.IsInf(v, 0)
	})
	negativeZero := m.Gauge == 0 && math.Signbit(m.Gauge)
	switch {
	case strings.Contains(row, "json"):
		return finite
	case strings.HasPrefix(row, "gob") || strings.HasPrefix(row, "flatbuffers"),
		row == "gogo-protobuf" || row == "colfer":
		return !negativeZero
	}
	return true
}

// messages are some messages of a kind: edge cases, and random ones.
func messages(kind Kind) []Message {
	counters := []int64{
		0, 1, -1, 63, 64, -64, -65, 127, 128, -128, -129, 255, 256, 32767, 32768, -32769, 65535, 65536,
		math.MaxInt32, math.MaxInt32 + 1, math.MinInt32, math.MinInt32 - 1, math.MaxUint32,
		1 << 49, 1 << 56, 1 << 62, math.MaxInt64, math.MinInt64,
	}
	gauges := []float64{
		0, math.Copysign(0, -1), 1, -1.5, 0.1, 100, 1e6, 1e21, 1e-7, math.MaxFloat64, -math.MaxFloat64,
		math.SmallestNonzeroFloat64, math.Inf(1), math.Inf(-1), math.NaN(),
	}
	ids := []int{0, 1, 31, 32, 127, 128, 255, 256, 70_000}
	lists := []int{0, 1, 14, 15, 16, 127, 128, 200}

	random := rand.New(rand.NewPCG(uint64(kind), 0))
	var all []Message
	for i := range 200 {
		m := Message{Kind: kind, ID: make([]byte, ids[i%len(ids)])}
		for k := range m.ID {
			m.ID[k] = byte(random.Uint32())
		}
		if kind == KindCounter || kind == KindUnion {
			m.Counter = pick(random, i, counters, func() int64 { return int64(random.Uint64()) })
		}
		float := func() float64 { return math.Ldexp(random.NormFloat64(), random.IntN(200)-100) }
		if kind == KindGauge || kind == KindUnion {
			m.Gauge = pick(random, i, gauges, float)
		}
		if kind == KindBatchTimer || kind == KindUnion {
			m.Values = make([]float64, lists[i%len(lists)])
			for k := range m.Values {
				m.Values[k] = pick(random, random.IntN(400), gauges, float)
			}
		}
		if kind == KindUnion {
			m.Type = int8(i % 4)
		}
		all = append(all, m)
	}
	return all
}

// pick returns the edge case of index i in three of four calls, if there is one; otherwise a random
// value.
func pick[T any](random *rand.Rand, i int, edges []T, other func() T) T {
	if i < len(edges) && random.IntN(4) > 0 {
		return edges[i]
	}
	return other()
}

func TestPanicsAreNotTheRowsToHide(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("gencode reads past the end in silence")
		}
	}()
	_ = gencodeRow.New(KindCounter).Unmarshal([]byte{5, 1}, 1)
}

func TestFindsRows(t *testing.T) {
	if row, err := Find("bson"); err != nil || row.Name != "bson" {
		t.Errorf("%+v, %v", row, err)
	}
	if _, err := Find("asn.1"); err == nil {
		t.Error("found a row that does not exist")
	}
}

func TestCheckSeesALoss(t *testing.T) {
	negativeZero := Message{Kind: KindGauge, ID: []byte("a"), Gauge: math.Copysign(0, -1)}
	if _, err := Check(gogoProtobuf.New(KindGauge), negativeZero); err == nil {
		t.Error("-0 came back from gogo")
	}
}
