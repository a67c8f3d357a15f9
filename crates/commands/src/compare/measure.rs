//! Measures the size and the speed of every format on a sample of messages.
//!
//! Sizes are totals over the whole sample. Times are measured in rounds. In each round, every
//! format writes and reads the same block of the sample. A disturbance of the machine therefore
//! affects all formats, and the median discards it.

use std::hint::black_box;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use quipu_arena::Arena;
use quipu_wire::{AnyFormat, Framing, Kind, Message};

use super::sample::{self, Sample};
use crate::wire::{CHUNK, progress_line};

/// The maximum number of messages in a block.
const BLOCK_MESSAGES: usize = 16_384;
/// The maximum size of a block in bytes, approximately.
const BLOCK_BYTES: usize = 4 << 20;

/// A small block is repeated up to this number of messages, because it would otherwise be too short
/// to measure.
const MIN_MESSAGES: usize = 4_096;

/// The minimum number of rounds, even if there is no time left.
const MIN_ROUNDS: usize = 3;
/// The number of rounds before them, whose results are discarded.
const WARM_UP: usize = 1;

/// The result of [`measure`].
pub(super) struct Measurement {
    /// The formats that can carry the sample, smallest first.
    pub(super) entries: Vec<Entry>,
    pub(super) refusals: Vec<FormatRefusal>,
}

/// A format that carries the sample.
pub(super) struct Entry {
    pub(super) format: AnyFormat,
    /// The total size of the messages in a stream, in bytes.
    pub(super) stream: u64,
    /// The total size of the messages if each is encoded separately, in bytes.
    pub(super) alone: u64,
    /// The number of the first message that changes in a round trip, and the number of such
    /// messages.
    pub(super) changed: Option<(u64, u64)>,
    /// The nanoseconds to write a message.
    pub(super) write: f64,
    /// The nanoseconds to read a message.
    pub(super) read: f64,
    /// Whether no other format is both smaller and faster.
    pub(super) is_best: bool,
}

impl Entry {
    /// Returns the nanoseconds to write and read one message.
    pub(super) fn both(&self) -> f64 {
        self.write + self.read
    }
}

/// A format that cannot carry one of the messages.
pub(super) struct FormatRefusal {
    pub(super) format: AnyFormat,
    pub(super) message: u64,
    pub(super) reason: quipu_wire::Error,
}

/// Measures all formats, for about this time.
pub(super) fn measure(sample: &Sample<'_>, time: Duration) -> Measurement {
    let started = Instant::now();
    let progress = progress_line();
    let kind = sample.kind.kind();
    let (mut entries, mut refusals) = (Vec::new(), Vec::new());
    for format in AnyFormat::all() {
        show(&progress, || format!("sizes: {}", format.as_str()));
        match sizes(format, kind, &sample.messages) {
            Ok(entry) => entries.push(entry),
            Err(refusal) => refusals.push(refusal),
        }
    }
    let blocks = blocks(&sample.messages);
    let mut times = vec![(Vec::new(), Vec::new()); entries.len()];
    let mut bench = Bench { arena: Arena::new(), out: Vec::new() };
    let mut round = 0;
    while !entries.is_empty() && (round < WARM_UP + MIN_ROUNDS || started.elapsed() < time) {
        let left = time.saturating_sub(started.elapsed()).as_secs_f64();
        show(&progress, || format!("times: round {}, {left:.0} s left", round + 1));
        let block = blocks[round % blocks.len()];
        for turn in 0..entries.len() {
            let index = (turn + round) % entries.len();
            let (write, read) = bench.round(entries[index].format, kind, block);
            if round >= WARM_UP {
                times[index].0.push(write);
                times[index].1.push(read);
            }
        }
        round += 1;
    }
    progress.finish_and_clear();
    for (entry, (write, read)) in entries.iter_mut().zip(times) {
        entry.write = median(write);
        entry.read = median(read);
    }
    entries.sort_by(|a, b| {
        (a.stream, a.both()).partial_cmp(&(b.stream, b.both())).unwrap_or(std::cmp::Ordering::Equal)
    });
    let best: Vec<_> = entries.iter().map(|entry| is_best(entry, &entries)).collect();
    for (entry, is_best) in entries.iter_mut().zip(best) {
        entry.is_best = is_best;
    }
    Measurement { entries, refusals }
}

/// Measures the sizes of a format, and checks that no message changes in a round trip.
fn sizes(format: AnyFormat, kind: Kind, messages: &[Message<'_>]) -> Result<Entry, FormatRefusal> {
    let mut entry =
        Entry { format, stream: 0, alone: 0, changed: None, write: 0.0, read: 0.0, is_best: false };
    let mut encoder = format.encoder(Framing::Own);
    let mut arena = Arena::new();
    let (mut stream, mut alone) = (Vec::new(), Vec::new());
    for (number, message) in (1..).zip(messages) {
        alone.clear();
        format
            .encode(message, &mut alone)
            .and_then(|()| encoder.append(message, &mut stream))
            .map_err(|reason| FormatRefusal { format, message: number, reason })?;
        entry.alone += alone.len() as u64;
        let mut guard = arena.guard();
        let read = format.decode(kind, &alone, &guard.scope());
        if !read.is_ok_and(|read| is_same(&read, message)) {
            let (_, count) = entry.changed.get_or_insert((number, 0));
            *count += 1;
        }
        if stream.len() >= CHUNK {
            entry.stream += stream.len() as u64;
            stream.clear();
        }
    }
    encoder.flush(&mut stream);
    entry.stream += stream.len() as u64;
    Ok(entry)
}

/// Returns whether two messages are equal bit for bit.
fn is_same(a: &Message<'_>, b: &Message<'_>) -> bool {
    let bits = |value: &f64| value.to_bits();
    let (x, y) = (a.to_union(), b.to_union());
    a.kind() == b.kind()
        && (x.metric_type, x.id, x.counter) == (y.metric_type, y.id, y.counter)
        && x.timer.iter().map(bits).eq(y.timer.iter().map(bits))
        && bits(&x.gauge) == bits(&y.gauge)
}

/// Splits the sample into blocks, one for each round.
fn blocks<'s, 'm>(messages: &'s [Message<'m>]) -> Vec<&'s [Message<'m>]> {
    let mut blocks = Vec::new();
    let mut rest = messages;
    while !rest.is_empty() {
        let mut bytes = 0;
        let len = rest.iter().take(BLOCK_MESSAGES).take_while(|message| {
            let fits = bytes < BLOCK_BYTES;
            bytes += sample::size(message);
            fits
        });
        let (block, behind) = rest.split_at(len.count());
        blocks.push(block);
        rest = behind;
    }
    // We drop a short last block, because its cost per message would be higher than in the other
    // blocks.
    if let [first, .., last] = blocks[..]
        && last.len() < first.len() / 4
    {
        blocks.pop();
    }
    blocks
}

struct Bench {
    arena: Arena,
    out: Vec<u8>,
}

impl Bench {
    /// Returns the nanoseconds to write, and to read, one message of a block.
    fn round(&mut self, format: AnyFormat, kind: Kind, block: &[Message<'_>]) -> (f64, f64) {
        let Bench { arena, out } = self;
        let bytes: usize = block.iter().map(sample::size).sum();
        let fitting = (BLOCK_BYTES / bytes.max(1)).max(1);
        let times = MIN_MESSAGES.div_ceil(block.len()).min(fitting);
        let number = (times * block.len()) as f64;

        out.clear();
        let start = Instant::now();
        let mut encoder = format.encoder(Framing::Own);
        for _ in 0..times {
            for message in block {
                // This cannot fail, because `sizes` has encoded the same message before.
                let _ = encoder.append(black_box(message), out);
            }
        }
        encoder.flush(out);
        let write = start.elapsed();

        let start = Instant::now();
        let mut decoder = format.decoder(kind, Framing::Own);
        for piece in out.chunks(CHUNK) {
            decoder.push(piece);
            take(&mut decoder, arena);
        }
        decoder.end();
        take(&mut decoder, arena);
        let read = start.elapsed();
        (write.as_nanos() as f64 / number, read.as_nanos() as f64 / number)
    }
}

fn take(decoder: &mut quipu_wire::AnyDecoder, arena: &mut Arena) {
    loop {
        let mut guard = arena.guard();
        match decoder.next(&guard.scope()) {
            Ok(Some(message)) => drop(black_box(message)),
            Ok(None) | Err(_) => return,
        }
    }
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Returns whether every other format is larger or slower.
fn is_best(entry: &Entry, others: &[Entry]) -> bool {
    !others.iter().any(|other| {
        other.stream <= entry.stream
            && other.both() <= entry.both()
            && (other.stream < entry.stream || other.both() < entry.both())
    })
}

fn show(progress: &ProgressBar, text: impl FnOnce() -> String) {
    if !progress.is_hidden() {
        progress.set_message(text());
    }
}

#[cfg(test)]
mod tests {
    use quipu_wire::Counter;

    use super::*;

    #[test]
    fn a_format_is_best_if_no_other_is_smaller_and_faster() {
        let format = AnyFormat::all().next().unwrap();
        let entry = |stream, write| Entry {
            format,
            stream,
            alone: 0,
            changed: None,
            write,
            read: 0.0,
            is_best: false,
        };
        // The third is as small as the second and slower, the last one worse in both.
        let entries = [entry(1, 9.0), entry(2, 5.0), entry(2, 6.0), entry(3, 5.0), entry(9, 1.0)];
        let best = entries.each_ref().map(|entry| is_best(entry, &entries));
        assert_eq!(best, [true, true, false, false, true]);
        let twins = [entry(1, 1.0), entry(1, 1.0)];
        assert!(twins.iter().all(|entry| is_best(entry, &twins)));
    }

    #[test]
    fn blocks_hold_the_sample_without_a_short_end() {
        let messages = |len| vec![Message::from(Counter { id: b"a", value: 1 }); len];
        let lens = |len| blocks(&messages(len)).iter().map(|block| block.len()).collect::<Vec<_>>();
        assert_eq!(lens(1), [1]);
        assert_eq!(lens(16_384), [16_384]);
        assert_eq!(lens(16_385), [16_384]);
        assert_eq!(lens(2 * 16_384 + 4_096), [16_384, 16_384, 4_096]);
        let values = vec![0.0; 1 << 20];
        let large = quipu_wire::BatchTimer { id: b"", values: &values };
        assert_eq!(blocks(&[Message::from(large); 3]).len(), 3);
    }

    #[test]
    fn a_median_ignores_the_extremes() {
        assert_eq!(median(vec![100.0, 1.0, 2.0]), 2.0);
    }
}
