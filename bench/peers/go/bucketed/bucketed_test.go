package bucketed

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

func newTest(t *testing.T, window, accuracy time.Duration) (*Counter, *manual) {
	t.Helper()
	clock := &manual{nanos: 1_700_000_000 * int64(time.Second)}
	counter, err := NewWithClock(window, accuracy, clock.now)
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

func TestRefusesDurationsThatAreNotAboveZero(t *testing.T) {
	for _, d := range [][2]time.Duration{{0, 1}, {1, 0}, {-time.Minute, time.Second}} {
		if _, err := New(d[0], d[1]); err == nil {
			t.Errorf("New(%v, %v) succeeded", d[0], d[1])
		}
	}
}

func TestEventLivesForWindowPlusItsBucket(t *testing.T) {
	c, clock := newTest(t, time.Second, 100*time.Millisecond)
	c.Add()
	clock.advance(1099 * time.Millisecond)
	expect(t, c, 1)
	clock.advance(time.Millisecond)
	expect(t, c, 0)
}

func TestSilenceExpiresAllBucketsAtOnce(t *testing.T) {
	c, clock := newTest(t, time.Minute, 200*time.Millisecond)
	for range 300 {
		c.Add()
		clock.advance(200 * time.Millisecond)
	}
	expect(t, c, 300)
	clock.advance(2 * time.Minute)
	expect(t, c, 0)
}

func TestSlidesAgainstAPlainList(t *testing.T) {
	const window, accuracy = time.Second, 100 * time.Millisecond
	c, clock := newTest(t, window, accuracy)
	var ticks []int64
	state := uint64(1)
	for range 20_000 {
		state = state*6364136223846793005 + 1442695040888963407
		clock.advance(time.Duration(state >> 40 % uint64(30*time.Millisecond)))
		c.Add()
		ticks = append(ticks, clock.nanos/int64(accuracy))
		want := 0
		for _, tick := range ticks[max(0, len(ticks)-500):] {
			if tick >= clock.nanos/int64(accuracy)-int64(window/accuracy) {
				want++
			}
		}
		if want == 500 {
			t.Fatal("the oracle's list is too short")
		}
		expect(t, c, want)
	}
}

func TestSaveAndLoadKeepTheCount(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	c, clock := newTest(t, time.Minute, 200*time.Millisecond)
	if err := c.Save(path); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Fatalf("saving an empty window made a file: %v", err)
	}
	for range 100 {
		c.Add()
		c.Add()
		clock.advance(150 * time.Millisecond)
	}
	if err := c.Save(path); err != nil {
		t.Fatal(err)
	}
	restored, err := NewWithClock(time.Minute, 200*time.Millisecond, clock.now)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := restored.Load(path); err != nil {
			t.Fatal(err)
		}
		expect(t, restored, 200)
	}
	clock.advance(2 * time.Minute)
	expect(t, restored, 0)
}

func TestFileFormatIsThatOfTheOriginal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	c, clock := newTest(t, time.Minute, 200*time.Millisecond)
	c.Add()
	clock.advance(200 * time.Millisecond)
	c.Add()
	c.Add()
	if err := c.Save(path); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := `[{"Timeint":8500000000,"Count":1},{"Timeint":8500000001,"Count":2}]`
	if string(got) != want {
		t.Fatalf("file is %s, want %s", got, want)
	}
}

func TestLoadOfMissingFileIsEmptyAndOfBrokenFileFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	c, _ := newTest(t, time.Minute, 200*time.Millisecond)
	if err := c.Load(path); err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", "[null]", `[{"Timeint":1`} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := c.Load(path); err == nil {
			t.Errorf("loading %q succeeded", text)
		}
	}
}
