package measure

import (
	"fmt"
	"runtime"
	"sync"
	"time"
)

// Options are the durations and repetitions of a measurement.
type Options struct {
	// Runs is the number of timed runs of a subject.
	Runs int
	// RunTime is the target duration of a run.
	RunTime time.Duration
}

// Subject is one thing to time.
type Subject struct {
	Name string
	// Setup prepares a run, and is not timed. It returns the body of the run. This body does n
	// operations, and is called once on each thread at the same time.
	Setup func() (run func(thread int, n int))
}

// Time measures the subjects in rotation, one run of each in turn, because a drift of the machine
// then affects all equally. The figures are nanoseconds of wall time per operation of all threads:
// elapsed / (threads * operations).
func Time(options Options, name string, threads int, subjects []Subject) []Record {
	operations := make([]int, len(subjects))
	for i, subject := range subjects {
		operations[i] = calibrate(subject, threads, options.RunTime)
	}
	values := make([][]float64, len(subjects))
	for range options.Runs {
		for i, subject := range subjects {
			elapsed := once(subject, threads, operations[i])
			perOperation := float64(elapsed.Nanoseconds()) / float64(threads*operations[i])
			values[i] = append(values[i], perOperation)
		}
	}
	records := make([]Record, len(subjects))
	for i, subject := range subjects {
		label := Label{Case: name, Subject: subject.Name, Threads: threads, Metric: "time", Unit: "ns"}
		records[i] = label.Of(values[i])
	}
	return records
}

// Repeat takes one value of each subject in turn, once per run.
func Repeat(
	options Options, labels []Label, value func(subject int) (float64, error),
) ([]Record, error) {
	values := make([][]float64, len(labels))
	for range options.Runs {
		for i := range labels {
			v, err := value(i)
			if err != nil {
				return nil, fmt.Errorf("%s of %s: %w", labels[i].Case, labels[i].Subject, err)
			}
			values[i] = append(values[i], v)
		}
	}
	records := make([]Record, len(labels))
	for i, label := range labels {
		records[i] = label.Of(values[i])
	}
	return records, nil
}

// HeapBytes returns the bytes of live heap that the result of build takes.
func HeapBytes(build func() any) float64 {
	before := liveHeap()
	kept := build()
	after := liveHeap()
	runtime.KeepAlive(kept)
	return float64(after) - float64(before)
}

// calibrate finds the number of operations per thread that take about this time, and warms up.
func calibrate(subject Subject, threads int, runTime time.Duration) int {
	for n := 1; ; n *= 4 {
		elapsed := once(subject, threads, n)
		if elapsed >= runTime/4 {
			return max(1, int(float64(n)*float64(runTime)/float64(elapsed)))
		}
	}
}

// once is one run: the wall time from the start of the first thread to the end of the last.
func once(subject Subject, threads int, n int) time.Duration {
	run := subject.Setup()
	runtime.GC()
	if threads == 1 {
		start := time.Now()
		run(0, n)
		return time.Since(start)
	}

	starts, ends := make([]time.Time, threads), make([]time.Time, threads)
	var ready, done sync.WaitGroup
	ready.Add(threads)
	done.Add(threads)
	gate := make(chan struct{})
	for thread := range threads {
		go func() {
			defer done.Done()
			ready.Done()
			<-gate
			starts[thread] = time.Now()
			run(thread, n)
			ends[thread] = time.Now()
		}()
	}
	ready.Wait()
	close(gate)
	done.Wait()

	first, last := starts[0], ends[0]
	for thread := range threads {
		if starts[thread].Before(first) {
			first = starts[thread]
		}
		if ends[thread].After(last) {
			last = ends[thread]
		}
	}
	return last.Sub(first)
}

func liveHeap() uint64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
