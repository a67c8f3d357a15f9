// Command rateserver responds to every HTTP request with the number of requests in the last window,
// as 20 digits.
//
// This command is an equivalent of the server of derlaft/ratecounter: net/http, the bucketed
// counter, and a state file that is written on a timer and at SIGINT or SIGTERM.
package main

import (
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"quipu/bench/peers/bucketed"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:8081", "address to listen on")
	state := flag.String("state", "state.rtt", "file that keeps the count across restarts")
	window := flag.Duration("window", time.Minute, "window to count over")
	accuracy := flag.Duration("accuracy", 200*time.Millisecond, "length of a bucket")
	checkpoint := flag.Duration("checkpoint", 500*time.Millisecond, "time between two saves")
	flag.Parse()
	if flag.NArg() > 0 || *checkpoint <= 0 {
		flag.Usage()
		os.Exit(2)
	}

	counter, err := bucketed.New(*window, *accuracy)
	if err != nil {
		log.Fatal(err)
	}
	if err := counter.Load(*state); err != nil {
		log.Fatal(err)
	}
	go saveAtExit(counter, *state)
	go saveOnTimer(counter, *state, *checkpoint)

	http.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		counter.Add()
		// Without an explicit type, the response is text/plain; charset=utf-8.
		if _, err := fmt.Fprintf(w, "%020d", counter.Count()); err != nil {
			log.Println("write the response:", err)
		}
	})
	log.Println("listening on", *listen)
	log.Fatal(http.ListenAndServe(*listen, nil))
}

// saveOnTimer writes the state file for as long as the process lives.
func saveOnTimer(counter *bucketed.Counter, path string, every time.Duration) {
	for range time.Tick(every) {
		if err := counter.Save(path); err != nil {
			log.Println("save the state:", err)
		}
	}
}

// saveAtExit ends the process at SIGINT or SIGTERM, after a last save.
func saveAtExit(counter *bucketed.Counter, path string) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	<-signals
	if err := counter.Save(path); err != nil {
		log.Fatal("save the state: ", err)
	}
	log.Println("terminating")
	os.Exit(0)
}
