package main

import (
	"fmt"
	"path/filepath"
	"time"

	"quipu/bench/peers/exact"
	"quipu/bench/peers/measure"
)

var exactCases = []benchmark{
	// Each run starts with a million events in the window and adds more events.
	{"exact/add", func(b bench) ([]measure.Record, error) {
		return b.shared(exactName, func() func(int) {
			counter := filledEvents()
			return func(n int) {
				for range n {
					counter.Add()
				}
			}
		})
	}},
	{"exact/count", func(b bench) ([]measure.Record, error) {
		return b.shared(exactName, func() func(int) {
			counter := filledEvents()
			return func(n int) {
				sum := 0
				for range n {
					sum += counter.Count()
				}
				keep(sum)
			}
		})
	}},
	{"exact/add+count", func(b bench) ([]measure.Record, error) {
		return b.shared(exactName, func() func(int) {
			counter := filledEvents()
			return func(n int) {
				sum := 0
				for range n {
					counter.Add()
					sum += counter.Count()
				}
				keep(sum)
			}
		})
	}},
	{"exact/save", func(b bench) ([]measure.Record, error) {
		counter, err := frozenEvents()
		if err != nil {
			return nil, err
		}
		path := filepath.Join(b.dir, "exact")
		return b.file(exactName, func() error { return counter.Save(path) })
	}},
	{"exact/load", func(b bench) ([]measure.Record, error) {
		counter, err := frozenEvents()
		if err != nil {
			return nil, err
		}
		path := filepath.Join(b.dir, "exact")
		if err := counter.Save(path); err != nil {
			return nil, err
		}
		return b.file(exactName, func() error { return counter.Load(path) })
	}},
	{"exact/add while saving", func(b bench) ([]measure.Record, error) {
		label := measure.Label{
			Case: b.name, Subject: exactName, Threads: 1, Metric: "worst time", Unit: "ms",
		}
		path := filepath.Join(b.dir, "exact")
		return measure.Repeat(b.options, []measure.Label{label}, func(int) (float64, error) {
			worst, err := worstAddWhileSaving(filledEvents(), path)
			return float64(worst.Nanoseconds()) / 1e6, err
		})
	}},
	{"exact/memory", func(b bench) ([]measure.Record, error) {
		return b.memory(exactName, func() any {
			counter, err := exact.NewWithClock(window, spread())
			if err != nil {
				panic(err) // The setting is a constant above zero.
			}
			for range million {
				counter.Add()
			}
			return counter
		})
	}},
}

// filledEvents makes a counter with a million recent events, on the wall clock.
func filledEvents() *exact.Counter {
	counter, err := exact.New(window)
	if err != nil {
		panic(err) // The setting is a constant above zero.
	}
	for range million {
		counter.Add()
	}
	return counter
}

// frozenEvents makes a counter with a million events whose clock then stops, because all of them
// must stay in the window, even if this benchmark takes long.
func frozenEvents() (*exact.Counter, error) {
	now := time.Now().UnixNano()
	counter, err := exact.NewWithClock(window, func() int64 { return now })
	if err != nil {
		return nil, err
	}
	for range million {
		now += int64(window) / million
		counter.Add()
	}
	if n := counter.Count(); n != million && n != million-1 {
		return nil, fmt.Errorf("%d events are in the window instead of a million", n)
	}
	return counter, nil
}

// worstAddWhileSaving adds for as long as one save runs and returns the longest single add.
func worstAddWhileSaving(counter *exact.Counter, path string) (time.Duration, error) {
	saved := make(chan error)
	go func() { saved <- counter.Save(path) }()
	var worst time.Duration
	for {
		start := time.Now()
		counter.Add()
		worst = max(worst, time.Since(start))
		select {
		case err := <-saved:
			return worst, err
		default:
		}
	}
}
