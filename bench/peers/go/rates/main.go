// Command rates measures the rate counters written in Go, and prints a JSON line for each figure.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"strings"
	"time"

	"quipu/bench/peers/measure"
)

// The subjects, with their names in the report.
const (
	bucketedName = "derlaft/ratecounter counter (equivalent)"
	exactName    = "derlaft/ratecounter nanocounter (equivalent)"
	constantName = "paulbellamy/ratecounter v0.2.0"
)

// The settings of derlaft/ratecounter's server: a window of a minute in buckets of 200 ms. This
// window contains a million events.
const (
	window   = time.Minute
	accuracy = 200 * time.Millisecond
	million  = 1_000_000
)

// benchmark is one case: it returns its records.
type benchmark struct {
	name string
	run  func(bench) ([]measure.Record, error)
}

// bench is the context of a benchmark.
type bench struct {
	options measure.Options
	name    string
	// dir holds the files that are saved.
	dir string
}

func main() {
	log.SetFlags(0)
	quick := flag.Bool("quick", false, "runs of 10 ms instead of 100 ms")
	runs := flag.Int("runs", 9, "timed runs of each case")
	only := flag.String("only", "", "measure only the cases whose name contains this text")
	flag.Parse()
	if flag.NArg() > 0 || *runs < 1 {
		flag.Usage()
		os.Exit(2)
	}
	options := measure.Options{Runs: *runs, RunTime: 100 * time.Millisecond}
	if *quick {
		options.RunTime = 10 * time.Millisecond
	}
	if err := run(options, *only); err != nil {
		log.Fatal(err)
	}
}

func run(options measure.Options, only string) error {
	dir, err := os.MkdirTemp("", "rates-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	var chosen []benchmark
	for _, group := range [][]benchmark{bucketedCases, exactCases, constantCases} {
		for _, b := range group {
			if strings.Contains(b.name, only) {
				chosen = append(chosen, b)
			}
		}
	}
	if len(chosen) == 0 {
		return fmt.Errorf("no case has %q in its name", only)
	}
	start := time.Now()
	for i, b := range chosen {
		log.Printf("[%2d/%d %4.0fs] %s", i+1, len(chosen), time.Since(start).Seconds(), b.name)
		records, err := b.run(bench{options: options, name: b.name, dir: dir})
		if err != nil {
			return fmt.Errorf("%s: %w", b.name, err)
		}
		if err := measure.Print(os.Stdout, records); err != nil {
			return err
		}
	}
	return nil
}

// shared measures calls on one counter with 1 and 2 threads. Setup makes the state of each run.
func (b bench) shared(subject string, setup func() func(n int)) ([]measure.Record, error) {
	var records []measure.Record
	subjects := []measure.Subject{{Name: subject, Setup: func() func(int, int) {
		run := setup()
		return func(_ int, n int) { run(n) }
	}}}
	for _, threads := range []int{1, 2} {
		records = append(records, measure.Time(b.options, b.name, threads, subjects)...)
	}
	return records, nil
}

// file measures a call that can fail, on one thread.
func (b bench) file(subject string, call func() error) ([]measure.Record, error) {
	var failed error
	subjects := []measure.Subject{{Name: subject, Setup: func() func(int, int) {
		return func(_ int, n int) {
			for range n {
				if err := call(); err != nil {
					failed = err
				}
			}
		}
	}}}
	records := measure.Time(b.options, b.name, 1, subjects)
	return records, failed
}

// memory measures the live heap that a counter with a million events holds.
func (b bench) memory(subject string, build func() any) ([]measure.Record, error) {
	label := measure.Label{Case: b.name, Subject: subject, Threads: 1, Metric: "memory", Unit: "B"}
	return measure.Repeat(b.options, []measure.Label{label}, func(int) (float64, error) {
		return measure.HeapBytes(build), nil
	})
}

// spread is a clock whose first million reads are spread evenly over one window.
func spread() func() int64 {
	now := time.Now().UnixNano()
	return func() int64 {
		now += int64(window) / million
		return now
	}
}

// keep uses a result, because the calls that made it could otherwise be optimised away.
//
//go:noinline
func keep(int) {}
