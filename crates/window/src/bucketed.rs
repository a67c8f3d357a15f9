//! Buckets on a ring of cells: the counter to take unless there is a reason.

use std::io::{Read, Write};
use std::time::Duration;

use quipu_segment::clock::{Clock, Coarse};
use quipu_segment::sync::Ordering;
use quipu_segment::{Cells, Kind, LINE_CELLS, Segment, Stripes};

use crate::error::Error;
use crate::json::{self, Moment};
use crate::ring::{Lines, Peak, Ring};
use crate::save::{Loaded, Window};
use crate::shape::Shape;

/// A sliding window in buckets of one width, the accuracy.
///
/// # Error bound
/// [`count`](Window::count) counts every event that is younger than the window, and none that is
/// older than window and accuracy together: it is never too small, and too great by at most the
/// events of one bucket. [`estimate`](Bucketed::estimate) spreads the oldest bucket evenly: its
/// error is at most that bucket's events either way, and for steady traffic a hundredth of that.
/// With a [`Coarse`] clock, the borders of buckets lie up to one kernel tick (1 to 10 ms) late. An
/// event of a thread that sleeps between reading the time and adding counts from some moment in
/// between. Saving and loading move the borders by up to half a bucket, where the clock and the
/// wall clock lie apart by a part of one.
///
/// # Cost
/// Adding and counting take no lock and allocate nothing. Adding is one addition on a cache line
/// of this CPU's own; counting reads three cells and a line for each CPU, for a window of any
/// length. When a bucket ends, one caller fills one cell for each bucket that has passed.
///
/// # Range
/// Counts are right below 2^64 events in the longest window, and modulo 2^64 above.
#[derive(Debug, Clone)]
pub struct Bucketed<C = Coarse> {
    ring: Ring,
    shape: Shape,
    clock: C,
    segment: Segment,
}

/// A window of a counter, checked once and counted often. See [`Bucketed::over`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Over {
    ticks: u64,
}

/// How a [`Bucketed`] counter is made.
#[derive(Debug, Clone)]
pub struct BucketedOptions {
    window: Duration,
    accuracy: Duration,
    span: Duration,
    lines: Lines,
}

impl BucketedOptions {
    /// The longest window that the counter can be asked for, where it is longer than its own.
    pub fn span(mut self, span: Duration) -> Self {
        self.span = span;
        self
    }

    /// All threads add to one cell, so that each [`add_and_count`](Window::add_and_count) gives a
    /// number of its own, as tickets have. Threads that add at once wait for each other's cache
    /// line, some ten nanoseconds.
    pub fn tickets(mut self) -> Self {
        self.lines = Lines::ONE;
        self
    }

    /// The bytes that the counter takes in its segment.
    ///
    /// # Errors
    /// Durations that make no window, see [`Error`].
    pub fn bytes(&self) -> Result<u64, Error> {
        let (_, span) = self.shapes()?;
        Ok(Segment::record_bytes(self.cells(span)))
    }

    /// Makes the counter in private memory, on the kernel's coarse clock.
    ///
    /// # Errors
    /// Durations that make no window, see [`Error`].
    pub fn private(&self) -> Result<Bucketed, Error> {
        self.private_on(Coarse::new())
    }

    /// Makes the counter in private memory, on a clock of the caller's.
    ///
    /// # Errors
    /// As [`BucketedOptions::private`].
    pub fn private_on<C: Clock>(&self, clock: C) -> Result<Bucketed<C>, Error> {
        let (_, span) = self.shapes()?;
        let segment = Segment::private(Segment::bytes_for(&[self.cells(span)]))?;
        self.open_on(&segment, "window", clock)
    }

    /// Opens the counter `name` of a segment, or makes it there, on the segment's own time.
    ///
    /// # Errors
    /// Durations that make no window; a counter of that name which was made with another accuracy
    /// or span; the segment's errors.
    pub fn open(&self, segment: &Segment, name: &str) -> Result<Bucketed, Error> {
        self.open_on(segment, name, Coarse::anchored(segment.anchor()))
    }

    /// As [`BucketedOptions::open`], on a clock of the caller's.
    ///
    /// # Errors
    /// As [`BucketedOptions::open`].
    pub fn open_on<C: Clock>(
        &self,
        segment: &Segment,
        name: &str,
        clock: C,
    ) -> Result<Bucketed<C>, Error> {
        let (shape, span) = self.shapes()?;
        let making = segment.making()?;
        let ring = match segment.find(KIND, name)? {
            Some(record) => {
                let ring = open_ring(segment, name, record.cells(), span)?;
                if !ring.fits(clock.settle()) {
                    let what =
                        format!("window {name:?} lies more than its span ahead of the clock");
                    return Err(Error::Segment(quipu_segment::Error::damaged(segment, what)));
                }
                if segment.may_have_lost_power() {
                    ring.mend();
                }
                ring
            }
            None => {
                let draft = segment.reserve(KIND, name, self.cells(span))?;
                let ring = lay_ring(draft.cells(), span, self.lines);
                ring.begin(clock.settle());
                draft.publish()?;
                ring
            }
        };
        drop(making);
        Ok(Bucketed { ring, shape, clock, segment: segment.clone() })
    }

    fn cells(&self, span: Shape) -> usize {
        LINE_CELLS + Ring::cells(span.ticks, self.lines)
    }

    /// The window and the span.
    fn shapes(&self) -> Result<(Shape, Shape), Error> {
        Shape::with_span(self.window, self.accuracy, self.span)
    }
}

impl Bucketed {
    /// Makes a counter in private memory, on the kernel's coarse clock.
    ///
    /// # Errors
    /// Durations that make no window: zero, over 292 years, a window that is no whole number of
    /// accuracies, more than 2^24 buckets.
    pub fn new(window: Duration, accuracy: Duration) -> Result<Self, Error> {
        Self::options(window, accuracy).private()
    }

    /// How else a counter can be made: in a segment, with a longer span, on another clock.
    pub fn options(window: Duration, accuracy: Duration) -> BucketedOptions {
        let (cpus, shared) = Stripes::advised();
        BucketedOptions { window, accuracy, span: window, lines: Lines { cpus, shared } }
    }
}

impl<C: Clock> Bucketed<C> {
    /// The width of a bucket.
    pub fn accuracy(&self) -> Duration {
        self.shape.accuracy()
    }

    /// The longest window that can be asked for.
    pub fn span(&self) -> Duration {
        Shape { ticks: self.ring.span(), ..self.shape }.window()
    }

    /// The segment in which it lies.
    pub fn segment(&self) -> &Segment {
        &self.segment
    }

    /// A window other than the counter's own, to be counted at the same price.
    ///
    /// # Errors
    /// A window that is no whole number of accuracies, or longer than the span.
    pub fn over(&self, window: Duration) -> Result<Over, Error> {
        let shape = Shape::new(window, self.accuracy())?;
        if shape.ticks > self.ring.span() {
            return Err(Error::OverSpan { window, span: self.span() });
        }
        Ok(Over { ticks: shape.ticks })
    }

    /// The length of that window.
    pub fn length(&self, over: Over) -> Duration {
        Shape { ticks: over.ticks, ..self.shape }.window()
    }

    /// The events of that window, which ends now.
    #[inline]
    pub fn count_over(&self, over: Over) -> u64 {
        self.turn(self.clock.now());
        self.ring.count(over.ticks)
    }

    /// The events of that window, with the oldest bucket counted in part. See the error bound.
    pub fn estimate_over(&self, over: Over) -> f64 {
        let now = self.clock.now();
        self.turn(now);
        self.ring.estimate(over.ticks, now)
    }

    /// The events of the window, with the oldest bucket counted in part. See the error bound.
    pub fn estimate(&self) -> f64 {
        self.estimate_over(self.own())
    }

    /// Events a second over that window, from the estimate.
    pub fn rate_over(&self, over: Over) -> f64 {
        let seconds = Shape { ticks: over.ticks, ..self.shape }.window().as_secs_f64();
        self.estimate_over(over) / seconds
    }

    /// The most events that a bucket of that window has, the one that has begun included.
    pub fn max_over(&self, over: Over) -> u64 {
        let mut peak = self.peak_over(over);
        loop {
            if let Some(most) = self.peak_step(&mut peak, u64::MAX) {
                return most;
            }
        }
    }

    /// Begins what [`Bucketed::max_over`] does, to be continued by [`Bucketed::peak_step`]. For
    /// windows of so many buckets that looking at all of them at once would take too long.
    pub fn peak_over(&self, over: Over) -> Peak {
        self.turn(self.clock.now());
        self.ring.peak(over.ticks)
    }

    /// Looks at up to `buckets` more buckets of a window, from the newest to the oldest. Returns
    /// the events of the fullest one after the last of them. A bucket that expires between two
    /// steps may count as empty.
    pub fn peak_step(&self, peak: &mut Peak, buckets: u64) -> Option<u64> {
        self.ring.peak_step(peak, buckets)
    }

    /// The greatest rate in events a second that a bucket of that window had.
    pub fn max_rate_over(&self, over: Over) -> f64 {
        self.max_over(over) as f64 / self.accuracy().as_secs_f64()
    }

    /// All events since the counter was made, loaded, or mended, modulo 2^64. A reset does not
    /// change it: it only grows, as counters do that a scrape reads.
    pub fn total(&self) -> u64 {
        self.ring.total()
    }

    /// The buckets of that window, oldest first: when each began, in nanoseconds of the clock, and
    /// its events. The last one has only begun.
    pub fn buckets_over(&self, over: Over) -> Vec<(u64, u64)> {
        self.turn(self.clock.now());
        let mut buckets = self.ring.buckets(over.ticks);
        for (tick, _) in &mut buckets {
            *tick *= self.shape.accuracy;
        }
        buckets
    }

    /// The counter's own window, for the calls that take one.
    pub fn own(&self) -> Over {
        Over { ticks: self.shape.ticks }
    }

    /// Counts `n` events at time `now` of the counter's clock, which is not read.
    #[inline]
    pub fn add_at(&self, now: u64, n: u64) {
        self.turn_to(now);
        self.ring.add(n);
    }

    /// The events of the window that ends at time `now` of the counter's clock.
    #[inline]
    pub fn count_at(&self, now: u64) -> u64 {
        self.turn_to(now);
        self.ring.count(self.shape.ticks)
    }

    /// Both at once, by one addition.
    #[inline]
    pub fn add_and_count_at(&self, now: u64, n: u64) -> u64 {
        self.turn_to(now);
        self.ring.add_and_count(n, self.shape.ticks)
    }

    #[inline]
    fn turn_to(&self, now: u64) {
        if self.ring.is_due(now) {
            self.ring.advance(now);
        }
    }

    /// As `turn_to`, with a closer look at the clock where a bucket begins.
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

impl<C: Clock> Window for Bucketed<C> {
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
        self.count_over(self.own())
    }

    #[inline]
    fn add_and_count(&self, n: u64) -> u64 {
        self.turn(self.clock.now());
        self.ring.add_and_count(n, self.shape.ticks)
    }

    fn rate(&self) -> f64 {
        self.rate_over(self.own())
    }

    fn reset(&self) {
        self.turn(self.clock.now());
        self.ring.reset();
    }

    /// Writes the JSON of `derlaft/ratecounter/counter`: an array of `{"Timeint":..,"Count":..}` of
    /// the window's buckets. The whole span lives on in a segment only.
    fn save(&self, out: &mut dyn Write) -> Result<(), Error> {
        save_ring(&self.ring, self.shape.ticks, self.moment(), out)
    }

    fn load(&mut self, input: &mut dyn Read) -> Result<Loaded, Error> {
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

/// Replaces the buckets of a ring that nobody else uses.
pub(crate) fn load_ring(
    ring: &Ring,
    moment: Moment,
    input: &mut dyn Read,
) -> Result<Loaded, Error> {
    let (counts, loaded) = json::read(input, ring.span(), ring.accuracy(), moment)?;
    // The ring never goes back, so neither does what is loaded into it.
    let now = moment.now.max(ring.last().saturating_mul(ring.accuracy()));
    let last = now / ring.accuracy();
    ring.fill_with(now, |tick| {
        let age = (last - tick) as usize;
        counts[counts.len() - 1 - age]
    });
    Ok(loaded)
}

/// What a record of a ring holds.
const KIND: Kind = Kind::new(*b"RING", 1);

/// The cells of a record's first line, written before it is published.
mod at {
    pub(super) const ACCURACY: usize = 0;
    pub(super) const SPAN: usize = 1;
    pub(super) const CPUS: usize = 2;
    pub(super) const SHARED: usize = 3;
}

/// Lays a ring out on the cells of a new record.
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

/// Takes over the ring of a record, whose cells may say anything.
fn open_ring(segment: &Segment, name: &str, cells: &Cells, span: Shape) -> Result<Ring, Error> {
    let mismatch = |what: String| {
        Error::Segment(quipu_segment::Error::mismatch(segment, format!("window {name:?} {what}")))
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
    if cpus > MOST_LINES || shared == 0 || shared > MOST_LINES {
        return Err(mismatch(format!("states {cpus} + {shared} lines")));
    }
    let lines = Lines { cpus: cpus as usize, shared: shared as usize };
    if cells.len() != LINE_CELLS + Ring::cells(ticks, lines) {
        return Err(mismatch(format!("has {} cells, which do not fit its settings", cells.len())));
    }
    Ok(Ring::new(&cells.slice(LINE_CELLS..cells.len()), accuracy, ticks, lines))
}

/// More lines than any counter is made with.
const MOST_LINES: u64 = 1 << 16;
