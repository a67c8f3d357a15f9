// Package measure times the peers written in Go and prints the figures as JSON lines. It uses the
// format and the method of the Rust harness, because their figures are compared.
package measure

import (
	"encoding/json"
	"io"
	"slices"
)

// Record is one figure: a line of the report's JSONL. The median, minimum and maximum of the runs
// use this unit.
type Record struct {
	Case    string  `json:"case"`
	Subject string  `json:"subject"`
	Threads int     `json:"threads"`
	Metric  string  `json:"metric"`
	Unit    string  `json:"unit"`
	Median  float64 `json:"median"`
	Min     float64 `json:"min"`
	Max     float64 `json:"max"`
	Runs    int     `json:"runs"`
}

// Label is a record without its values.
type Label struct {
	Case    string
	Subject string
	Threads int
	Metric  string
	Unit    string
}

// Of makes the record from the values of all runs. You must pass at least one value.
func (l Label) Of(values []float64) Record {
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	median := sorted[middle]
	if len(sorted)%2 == 0 {
		median = (sorted[middle-1] + sorted[middle]) / 2
	}
	return Record{
		Case:    l.Case,
		Subject: l.Subject,
		Threads: l.Threads,
		Metric:  l.Metric,
		Unit:    l.Unit,
		Median:  median,
		Min:     sorted[0],
		Max:     sorted[len(sorted)-1],
		Runs:    len(sorted),
	}
}

// Print writes the records, one JSON object per line.
func Print(w io.Writer, records []Record) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	for _, record := range records {
		if err := encoder.Encode(record); err != nil {
			return err
		}
	}
	return nil
}
