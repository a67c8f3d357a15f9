// Sends with datadog-go: sender ADDRESS PREFIX.
package main

import (
	"os"
	"time"

	"github.com/DataDog/datadog-go/v5/statsd"
)

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	client, err := statsd.New(os.Args[1], statsd.WithNamespace(os.Args[2]), statsd.WithoutTelemetry())
	must(err)
	tags := []string{"route:/a"}
	must(client.Count("hits", 3, tags, 1))
	must(client.Incr("hits", tags, 1))
	must(client.Gauge("level", 2.5, nil, 1))
	for range 2 {
		must(client.Timing("took", 20*time.Millisecond, nil, 1))
	}
	must(client.Histogram("size", 5, nil, 1))
	must(client.Histogram("size", 15, nil, 1))
	must(client.Distribution("spread", 7, nil, 1))
	must(client.SimpleEvent("an event", "with a text"))
	must(client.SimpleServiceCheck("a.check", statsd.Ok))
	must(client.Close())
}
