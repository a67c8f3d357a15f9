// Package bucketed counts the events of a sliding window in buckets of a fixed length.
//
// This package is an equivalent of the `counter` package of derlaft/ratecounter, because that
// project released no module. It is a rewrite with the same lock, data structures, allocation
// pattern, clock calls and file format, so this package costs the same. It differs where the
// original is wrong: expired buckets are always dropped (the original drops every second one in
// each call), negative durations are refused, and a load replaces the state.
package bucketed

import (
	"errors"
	"sync"
	"time"
)

// Counter counts the events of the last window, to within one bucket.
//
// The buckets are separate heap objects, in order of time; total is their sum. Count takes the
// write lock, because it drops expired buckets.
type Counter struct {
	window   time.Duration
	accuracy time.Duration

	lock    sync.RWMutex
	buckets []*bucket
	total   int

	// clock replaces the wall clock in tests: nanoseconds since the Unix epoch.
	clock func() int64
}

// bucket is one slice of time. Its field names are the ones of the file format.
type bucket struct {
	// Timeint is the number of the bucket: nanoseconds since the Unix epoch / accuracy.
	Timeint int64
	// Count is the number of events in the bucket.
	Count int
}

// New makes a counter of the given window, with buckets of the given length.
func New(window, accuracy time.Duration) (*Counter, error) {
	return NewWithClock(window, accuracy, nil)
}

// NewWithClock is New with a clock that returns nanoseconds since the Unix epoch.
func NewWithClock(window, accuracy time.Duration, clock func() int64) (*Counter, error) {
	if window <= 0 || accuracy <= 0 {
		return nil, errors.New("bucketed: window and accuracy must be above zero")
	}
	return &Counter{window: window, accuracy: accuracy, clock: clock}, nil
}

// Add counts one event.
func (c *Counter) Add() {
	c.lock.Lock()
	defer c.lock.Unlock()

	var current *bucket
	tick := c.tick()
	if n := len(c.buckets); n > 0 && c.buckets[n-1].Timeint == tick {
		current = c.buckets[n-1]
	} else {
		current = &bucket{Timeint: tick}
		c.buckets = append(c.buckets, current)
	}
	current.Count++
	c.total++

	// The next append would copy a full slice anyway. Drop the expired buckets and leave room for two
	// windows, because this then happens only once in two windows.
	if len(c.buckets) == cap(c.buckets) {
		c.expire()
		roomy := make([]*bucket, len(c.buckets), max(2*c.span(), int64(len(c.buckets)+1)))
		copy(roomy, c.buckets)
		c.buckets = roomy
	}
}

// Count returns the number of events in the window.
func (c *Counter) Count() int {
	c.lock.Lock()
	defer c.lock.Unlock()

	c.expire()
	return c.total
}

// expire drops the buckets that are older than the window. The caller holds the write lock.
func (c *Counter) expire() {
	oldest := c.tick() - c.span()
	expired := 0
	for expired < len(c.buckets) && c.buckets[expired].Timeint < oldest {
		c.total -= c.buckets[expired].Count
		expired++
	}
	c.buckets = c.buckets[expired:]
}

// tick is the number of the current bucket.
func (c *Counter) tick() int64 {
	if c.clock != nil {
		return c.clock() / int64(c.accuracy)
	}
	return time.Now().UnixNano() / int64(c.accuracy)
}

// span is the number of buckets in a window.
func (c *Counter) span() int64 {
	return int64(c.window) / int64(c.accuracy)
}
