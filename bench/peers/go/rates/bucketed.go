package main

import (
	"path/filepath"
	"time"

	"quipu/bench/peers/bucketed"
	"quipu/bench/peers/measure"
)

var bucketedCases = []benchmark{
	{"bucketed/add", func(b bench) ([]measure.Record, error) {
		counter, err := bucketed.New(window, accuracy)
		if err != nil {
			return nil, err
		}
		return b.shared(bucketedName, func() func(int) {
			return func(n int) {
				for range n {
					counter.Add()
				}
			}
		})
	}},
	{"bucketed/count", func(b bench) ([]measure.Record, error) {
		counter, err := bucketed.New(window, accuracy)
		if err != nil {
			return nil, err
		}
		counter.Add()
		return b.shared(bucketedName, func() func(int) {
			return func(n int) {
				sum := 0
				for range n {
					sum += counter.Count()
				}
				keep(sum)
			}
		})
	}},
	{"bucketed/add+count", func(b bench) ([]measure.Record, error) {
		counter, err := bucketed.New(window, accuracy)
		if err != nil {
			return nil, err
		}
		return b.shared(bucketedName, func() func(int) {
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
	{"bucketed/save", func(b bench) ([]measure.Record, error) {
		counter, err := filledBuckets()
		if err != nil {
			return nil, err
		}
		path := filepath.Join(b.dir, "bucketed")
		return b.file(bucketedName, func() error { return counter.Save(path) })
	}},
	{"bucketed/load", func(b bench) ([]measure.Record, error) {
		counter, err := filledBuckets()
		if err != nil {
			return nil, err
		}
		path := filepath.Join(b.dir, "bucketed")
		if err := counter.Save(path); err != nil {
			return nil, err
		}
		return b.file(bucketedName, func() error { return counter.Load(path) })
	}},
	{"bucketed/memory", func(b bench) ([]measure.Record, error) {
		return b.memory(bucketedName, func() any {
			counter, err := bucketed.NewWithClock(window, accuracy, spread())
			if err != nil {
				panic(err) // The settings are constants above zero.
			}
			for range million {
				counter.Add()
			}
			return counter
		})
	}},
}

// filledBuckets makes a counter of 300 buckets. Its clock stops once they are filled, because all
// of them must stay in the window, even if this benchmark takes long.
func filledBuckets() (*bucketed.Counter, error) {
	now := time.Now().UnixNano()
	counter, err := bucketed.NewWithClock(window, accuracy, func() int64 { return now })
	if err != nil {
		return nil, err
	}
	for range 300 {
		now += int64(accuracy)
		counter.Add()
	}
	return counter, nil
}
