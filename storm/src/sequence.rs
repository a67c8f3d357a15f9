//! The operations of a worker, derived from a seed. The driver's model can replay them, because the
//! Python and Ruby workers draw the same ones.

/// The number of the counter's series that all workers add to.
pub(crate) const JOBS: u64 = 64;
/// The number of series of the histogram.
pub(crate) const HOSTS: u64 = 8;
/// The bounds of the histogram's buckets.
pub(crate) const BUCKETS: [f64; 3] = [0.0, 1.0, 2.0];

/// One update of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Adds `halves` / 2 to the counter of a job, found by its label.
    Add { job: u64, halves: u64 },
    /// Adds 1 to the counter of a job, through a handle that the worker keeps.
    AddBound { job: u64 },
    /// Observes a value in the histogram of a host.
    Observe { host: u64, value: u64 },
    /// Adds 1 to a counter with a label that is unique to this operation. `padding` makes the label
    /// longer.
    Create { padding: u64 },
    /// Removes the last series that this command created, if any is left.
    Remove,
}

/// Draws the operations of one command.
pub(crate) struct Sequence(SplitMix);

impl Sequence {
    pub(crate) fn new(seed: u64) -> Self {
        Self(SplitMix(seed))
    }

    pub(crate) fn draw(&mut self) -> Operation {
        let random = &mut self.0;
        match random.below(16) {
            0..=6 => Operation::Add { job: random.below(JOBS), halves: 2 },
            7 => Operation::Add { job: random.below(JOBS), halves: 1 },
            8 | 9 => Operation::Observe { host: random.below(HOSTS), value: random.below(4) },
            10 | 11 => Operation::AddBound { job: random.below(JOBS) },
            12 | 13 => Operation::Create { padding: random.below(200) },
            _ => Operation::Remove,
        }
    }
}

/// Returns the label of a job.
pub(crate) fn job(number: u64) -> String {
    format!("j{number}")
}

/// Returns the label of a host.
pub(crate) fn host(number: u64) -> String {
    format!("h{number}")
}

/// Returns the label that operation `index` of command `tag` creates.
pub(crate) fn created(tag: u64, index: u64, padding: u64) -> String {
    format!("c{tag}-{index}{}", "x".repeat(padding as usize))
}

/// The SplitMix generator of pseudorandom numbers (Steele, Lea, Flood 2014).
pub(crate) struct SplitMix(pub(crate) u64);

impl SplitMix {
    /// Returns a number from 0 to `end` - 1.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % end
    }
}
