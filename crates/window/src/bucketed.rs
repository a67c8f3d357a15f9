//! [`BucketedWindow`], the default counter: buckets on a ring of cells, in memory or in a segment.

use std::io::{Read, Write};
use std::time::Duration;

use crate::clock::{Clock, CoarseClock};
use quipu_segment::sync::Ordering;
use quipu_segment::{Cells, Kind, LINE_CELLS, Segment, Stripes};

use crate::error::{Error, ErrorKind};
use crate::json::{self, Moment};
use crate::ring::{Lines, PeakSearch, Ring};
use crate::save::sealed::Sealed;
use crate::save::{LoadReport, SlidingWindow};
use crate::shape::Shape;

/// A sliding window in buckets of one width, the accuracy.
///
/// # Error bound
/// [`count`](SlidingWindow::count) counts every event that is younger than the window, and none
/// that is older than window and accuracy together. So the count is never too low, and too high by
/// at most the events of one bucket. [`estimate`](BucketedWindow::estimate) spreads the events of
/// the oldest bucket evenly over its width: the error is at most that bucket's events in either
/// direction, and for steady traffic a hundredth of these events.
///
/// With a [`CoarseClock`] clock, the borders between buckets are up to one kernel tick (1 to 10 ms)
/// late. If a thread is suspended between reading the time and adding, its event counts from some
/// moment in between. Saving and loading can move the borders by up to half a bucket, if the
/// distance between the clock and the wall clock is not a whole number of buckets.
///
/// # Cost
/// Adding and counting take no lock and never allocate. Adding is one addition on a cache line of
/// the current CPU. Counting reads three cells and a line for each CPU, for a window of any length.
/// When a bucket ends, one caller fills one cell for each elapsed bucket.
///
/// # Range
/// Counts are correct below 2^64 events in the longest window, and modulo 2^64 above.
///
/// ```
/// use std::time::Duration;
/// use quipu_window::{BucketedWindow, SlidingWindow};
///
/// let second = Duration::from_secs(1);
/// let requests = BucketedWindow::new(second * 60, second)?;
/// requests.add(120);
/// assert_eq!(requests.count(), 120);
/// assert_eq!(requests.count_over(second * 10)?, 120);
/// assert_eq!(requests.rate(), 2.0);
/// # Ok::<(), quipu_window::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct BucketedWindow<C = CoarseClock> {
    ring: Ring,
    shape: Shape,
    clock: C,
    segment: Segment,
}

/// Options for a [`BucketedWindow`] counter. You can create it in private memory, or create or open
/// it in a segment.
///
/// ```
/// use std::time::Duration;
/// use quipu_window::{BucketedWindow, Segment, SlidingWindow};
///
/// let (second, hour) = (Duration::from_secs(1), Duration::from_secs(3600));
/// let options = BucketedWindow::options(second * 60, second).span(hour);
/// let segment = Segment::private(options.bytes()? + (64 << 10))?;
/// let requests = options.build_in(&segment, "requests")?;
/// requests.add(17);
/// // The second counter of the same name is the same counter.
/// assert_eq!(options.build_in(&segment, "requests")?.count_over(hour)?, 17);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "options create nothing until you build the counter"]
pub struct BucketedOptions {
    window: Duration,
    accuracy: Duration,
    span: Duration,
    lines: Lines,
}

impl BucketedOptions {
    /// Sets the longest window that you can count. The default is the counter's window.
    pub fn span(mut self, span: Duration) -> Self {
        self.span = span;
        self
    }

    /// Makes all threads add to one cell, so each [`add_and_count`](SlidingWindow::add_and_count)
    /// returns a different number, like a ticket. This has a cost: threads that add at the same
    /// time wait for each other's cache line, about ten nanoseconds.
    pub fn tickets(mut self) -> Self {
        self.lines = Lines::ONE;
        self
    }

    /// Returns the bytes that the counter takes in its segment.
    ///
    /// # Errors
    /// Invalid durations, see [`Error`].
    pub fn bytes(&self) -> Result<u64, Error> {
        let (_, span) = self.shapes()?;
        Ok(Segment::record_bytes(self.cells(span)))
    }

    /// Creates the counter in private memory, on the kernel's coarse clock.
    ///
    /// # Errors
    /// Invalid durations, see [`Error`].
    pub fn build(&self) -> Result<BucketedWindow, Error> {
        self.build_with_clock(CoarseClock::new())
    }

    /// Creates the counter in private memory, on the given clock.
    ///
    /// # Errors
    /// The errors of [`BucketedOptions::build`].
    pub fn build_with_clock<C: Clock>(&self, clock: C) -> Result<BucketedWindow<C>, Error> {
        let (_, span) = self.shapes()?;
        let segment = Segment::private(Segment::bytes_for(&[self.cells(span)]))
            .map_err(Error::from_segment)?;
        self.build_in_with_clock(&segment, "window", clock)
    }

    /// Creates the counter `name` in a segment, or opens it, on the segment's clock.
    ///
    /// # Errors
    /// Invalid durations; an existing counter of this name with another accuracy or span; the
    /// segment's errors.
    pub fn build_in(&self, segment: &Segment, name: &str) -> Result<BucketedWindow, Error> {
        self.build_in_with_clock(segment, name, CoarseClock::anchored(segment.anchor()))
    }

    /// Like [`BucketedOptions::build_in`], on the given clock.
    ///
    /// # Errors
    /// The errors of [`BucketedOptions::build_in`].
    pub fn build_in_with_clock<C: Clock>(
        &self,
        segment: &Segment,
        name: &str,
        clock: C,
    ) -> Result<BucketedWindow<C>, Error> {
        let (shape, span) = self.shapes()?;
        let registration = segment.lock_registration().map_err(Error::from_segment)?;
        let ring = match segment.find(KIND, name).map_err(Error::from_segment)? {
            Some(record) => {
                let ring = open_ring(segment, name, record.cells(), span)?;
                if !ring.fits(clock.settle()) {
                    let reason =
                        format!("window {name:?} is more than its span ahead of the clock");
                    return Err(Error::from_segment(quipu_segment::Error::damaged(
                        segment, reason,
                    )));
                }
                if segment.may_have_lost_power() {
                    ring.mend();
                }
                ring
            }
            None => {
                let draft =
                    segment.reserve(KIND, name, self.cells(span)).map_err(Error::from_segment)?;
                let ring = lay_ring(draft.cells(), span, self.lines);
                ring.begin(clock.settle());
                draft.publish().map_err(Error::from_segment)?;
                ring
            }
        };
        drop(registration);
        Ok(BucketedWindow { ring, shape, clock, segment: segment.clone() })
    }

    fn cells(&self, span: Shape) -> usize {
        LINE_CELLS + Ring::cells(span.ticks, self.lines)
    }

    /// Validates the durations. Returns the shapes of the window and of the span.
    fn shapes(&self) -> Result<(Shape, Shape), Error> {
        Shape::with_span(self.window, self.accuracy, self.span)
    }
}

impl BucketedWindow {
    /// Creates a counter in private memory, on the kernel's coarse clock.
    ///
    /// # Errors
    /// If a duration is zero or over 292 years, if the window is not a multiple of the accuracy, or
    /// if there would be more than 2^24 buckets.
    pub fn new(window: Duration, accuracy: Duration) -> Result<Self, Error> {
        Self::options(window, accuracy).build()
    }

    /// Returns options, for example for a counter in a segment, with a longer span, or on another
    /// clock.
    pub fn options(window: Duration, accuracy: Duration) -> BucketedOptions {
        let (cpus, shared) = Stripes::advised();
        BucketedOptions { window, accuracy, span: window, lines: Lines { cpus, shared } }
    }
}

impl<C: Clock> BucketedWindow<C> {
    /// Returns the width of a bucket.
    pub fn accuracy(&self) -> Duration {
        self.shape.accuracy()
    }

    /// Returns the longest window that the counter can count.
    pub fn span(&self) -> Duration {
        Shape { ticks: self.ring.span(), ..self.shape }.window()
    }

    /// Returns the segment that contains the counter.
    pub fn segment(&self) -> &Segment {
        &self.segment
    }

    /// Returns the events of a window of another length, which ends now. This costs the same as
    /// [`count`](SlidingWindow::count).
    ///
    /// # Errors
    /// If the window is not a multiple of the accuracy, or longer than the span.
    #[inline]
    pub fn count_over(&self, window: Duration) -> Result<u64, Error> {
        let ticks = self.ticks(window)?;
        self.turn(self.clock.now());
        Ok(self.ring.count(ticks))
    }

    /// Returns the events of the window, with the oldest bucket counted in part. You find the error
    /// bound at [`BucketedWindow`].
    pub fn estimate(&self) -> f64 {
        self.estimate_ticks(self.shape.ticks)
    }

    /// Like [`BucketedWindow::estimate`], for a window of another length.
    ///
    /// # Errors
    /// The errors of [`BucketedWindow::count_over`].
    pub fn estimate_over(&self, window: Duration) -> Result<f64, Error> {
        Ok(self.estimate_ticks(self.ticks(window)?))
    }

    fn estimate_ticks(&self, ticks: u64) -> f64 {
        let now = self.clock.now();
        self.turn(now);
        self.ring.estimate(ticks, now)
    }

    /// Returns the events per second over a window of another length, from the estimate.
    ///
    /// # Errors
    /// The errors of [`BucketedWindow::count_over`].
    pub fn rate_over(&self, window: Duration) -> Result<f64, Error> {
        Ok(self.estimate_over(window)? / window.as_secs_f64())
    }

    /// Returns the highest rate of a bucket in the window, in events per second. This includes the
    /// current bucket.
    pub fn max_rate(&self) -> f64 {
        self.rate_of_bucket(self.max_ticks(self.shape.ticks))
    }

    /// Like [`BucketedWindow::max_rate`], for a window of another length.
    ///
    /// # Errors
    /// The errors of [`BucketedWindow::count_over`].
    pub fn max_rate_over(&self, window: Duration) -> Result<f64, Error> {
        Ok(self.rate_of_bucket(self.max_over(window)?))
    }

    fn rate_of_bucket(&self, events: u64) -> f64 {
        events as f64 / self.accuracy().as_secs_f64()
    }

    /// Returns the events of the fullest bucket in a window of another length, including the
    /// current bucket.
    ///
    /// # Errors
    /// The errors of [`BucketedWindow::count_over`].
    pub fn max_over(&self, window: Duration) -> Result<u64, Error> {
        Ok(self.max_ticks(self.ticks(window)?))
    }

    fn max_ticks(&self, ticks: u64) -> u64 {
        self.turn(self.clock.now());
        let mut search = self.ring.peak(ticks);
        loop {
            if let Some(most) = self.peak_step(&mut search, u64::MAX) {
                return most;
            }
        }
    }

    /// Starts the search of [`BucketedWindow::max_over`]; you continue it with
    /// [`BucketedWindow::peak_step`]. Use this for windows with too many buckets to visit all of
    /// them at once.
    ///
    /// # Errors
    /// The errors of [`BucketedWindow::count_over`].
    #[doc(hidden)]
    pub fn peak_over(&self, window: Duration) -> Result<PeakSearch, Error> {
        let ticks = self.ticks(window)?;
        self.turn(self.clock.now());
        Ok(self.ring.peak(ticks))
    }

    /// Visits up to `buckets` more buckets of a window, from the newest to the oldest. Returns the
    /// events of the fullest bucket when all are visited, and `None` before. A bucket that expires
    /// between two steps can count as empty.
    #[doc(hidden)]
    pub fn peak_step(&self, search: &mut PeakSearch, buckets: u64) -> Option<u64> {
        self.ring.peak_step(search, buckets)
    }

    /// Returns all events since the counter was made, loaded, or repaired, modulo 2^64. A reset
    /// does not change the total, because a scrape expects that a counter only grows.
    pub fn total(&self) -> u64 {
        self.ring.total()
    }

    /// Returns the buckets of a window, oldest first: the start of each, in nanoseconds of the
    /// counter's clock, and its events. The last one is the current bucket.
    ///
    /// # Errors
    /// The errors of [`BucketedWindow::count_over`].
    #[doc(hidden)]
    pub fn buckets_over(&self, window: Duration) -> Result<Vec<(u64, u64)>, Error> {
        let ticks = self.ticks(window)?;
        self.turn(self.clock.now());
        let mut buckets = self.ring.buckets(ticks);
        for (tick, _) in &mut buckets {
            *tick *= self.shape.accuracy;
        }
        Ok(buckets)
    }

    /// Validates a window. Returns its length in buckets.
    fn ticks(&self, window: Duration) -> Result<u64, Error> {
        let shape = Shape::new(window, self.accuracy())?;
        if shape.ticks > self.ring.span() {
            return Err(ErrorKind::OverSpan { window, span: self.span() }.into());
        }
        Ok(shape.ticks)
    }

    /// Counts `n` events at time `now_ns`, in nanoseconds of the counter's clock. Does not read the
    /// clock.
    #[inline]
    pub fn add_at(&self, now_ns: u64, n: u64) {
        self.turn_to(now_ns);
        self.ring.add(n);
    }

    /// Returns the events of the window that ends at time `now_ns`, in nanoseconds of the counter's
    /// clock.
    #[inline]
    pub fn count_at(&self, now_ns: u64) -> u64 {
        self.turn_to(now_ns);
        self.ring.count(self.shape.ticks)
    }

    /// Adds and counts at time `now_ns`, in nanoseconds of the counter's clock, with one addition.
    #[inline]
    pub fn add_and_count_at(&self, now_ns: u64, n: u64) -> u64 {
        self.turn_to(now_ns);
        self.ring.add_and_count(n, self.shape.ticks)
    }

    #[inline]
    fn turn_to(&self, now: u64) {
        if self.ring.is_due(now) {
            self.ring.advance(now);
        }
    }

    /// Like `turn_to`, but lets the clock settle when a bucket begins.
    #[inline]
    fn turn(&self, now: u64) {
        if self.ring.is_due(now) {
            self.turn_settled();
        }
    }

    #[cold]
    fn turn_settled(&self) {
        self.ring.advance(self.clock.settle());
    }

    fn moment(&self) -> Moment {
        Moment { now: self.clock.settle(), unix: self.clock.unix() }
    }
}

impl<C: Clock> Sealed for BucketedWindow<C> {}

impl<C: Clock> SlidingWindow for BucketedWindow<C> {
    fn window(&self) -> Duration {
        self.shape.window()
    }

    #[inline]
    fn add(&self, n: u64) {
        self.turn(self.clock.now());
        self.ring.add(n);
    }

    #[inline]
    fn count(&self) -> u64 {
        self.turn(self.clock.now());
        self.ring.count(self.shape.ticks)
    }

    #[inline]
    fn add_and_count(&self, n: u64) -> u64 {
        self.turn(self.clock.now());
        self.ring.add_and_count(n, self.shape.ticks)
    }

    fn rate(&self) -> f64 {
        self.estimate() / self.window().as_secs_f64()
    }

    fn reset(&self) {
        self.turn(self.clock.now());
        self.ring.reset();
    }

    /// Writes the window's buckets in the JSON of `derlaft/ratecounter/counter`: an array of
    /// `{"Timeint":..,"Count":..}`. Only a segment preserves the whole span.
    fn save(&self, out: &mut dyn Write) -> Result<(), Error> {
        save_ring(&self.ring, self.shape.ticks, self.moment(), out)
    }

    fn load(&mut self, input: &mut dyn Read) -> Result<LoadReport, Error> {
        load_ring(&self.ring, self.moment(), input)
    }
}

/// Writes the buckets of a window.
pub(crate) fn save_ring(
    ring: &Ring,
    ticks: u64,
    moment: Moment,
    out: &mut dyn Write,
) -> Result<(), Error> {
    ring.advance(moment.now);
    json::write(out, &ring.buckets(ticks), ring.accuracy(), moment)
}

/// Replaces the buckets of a ring. No other thread may use the ring during this call.
pub(crate) fn load_ring(
    ring: &Ring,
    moment: Moment,
    input: &mut dyn Read,
) -> Result<LoadReport, Error> {
    let (counts, loaded) = json::read(input, ring.span(), ring.accuracy(), moment)?;
    // A ring never goes back in time, even when it is loaded.
    let now = moment.now.max(ring.last().saturating_mul(ring.accuracy()));
    let last = now / ring.accuracy();
    ring.fill_with(now, |tick| {
        let age = (last - tick) as usize;
        counts[counts.len() - 1 - age]
    });
    Ok(loaded)
}

/// The kind of a record with a ring.
const KIND: Kind = Kind::new(*b"RING", 1);

/// The cells of a record's first line, written before it is published.
mod at {
    pub(super) const ACCURACY: usize = 0;
    pub(super) const SPAN: usize = 1;
    pub(super) const CPUS: usize = 2;
    pub(super) const SHARED: usize = 3;
}

/// Lays out a ring on the cells of a new record.
fn lay_ring(cells: &Cells, span: Shape, lines: Lines) -> Ring {
    let values = [
        (at::ACCURACY, span.accuracy),
        (at::SPAN, span.ticks),
        (at::CPUS, lines.cpus as u64),
        (at::SHARED, lines.shared as u64),
    ];
    for (at, value) in values {
        cells[at].store(value, Ordering::Relaxed);
    }
    Ring::new(&cells.slice(LINE_CELLS..cells.len()), span.accuracy, span.ticks, lines)
}

/// Opens the ring of an existing record. Its cells can contain anything.
fn open_ring(segment: &Segment, name: &str, cells: &Cells, span: Shape) -> Result<Ring, Error> {
    let mismatch = |message: String| {
        Error::from_segment(quipu_segment::Error::mismatch(
            segment,
            format!("window {name:?} {message}"),
        ))
    };
    if cells.len() < LINE_CELLS {
        return Err(mismatch("has no room for its settings".into()));
    }
    let value = |at: usize| cells[at].load(Ordering::Relaxed);
    let (accuracy, ticks) = (value(at::ACCURACY), value(at::SPAN));
    if (accuracy, ticks) != (span.accuracy, span.ticks) {
        let nanos = |n: u64| Duration::from_nanos(n);
        return Err(mismatch(format!(
            "has an accuracy of {:?} and a span of {:?}, not {:?} and {:?}",
            nanos(accuracy),
            nanos(accuracy.saturating_mul(ticks)),
            span.accuracy(),
            span.window()
        )));
    }
    let (cpus, shared) = (value(at::CPUS), value(at::SHARED));
    if cpus > MAX_LINES || shared == 0 || shared > MAX_LINES {
        return Err(mismatch(format!("has {cpus} + {shared} lines, which is not possible")));
    }
    let lines = Lines { cpus: cpus as usize, shared: shared as usize };
    if cells.len() != LINE_CELLS + Ring::cells(ticks, lines) {
        return Err(mismatch(format!("has {} cells, which do not fit its settings", cells.len())));
    }
    Ok(Ring::new(&cells.slice(LINE_CELLS..cells.len()), accuracy, ticks, lines))
}

/// The maximum number of lines of any counter.
const MAX_LINES: u64 = 1 << 16;
