package main

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"quipu/bench/peers/measure"
)

var (
	kinds  = []string{"user", "internal", "network"}
	routes = []string{
		"/api/v1/users", "/api/v1/users/:id", "/api/v1/products", "/api/v1/products/:id",
		"/api/v1/products/:id/owner", "/api/v1/products/:id/purchase",
	}
)

// inputs is the length of the tables that a loop cycles through.
const inputs = 4096

func counters(labels ...string) *prometheus.CounterVec {
	opts := prometheus.CounterOpts{Name: "http_request_errors_total", Help: "Errors of requests."}
	return prometheus.NewCounterVec(opts, labels)
}

// handle adds to one counter on all threads.
func handle(t turn) []measure.Record {
	counter := counters().WithLabelValues()
	var records []measure.Record
	for _, threads := range []int{1, 2, 4, 8} {
		records = append(records, t.time("handle/add", threads, func(_, n int) {
			for range n {
				counter.Inc()
			}
		}))
	}
	return records
}

// pairs are random kinds and routes.
func pairs(seed int) [][2]string {
	random := rand.New(rand.NewPCG(uint64(seed), 0))
	table := make([][2]string, inputs)
	for i := range table {
		table[i] = [2]string{kinds[random.IntN(len(kinds))], routes[random.IntN(len(routes))]}
	}
	return table
}

// route adds to 18 series by a kind and a route.
func route(t turn) []measure.Record {
	family := counters("kind", "route")
	tables := [][][2]string{pairs(1), pairs(2)}
	var records []measure.Record
	for _, threads := range []int{1, 2} {
		records = append(records, t.time("enum and known text/add", threads, func(thread, n int) {
			table := tables[thread]
			for i := range n {
				pair := &table[i%inputs]
				family.WithLabelValues(pair[0], pair[1]).Inc()
			}
		}))
	}
	return records
}

// user adds to series by a kind, a route and a user, in random order.
func user(t turn) []measure.Record {
	series := t.series(18_000)
	family := counters("kind", "route", "user")
	random := rand.New(rand.NewPCG(1, 0))
	keys := make([][3]string, series)
	for i := range keys {
		kind, route := kinds[random.IntN(len(kinds))], routes[random.IntN(len(routes))]
		keys[i] = [3]string{kind, route, fmt.Sprintf("Gisela Hernandez %03d", i)}
		family.WithLabelValues(keys[i][:]...).Inc()
	}
	random.Shuffle(series, func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	// Each run continues where the previous one ended.
	var next atomic.Int64
	var records []measure.Record
	for _, threads := range []int{1, 2} {
		name := "three labels/add among " + withCommas(series)
		records = append(records, t.time(name, threads, func(_, n int) {
			start := int(next.Add(int64(n))) - n
			for i := range n {
				key := &keys[(start+i)%series]
				family.WithLabelValues(key[0], key[1], key[2]).Inc()
			}
		}))
	}
	return records
}

// withCommas formats a count, for example 18,000.
func withCommas(number int) string {
	digits := fmt.Sprint(number)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
