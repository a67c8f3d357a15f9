package exact

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sort"
)

// eventSize is the number of bytes of an event in the file.
const eventSize = 8

// Save writes the events of the window as little-endian 64-bit nanoseconds, without a header.
// During this, it holds the read lock, like the original. An empty window leaves the file
// unchanged.
func (c *Counter) Save(path string) (err error) {
	c.lock.RLock()
	defer c.lock.RUnlock()

	live := c.live()
	if len(live) == 0 {
		return nil
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return binary.Write(file, binary.LittleEndian, live)
}

// Load replaces the events with the contents of this file. A missing file is an empty state; bytes
// after the last complete event are ignored.
func (c *Counter) Load(path string) error {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}

	c.lock.Lock()
	defer c.lock.Unlock()
	events := make([]timestamp, info.Size()/eventSize)
	if err := binary.Read(file, binary.LittleEndian, &events); err != nil {
		return fmt.Errorf("exact: read %s: %w", path, err)
	}
	// The search requires sorted events, but the clock cannot guarantee this order.
	sort.Slice(events, func(i, j int) bool { return events[i] < events[j] })
	c.events = events
	return nil
}
