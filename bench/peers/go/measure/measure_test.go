package measure

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestMedianOfOddAndEvenRuns(t *testing.T) {
	odd := Label{}.Of([]float64{3, 1, 2})
	if odd.Median != 2 || odd.Min != 1 || odd.Max != 3 || odd.Runs != 3 {
		t.Errorf("odd: %+v", odd)
	}
	if even := (Label{}).Of([]float64{4, 1, 2, 3}); even.Median != 2.5 {
		t.Errorf("even: %+v", even)
	}
}

func TestPrintsTheKeysOfTheReport(t *testing.T) {
	var text strings.Builder
	label := Label{Case: "a/b", Subject: "s", Threads: 2, Metric: "time", Unit: "ns"}
	if err := Print(&text, []Record{label.Of([]float64{1})}); err != nil {
		t.Fatal(err)
	}
	want := `{"case":"a/b","subject":"s","threads":2,"metric":"time","unit":"ns",` +
		`"median":1,"min":1,"max":1,"runs":1}` + "\n"
	if text.String() != want {
		t.Errorf("got %s, want %s", text.String(), want)
	}
}

func TestEveryThreadDoesAllItsOperations(t *testing.T) {
	var operations, runs atomic.Int64
	subject := Subject{Name: "s", Setup: func() func(int, int) {
		runs.Add(1)
		return func(_ int, n int) { operations.Add(int64(n)) }
	}}
	if once(subject, 3, 5) <= 0 {
		t.Error("no time went by")
	}
	if operations.Load() != 15 || runs.Load() != 1 {
		t.Errorf("%d operations in %d runs", operations.Load(), runs.Load())
	}
}

func TestTimesASleepToWithinReason(t *testing.T) {
	subject := Subject{Name: "s", Setup: func() func(int, int) {
		return func(_ int, n int) { time.Sleep(time.Duration(n) * 20 * time.Microsecond) }
	}}
	options := Options{Runs: 3, RunTime: 2 * time.Millisecond}
	record := Time(options, "sleep", 1, []Subject{subject})[0]
	if record.Min < 20_000 || record.Runs != 3 {
		t.Errorf("%+v", record)
	}
}
