package main

import (
	"github.com/paulbellamy/ratecounter"

	"quipu/bench/peers/measure"
)

// The cases of the counter of constant size. Its clock is a ticker, so neither call reads the time.
var constantCases = []benchmark{
	{"constant/add", func(b bench) ([]measure.Record, error) {
		counter := ratecounter.NewRateCounter(window)
		return b.shared(constantName, func() func(int) {
			return func(n int) {
				for range n {
					counter.Incr(1)
				}
			}
		})
	}},
	{"constant/count", func(b bench) ([]measure.Record, error) {
		counter := ratecounter.NewRateCounter(window)
		counter.Incr(1)
		return b.shared(constantName, func() func(int) {
			return func(n int) {
				sum := 0
				for range n {
					sum += int(counter.Rate())
				}
				keep(sum)
			}
		})
	}},
	{"constant/memory", func(b bench) ([]measure.Record, error) {
		return b.memory(constantName, func() any {
			counter := ratecounter.NewRateCounter(window)
			for range million {
				counter.Incr(1)
			}
			return counter
		})
	}},
}
