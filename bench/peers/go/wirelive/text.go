package main

import (
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"strings"

	"quipu/bench/peers/wire"
)

// absent stands for a field that this message lacks.
const absent = "-"

// parse makes a message from KIND TYPE ID COUNTER VALUES GAUGE. The id and values are never nil.
func parse(texts []string) (m wire.Message, err error) {
	if m.Kind, err = parseKind(texts[0]); err != nil {
		return m, err
	}
	if texts[1] != absent {
		number, err := strconv.ParseInt(texts[1], 10, 8)
		if err != nil {
			return m, fmt.Errorf("type: %w", err)
		}
		m.Type = int8(number)
	}
	if m.ID, err = parseBytes(texts[2]); err != nil {
		return m, fmt.Errorf("id: %w", err)
	}
	if texts[3] != absent {
		if m.Counter, err = strconv.ParseInt(texts[3], 10, 64); err != nil {
			return m, fmt.Errorf("counter: %w", err)
		}
	}
	m.Values = []float64{}
	if texts[4] != absent && texts[4] != "" {
		for text := range strings.SplitSeq(texts[4], ",") {
			value, err := parseFloat(text)
			if err != nil {
				return m, fmt.Errorf("values: %w", err)
			}
			m.Values = append(m.Values, value)
		}
	}
	if texts[5] != absent {
		if m.Gauge, err = parseFloat(texts[5]); err != nil {
			return m, fmt.Errorf("gauge: %w", err)
		}
	}
	return m, nil
}

func parseKind(text string) (wire.Kind, error) {
	for _, kind := range wire.Kinds {
		if kind.String() == text {
			return kind, nil
		}
	}
	return 0, fmt.Errorf("no kind has the name %q", text)
}

// parseBytes decodes hex. The result is never nil.
func parseBytes(text string) ([]byte, error) {
	data := make([]byte, 0, len(text)/2)
	return hex.AppendDecode(data, []byte(text))
}

func parseFloat(text string) (float64, error) {
	if len(text) != 16 {
		return 0, fmt.Errorf("%q does not have 16 digits", text)
	}
	bits, err := strconv.ParseUint(text, 16, 64)
	return math.Float64frombits(bits), err
}

// format writes a message in the form that parse reads.
func format(m wire.Message) string {
	tag, counter, values, gauge := absent, absent, absent, absent
	union := m.Kind == wire.KindUnion
	if union {
		tag = strconv.Itoa(int(m.Type))
	}
	if union || m.Kind == wire.KindCounter {
		counter = strconv.FormatInt(m.Counter, 10)
	}
	if union || m.Kind == wire.KindBatchTimer {
		texts := make([]string, len(m.Values))
		for i, value := range m.Values {
			texts[i] = formatFloat(value)
		}
		values = strings.Join(texts, ",")
	}
	if union || m.Kind == wire.KindGauge {
		gauge = formatFloat(m.Gauge)
	}
	id := hex.EncodeToString(m.ID)
	return strings.Join([]string{m.Kind.String(), tag, id, counter, values, gauge}, "\t")
}

func formatFloat(value float64) string {
	return fmt.Sprintf("%016x", math.Float64bits(value))
}
