package main

import (
	"math"
	"math/rand/v2"

	"github.com/prometheus/client_golang/prometheus"

	"quipu/bench/peers/measure"
)

// bounds are the upper bounds of the buckets, in seconds.
var bounds = []float64{0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128}

// histograms observes values that are spread over all buckets.
func histograms(t turn) []measure.Record {
	classic := prometheus.HistogramOpts{
		Name: "http_request_seconds", Help: "Time to answer.", Buckets: bounds,
	}
	native := prometheus.HistogramOpts{
		Name: "http_request_seconds", Help: "Time to answer.", NativeHistogramBucketFactor: 1.1,
	}
	values := [][]float64{observations(1), observations(2)}
	labels := [][][2]string{pairs(1), pairs(2)}

	records := observe(t, "histogram/observe", prometheus.NewHistogram(classic), values)
	family := prometheus.NewHistogramVec(classic, []string{"kind", "route"})
	for _, threads := range []int{1, 2} {
		name := "histogram/observe among 18"
		records = append(records, t.time(name, threads, func(thread, n int) {
			values, labels := values[thread], labels[thread]
			for i := range n {
				pair := &labels[i%inputs]
				family.WithLabelValues(pair[0], pair[1]).Observe(values[i%inputs])
			}
		}))
	}
	return append(records,
		observe(t, "native histogram/observe", prometheus.NewHistogram(native), values)...)
}

func observe(
	t turn, name string, histogram prometheus.Histogram, values [][]float64,
) []measure.Record {
	var records []measure.Record
	for _, threads := range []int{1, 2} {
		records = append(records, t.time(name, threads, func(thread, n int) {
			values := values[thread]
			for i := range n {
				histogram.Observe(values[i%inputs])
			}
		}))
	}
	return records
}

// observations are log-uniform from half of the lowest bound to twice the highest.
func observations(seed int) []float64 {
	random := rand.New(rand.NewPCG(uint64(seed), 0))
	values := make([]float64, inputs)
	for i := range values {
		values[i] = 0.0005 * math.Pow(2, 9*random.Float64())
	}
	return values
}
