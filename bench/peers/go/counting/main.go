// Command counting takes one turn of client_golang at a workload of the Rust program of the same
// name, and prints a JSON line for each figure. You can pass any workload of that program: for an
// unknown one, this command prints no line.
package main

import (
	"flag"
	"log"
	"os"
	"runtime"
	"time"

	"quipu/bench/peers/measure"
)

const subject = "client_golang 1.25.0 (Go)"

func main() {
	log.SetFlags(0)
	quick := flag.Bool("quick", false, "runs of 2 ms instead of 60 ms, and fewer series")
	workload := flag.String("workload", "", "what to measure")
	flag.Parse()
	if flag.NArg() > 0 || *workload == "" {
		flag.Usage()
		os.Exit(2)
	}
	t := turn{options: measure.Options{Runs: 1, RunTime: 60 * time.Millisecond}, divisor: 1}
	if *quick {
		t = turn{options: measure.Options{Runs: 1, RunTime: 2 * time.Millisecond}, divisor: 200}
	}
	if run, known := workloads[*workload]; known {
		if err := measure.Print(os.Stdout, run(t)); err != nil {
			log.Fatal(err)
		}
	}
}

var workloads = map[string]func(turn) []measure.Record{
	"handle":    handle,
	"route":     route,
	"user":      user,
	"histogram": histograms,
}

// turn is the amount to measure.
type turn struct {
	options measure.Options
	// divisor scales down all amounts of a full turn.
	divisor int
}

// series scales the number of series of a full turn.
func (t turn) series(full int) int {
	return max(full/t.divisor, 100)
}

// time measures calls on a number of threads. This figure is the core time of an operation: the
// elapsed time divided by the operations per core.
func (t turn) time(name string, threads int, body func(thread, n int)) measure.Record {
	subjects := []measure.Subject{{Name: subject, Setup: func() func(int, int) { return body }}}
	record := measure.Time(t.options, name, threads, subjects)[0]
	cores := float64(min(threads, runtime.NumCPU()))
	return measure.Label{
		Case: name, Subject: subject, Threads: threads, Metric: "core time", Unit: "ns",
	}.Of([]float64{record.Median * cores})
}
