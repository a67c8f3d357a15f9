// Pushes with client_golang, like Go programs: in protobuf, with classic and native histograms.
//
//	pusher URL
package main

import (
	"fmt"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/push"
)

func main() {
	registry := prometheus.NewRegistry()
	add := func(c prometheus.Collector) { registry.MustRegister(c) }
	hits := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "go_hits_total", Help: "H."}, []string{"code"})
	hits.WithLabelValues("200").Add(3)
	add(hits)
	level := prometheus.NewGauge(prometheus.GaugeOpts{Name: "go_level", Help: "With \"quotes\" and \\."})
	level.Set(-1.5)
	add(level)
	classic := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "go_took", Buckets: []float64{0.1, 1}})
	native := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "go_native", NativeHistogramBucketFactor: 1.1})
	summary := prometheus.NewSummary(prometheus.SummaryOpts{
		Name: "go_size", Objectives: map[float64]float64{0.5: 0.05, 0.9: 0.01},
	})
	for _, v := range []float64{0, 0.05, 0.5, 0.5, 5, -2} {
		classic.Observe(v)
		native.Observe(v)
		summary.Observe(v)
	}
	add(classic)
	add(native)
	add(summary)
	pusher := push.New(os.Args[1], "go").Gatherer(registry).Grouping("instance", "a/b").Grouping("zone", "")
	for _, push := range []func() error{pusher.Push, pusher.Add, pusher.Push} {
		if err := push(); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	gone := push.New(os.Args[1], "gone").Collector(level)
	for _, push := range []func() error{gone.Push, gone.Delete} {
		if err := push(); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
}
