package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"quipu/bench/peers/measure"
	"quipu/bench/peers/wire"
)

func TestMeasuresEveryRow(t *testing.T) {
	options := measure.Options{Runs: 1, RunTime: 10 * time.Microsecond}
	records, err := measureAll(options, wire.KindCounter)
	if err != nil {
		t.Fatal(err)
	}
	var cases []string
	for _, row := range wire.Rows() {
		cases = append(cases, "size/counter go:"+row.Name, "marshal-fresh/counter go:"+row.Name,
			"unmarshal/counter go:"+row.Name)
		if row.Reuses {
			cases = append(cases, "marshal/counter go:"+row.Name)
		}
	}
	var got []string
	for _, record := range records {
		got = append(got, record.Case+" "+record.Subject)
		unit := "time in ns"
		if strings.HasPrefix(record.Case, "size/") {
			unit = "size in B"
		}
		if record.Metric+" in "+record.Unit != unit || record.Median <= 0 || record.Threads != 1 {
			t.Errorf("%+v", record)
		}
	}
	slices.Sort(cases)
	slices.Sort(got)
	if !slices.Equal(got, cases) {
		t.Errorf("got %q, want %q", got, cases)
	}
}

func TestTellsOfAFailure(t *testing.T) {
	all, err := entrants(wire.KindCounter)
	if err != nil {
		t.Fatal(err)
	}
	options := measure.Options{Runs: 1, RunTime: time.Microsecond}
	truncated := func(e *entrant, n int) error { return e.codec.Unmarshal(nil, n) }
	thrift := all[slices.IndexFunc(all, func(e *entrant) bool { return e.row.Name == "thrift" })]
	_, err = measureTimes(options, "unmarshal/counter", []*entrant{thrift}, truncated)
	if err == nil {
		t.Error("timed an error")
	}
}
