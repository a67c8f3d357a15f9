package bucketed

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// Save writes the buckets as JSON, `[{"Timeint":8976049678,"Count":4},...]`, directly to the file:
// neither atomically nor synced, like the original. An empty window leaves the file unchanged.
func (c *Counter) Save(path string) error {
	c.lock.Lock()
	defer c.lock.Unlock()

	c.expire()
	if len(c.buckets) == 0 {
		return nil
	}
	data, err := json.Marshal(c.buckets)
	if err != nil {
		return fmt.Errorf("bucketed: encode the state for %s: %w", path, err)
	}
	return os.WriteFile(path, data, 0o644)
}

// Load replaces the state with the contents of this file and drops expired buckets. A missing file
// is an empty state.
func (c *Counter) Load(path string) error {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	var buckets []*bucket
	if err := json.Unmarshal(data, &buckets); err != nil {
		return fmt.Errorf("bucketed: decode %s: %w", path, err)
	}

	c.lock.Lock()
	defer c.lock.Unlock()
	c.buckets, c.total = buckets, 0
	for i, b := range buckets {
		if b == nil {
			c.buckets = nil
			return fmt.Errorf("bucketed: decode %s: bucket %d is null", path, i)
		}
		c.total += b.Count
	}
	c.expire()
	return nil
}
