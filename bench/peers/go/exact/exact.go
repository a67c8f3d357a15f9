// Package exact counts the events of a sliding window from the time of each event.
//
// This package is an equivalent of the `nanocounter` package of derlaft/ratecounter, because that
// project released no module. It is a rewrite with the same lock, data structures, allocation
// pattern, clock calls and file format, so this package costs the same. It differs where the
// original is wrong: a write error of a save is reported, and negative windows are refused.
package exact

import (
	"errors"
	"sort"
	"sync"
	"time"
)

// Counter counts the events of the last window exactly: the events later than now - window.
type Counter struct {
	window time.Duration

	lock   sync.RWMutex
	events []timestamp

	// clock replaces the wall clock in tests: nanoseconds since the Unix epoch.
	clock func() int64
}

// timestamp is a time in nanoseconds since the Unix epoch.
type timestamp int64

// New makes a counter of the given window.
func New(window time.Duration) (*Counter, error) {
	return NewWithClock(window, nil)
}

// NewWithClock is New with a clock that returns nanoseconds since the Unix epoch.
func NewWithClock(window time.Duration, clock func() int64) (*Counter, error) {
	if window <= 0 {
		return nil, errors.New("exact: the window must be above zero")
	}
	return &Counter{window: window, clock: clock}, nil
}

// Add counts one event.
func (c *Counter) Add() {
	c.lock.Lock()
	defer c.lock.Unlock()

	c.events = append(c.events, c.now())

	// The next append would copy a full slice anyway. Copy only the events in the window, with room
	// for half of their number in addition.
	if len(c.events) == cap(c.events) {
		live := c.live()
		c.events = append(make([]timestamp, 0, len(live)+len(live)/2), live...)
	}
}

// Count returns the number of events in the window.
func (c *Counter) Count() int {
	c.lock.RLock()
	defer c.lock.RUnlock()

	return len(c.live())
}

// live returns the events in the window. The caller holds the lock.
func (c *Counter) live() []timestamp {
	if len(c.events) == 0 {
		return nil
	}
	border := c.now() - timestamp(c.window)
	first := sort.Search(len(c.events), func(i int) bool { return c.events[i] > border })
	return c.events[first:]
}

func (c *Counter) now() timestamp {
	if c.clock != nil {
		return timestamp(c.clock())
	}
	return timestamp(time.Now().UnixNano())
}
