package main

import (
	"fmt"

	"quipu/bench/peers/measure"
	"quipu/bench/peers/wire"
)

// entrant is a row with a message. It was checked that this row preserves the message.
type entrant struct {
	row     wire.Row
	subject string
	codec   wire.Codec
	// data is the message, marshalled.
	data []byte
}

// entrants are all rows, each with the message to measure.
func entrants(kind wire.Kind) ([]*entrant, error) {
	var all []*entrant
	for _, row := range wire.Rows() {
		codec := row.New(kind)
		data, err := wire.Check(codec, wire.Seed(kind))
		if err != nil {
			return nil, fmt.Errorf("%s, %s: %w", row.Name, kind, err)
		}
		// The result of Marshal can be in the codec's buffer.
		data = append([]byte(nil), data...)
		all = append(all, &entrant{row: row, subject: "go:" + row.Name, codec: codec, data: data})
	}
	return all, nil
}

// measureAll measures all cases of one message, after checking that each row preserves it.
func measureAll(options measure.Options, kind wire.Kind) ([]measure.Record, error) {
	all, err := entrants(kind)
	if err != nil {
		return nil, err
	}
	var records []measure.Record
	for _, entrant := range all {
		label := measure.Label{
			Case: "size/" + messages[kind], Subject: entrant.subject, Threads: 1, Metric: "size", Unit: "B",
		}
		records = append(records, label.Of([]float64{float64(len(entrant.data))}))
	}

	var reusing []*entrant
	for _, entrant := range all {
		if entrant.row.Reuses {
			reusing = append(reusing, entrant)
		}
	}
	operations := []struct {
		name     string
		entrants []*entrant
		do       func(*entrant, int) error
	}{
		{"marshal", reusing, func(e *entrant, n int) error {
			_, err := e.codec.Marshal(n)
			return err
		}},
		{"marshal-fresh", all, func(e *entrant, n int) error {
			_, err := e.codec.MarshalFresh(n)
			return err
		}},
		{"unmarshal", all, func(e *entrant, n int) error {
			return e.codec.Unmarshal(e.data, n)
		}},
	}
	for _, operation := range operations {
		name := operation.name + "/" + messages[kind]
		times, err := measureTimes(options, name, operation.entrants, operation.do)
		if err != nil {
			return nil, err
		}
		records = append(records, times...)
	}
	return records, nil
}

// measureTimes lets rows take turns at an operation on one thread.
func measureTimes(
	options measure.Options, name string, entrants []*entrant, do func(*entrant, int) error,
) ([]measure.Record, error) {
	var failed error
	subjects := make([]measure.Subject, len(entrants))
	for i, entrant := range entrants {
		subjects[i] = measure.Subject{Name: entrant.subject, Setup: func() func(int, int) {
			return func(_, n int) {
				if err := do(entrant, n); err != nil {
					failed = fmt.Errorf("%s of %s: %w", name, entrant.subject, err)
				}
			}
		}}
	}
	return measure.Time(options, name, 1, subjects), failed
}
