// Command wirebench measures Go's libraries for wire formats, and prints a JSON line for each
// figure. These are, for example, the length of a message, and the times to marshal it into a
// buffer that is reused and into a new one, and to unmarshal it. You can pass any workload of the
// Rust program: for an unknown one, this command prints no line.
package main

import (
	"flag"
	"log"
	"os"
	"time"

	"quipu/bench/peers/measure"
	"quipu/bench/peers/wire"
)

func main() {
	log.SetFlags(0)
	quick := flag.Bool("quick", false, "runs of 2 ms instead of 60 ms")
	runs := flag.Int("runs", 1, "timed runs of each case")
	workload := flag.String("workload", "", "the message to measure, or all if empty")
	flag.Parse()
	if flag.NArg() > 0 || *runs < 1 {
		flag.Usage()
		os.Exit(2)
	}
	options := measure.Options{Runs: *runs, RunTime: 60 * time.Millisecond}
	if *quick {
		options.RunTime = 2 * time.Millisecond
	}
	for _, kind := range wire.Kinds {
		if *workload != "" && *workload != messages[kind] {
			continue
		}
		records, err := measureAll(options, kind)
		if err != nil {
			log.Fatal(err)
		}
		if err := measure.Print(os.Stdout, records); err != nil {
			log.Fatal(err)
		}
	}
}

// messages are the names of the messages in the report.
var messages = map[wire.Kind]string{
	wire.KindCounter:    "counter",
	wire.KindBatchTimer: "batch-timer",
	wire.KindGauge:      "gauge",
	wire.KindUnion:      "union",
}
