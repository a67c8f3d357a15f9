package exact

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// manual is a clock that the test advances.
type manual struct{ nanos int64 }

func (m *manual) now() int64              { return m.nanos }
func (m *manual) advance(d time.Duration) { m.nanos += int64(d) }

func newTest(t *testing.T, window time.Duration) (*Counter, *manual) {
	t.Helper()
	clock := &manual{nanos: 1_700_000_000 * int64(time.Second)}
	counter, err := NewWithClock(window, clock.now)
	if err != nil {
		t.Fatal(err)
	}
	return counter, clock
}

func expect(t *testing.T, c *Counter, want int) {
	t.Helper()
	if got := c.Count(); got != want {
		t.Fatalf("count is %d, want %d", got, want)
	}
}

func TestRefusesWindowsThatAreNotAboveZero(t *testing.T) {
	for _, window := range []time.Duration{0, -time.Second} {
		if _, err := New(window); err == nil {
			t.Errorf("New(%v) succeeded", window)
		}
	}
}

func TestEventLivesForExactlyTheWindow(t *testing.T) {
	c, clock := newTest(t, time.Second)
	c.Add()
	clock.advance(time.Second - 1)
	expect(t, c, 1)
	clock.advance(1)
	expect(t, c, 0)
}

func TestSlidesAgainstAPlainList(t *testing.T) {
	const window = time.Second
	c, clock := newTest(t, window)
	var times []int64
	state := uint64(1)
	for range 20_000 {
		state = state*6364136223846793005 + 1442695040888963407
		clock.advance(time.Duration(state >> 40 % uint64(30*time.Millisecond)))
		c.Add()
		times = append(times, clock.nanos)
		want := 0
		for _, at := range times[max(0, len(times)-500):] {
			if at > clock.nanos-int64(window) {
				want++
			}
		}
		if want == 500 {
			t.Fatal("the oracle's list is too short")
		}
		expect(t, c, want)
	}
}

func TestSaveAndLoadKeepTheEvents(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	c, clock := newTest(t, time.Minute)
	if err := c.Save(path); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Fatalf("saving an empty window made a file: %v", err)
	}
	for range 1000 {
		c.Add()
		clock.advance(100 * time.Millisecond)
	}
	expect(t, c, 599)
	if err := c.Save(path); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Size() != 599*eventSize {
		t.Fatalf("the file has %d bytes (%v), want %d", info.Size(), err, 599*eventSize)
	}
	restored, err := NewWithClock(time.Minute, clock.now)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := restored.Load(path); err != nil {
			t.Fatal(err)
		}
		expect(t, restored, 599)
	}
	clock.advance(30 * time.Second)
	expect(t, restored, 299)
}

func TestLoadSortsAndIgnoresATornTail(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	c, clock := newTest(t, time.Second)
	clock.nanos = 1<<32 + 5
	torn := []byte{
		5, 0, 0, 0, 1, 0, 0, 0,
		0, 0, 0, 0, 0, 0, 0, 0,
		4, 0, 0, 0, 1, 0, 0, 0,
		9, 9, 9,
	}
	if err := os.WriteFile(path, torn, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := c.Load(path); err != nil {
		t.Fatal(err)
	}
	expect(t, c, 2)
}

func TestSaveReportsAWriteError(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("no /dev/full here")
	}
	c, _ := newTest(t, time.Second)
	c.Add()
	if err := c.Save("/dev/full"); err == nil {
		t.Fatal("a save to a full disk succeeded")
	}
}
