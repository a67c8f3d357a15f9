//! Forms: the parts of a target's exposition that stay the same from one scrape to the next. Most
//! expositions change only in their values.
//!
//! If an exposition matches the form byte for byte, its lines and series are already known, and we
//! need not check which series are new. For families of plain numbers with one line per series,
//! this leaves only the numbers to parse. Other families are read again, because their values can
//! change the meaning of a line. For example, a histogram is shown by its samples if its counts
//! fall. If an exposition differs elsewhere or contains an invalid line, it is read as a whole to
//! find the reason.
//!
//! A form takes about as much memory as its exposition, and keeping one requires a copy. We
//! therefore keep it only if it is likely to be useful: see [`Shape::is_useful`].

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};
use std::mem;
use std::sync::Arc;

use quipu::snapshot::Number;
use quipu_segment::hash::SeededState;
use quipu_wire::remote::exposition::text::{
    self, Item, TextFormat, TextLineError, TextReason, value_and_time,
};
use quipu_wire::remote::exposition::{self as wire, Families, Limits};

use super::families::{Body, ExpositionReader, number};
use super::turns::Turn;
use quipu_client::Text;
use quipu_sources::recorded::RecordedFamily;
use quipu_sources::recorded::SourceSnapshot;

/// The parts of an exposition that the next one can share.
#[derive(Debug)]
pub(super) struct Form {
    format: TextFormat,
    /// The bytes of the exposition, without the bytes after the labels of its samples.
    text: Vec<u8>,
    lines: Vec<Line>,
    blocks: Vec<Block>,
    /// The types of all families.
    kinds: HashMap<String, wire::FamilyType>,
    /// The number of samples.
    samples: usize,
    /// The snapshot of the last exposition with this form.
    snapshot: Arc<SourceSnapshot>,
}

/// The shape of an exposition, which decides whether its form is kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    /// The hash of the bytes that the form would hold.
    pub(super) hash: u64,
    lines: usize,
    /// The number of these lines in plain blocks.
    plain: usize,
    /// The bytes of memory that the form would take.
    bytes: usize,
}

/// A line: the number of its bytes in the form, and whether it is a sample.
#[derive(Debug, Clone, Copy)]
struct Line(u32);

/// The lines of one family, from the end of the previous block.
#[derive(Debug, Clone, Copy)]
struct Block {
    /// The number of the block's last line, plus one.
    lines: usize,
    /// The number of the block's last family in the agent, plus one.
    families: usize,
    /// Whether the block contains exactly one line, in order, for each series of one numeric
    /// family.
    is_plain: bool,
}

/// Records the structure of an exposition while it is read.
#[derive(Debug, Default)]
pub(super) struct Draft {
    lines: Vec<Line>,
    /// The number of the current line.
    at: usize,
    blocks: Vec<Block>,
    /// The number of samples in the current block, and whether one of its lines was refused.
    samples: usize,
    is_refused: bool,
}

/// The longest line that is compared, which is also the reader's limit.
const MAX_LINE: usize = 64 << 10;
/// The approximate maximum size of a form, in bytes.
const MAX_BYTES: usize = 8 << 20;
/// The approximate size of a family in a form, without its name, in bytes.
const FAMILY_BYTES: usize = 64;

impl Shape {
    /// Returns whether to keep the form. The next exposition is likely to match if the last two
    /// did, and then reading it is faster, because most lines only need their values parsed.
    /// `before` is the hash of the exposition before this one.
    pub(super) fn is_useful(&self, before: Option<u64>) -> bool {
        before == Some(self.hash) && self.plain * 2 >= self.lines && self.bytes <= MAX_BYTES
    }
}

impl Line {
    fn new(length: usize, is_sample: bool) -> Option<Self> {
        Some(Self(u32::try_from(length).ok()?.checked_mul(2)? | u32::from(is_sample)))
    }

    fn length(self) -> usize {
        self.0 as usize / 2
    }

    fn is_sample(self) -> bool {
        self.0 & 1 == 1
    }
}

impl Draft {
    /// Records the next line.
    pub(super) fn line(&mut self, item: &Item<'_, '_>) {
        self.at = self.lines.len();
        // A line that is too long gets a length that no exposition reaches, so it never matches.
        let of = |length, is_sample| Line::new(length, is_sample).unwrap_or(Line(u32::MAX));
        self.lines.push(match item {
            Item::Sample(sample) => of(sample.encoded.len(), true),
            _ => of(0, false),
        });
    }

    /// Records that the line is a sample.
    pub(super) fn sample(&mut self) {
        self.samples += 1;
    }

    /// Records that the line is not part of its family, or that it contains more than a number.
    pub(super) fn refuse(&mut self) {
        self.is_refused = true;
    }

    /// Records the end of the exposition.
    pub(super) fn end(&mut self) {
        self.at = self.lines.len();
    }

    /// Records that this line begins a new family, after a family with this many metrics.
    /// `recorded` contains the families recorded so far.
    pub(super) fn family(&mut self, metrics: usize, recorded: &[RecordedFamily]) {
        let before = self.blocks.last().map_or(0, |block| block.families);
        let is_plain = match recorded.get(before..) {
            Some([one]) => {
                let is_whole = one.series_count() == metrics && metrics == self.samples;
                is_whole && !self.is_refused && one.is_of_numbers()
            }
            _ => false,
        };
        self.blocks.push(Block { lines: self.at, families: recorded.len(), is_plain });
        (self.samples, self.is_refused) = (0, false);
    }

    /// Returns the shape of an exposition. `None` if all similar expositions must be read as a
    /// whole.
    pub(super) fn shape(
        &mut self,
        text: &Text,
        recorded: &[RecordedFamily],
        kinds: &HashMap<String, wire::FamilyType>,
        hash: &SeededState,
    ) -> Option<Shape> {
        let begun = self.blocks.last().map_or(0, |block| block.lines);
        let is_rest_said = self.lines[begun..].iter().all(|line| !line.is_sample());
        // Families without series are not shown, so they have no place in a form.
        if !is_rest_said || recorded.iter().any(|family| family.series_count() == 0) {
            return None;
        }
        let (mut bytes, mut rest) = (0, &text.bytes[..]);
        let mut hasher = hash.build_hasher();
        for line in &mut self.lines {
            let is_comment = *rest.first()? == b'#';
            if is_comment == line.is_sample() || matches!(rest[0], b' ' | b'\t' | b'\n') {
                return None;
            }
            let end = line.length() + line_feed(rest.get(line.length()..)?)?;
            if is_comment {
                *line = Line::new(end + 1, false)?;
            }
            hasher.write(&rest[..line.length()]);
            bytes += line.length() + size_of::<Line>();
            rest = &rest[end + 1..];
        }
        let (mut plain, mut last) = (0, 0);
        for block in &self.blocks {
            plain += if block.is_plain { block.lines - last } else { 0 };
            last = block.lines;
        }
        bytes += kinds.keys().map(|name| name.len() + FAMILY_BYTES).sum::<usize>();
        let shape = Shape { hash: hasher.finish(), lines: self.lines.len(), plain, bytes };
        rest.is_empty().then_some(shape)
    }

    /// Builds the form of an exposition that has a shape.
    pub(super) fn form(
        mut self,
        text: &Text,
        kinds: HashMap<String, wire::FamilyType>,
        samples: usize,
    ) -> Option<Form> {
        let length = self.lines.iter().map(|line| line.length()).sum();
        let (mut kept, mut rest) = (Vec::with_capacity(length), &text.bytes[..]);
        for line in &self.lines {
            let (known, after) = rest.split_at_checked(line.length())?;
            kept.extend_from_slice(known);
            let value = if line.is_sample() { line_feed(after)? + 1 } else { 0 };
            rest = &after[value..];
        }
        self.lines.shrink_to_fit();
        Some(Form {
            format: text.format,
            text: kept,
            lines: self.lines,
            blocks: self.blocks,
            kinds,
            samples,
            snapshot: Arc::default(),
        })
    }
}

impl Form {
    /// Adds the snapshot of an exposition with this form.
    pub(super) fn with_snapshot(self, snapshot: &Arc<SourceSnapshot>) -> Self {
        Self { snapshot: Arc::clone(snapshot), ..self }
    }

    /// Reads an exposition of this form, during this turn. Returns `None` if the exposition has
    /// another form, or if the time limit of the scrape is over.
    pub(super) fn read(mut self, text: &Text, hash: &SeededState, turn: &Turn<'_>) -> Option<Body> {
        let (families, dropped) = self.families(text, hash, turn)?;
        let (series, samples) = (self.snapshot.series, self.samples);
        let kept = samples.saturating_sub(dropped);
        let form = Some(self);
        Some(Body { families, series, samples, kept, identities: None, shape: None, form })
    }

    /// Returns the families of an exposition, and the number of samples that are not shown.
    fn families(
        &mut self,
        text: &Text,
        hash: &SeededState,
        turn: &Turn<'_>,
    ) -> Option<(Vec<RecordedFamily>, usize)> {
        if text.format != self.format || text.bytes.len() < self.text.len() {
            return None;
        }
        let mut again = ExpositionReader::new(self.format, hash, turn);
        again.kinds = mem::take(&mut self.kinds);
        let limits = Limits { samples: usize::MAX, bytes: usize::MAX };
        let mut assembly = Families::new(self.format, limits);
        let mut scan = Scan { known: &self.text, rest: &text.bytes, format: self.format, turn };
        let mut families = Vec::with_capacity(self.snapshot.families.len());
        let mut lines = self.lines.iter();
        let (mut line, mut family) = (0, 0);
        for block in &self.blocks {
            let mut own = lines.by_ref().take(block.lines - line);
            let known = self.snapshot.families.get(family..block.families)?;
            if block.is_plain {
                let one = known.first()?.with_numbers(|| scan.number(&mut own));
                families.push(Some(one?));
                // Only comments.
                own.try_for_each(|line| scan.known(*line))?;
            } else {
                let before = scan.rest;
                own.try_for_each(|line| scan.line(*line).map(drop))?;
                let part = &before[..before.len() - scan.rest.len()];
                let begun = again.recorder.families().len();
                let is_end = |error: &TextLineError| error.reason() == TextReason::MissingEnd;
                again.take(part, &mut assembly, usize::MAX, is_end).ok()?;
                let read = &again.recorder.families()[begun..];
                let is_same = |(one, known): (&RecordedFamily, _)| one.has_series_of(known);
                if read.len() != known.len() || !read.iter().zip(known).all(is_same) {
                    return None;
                }
                families.resize_with(block.families, || None);
            }
            (line, family) = (block.lines, block.families);
        }
        lines.try_for_each(|line| scan.known(*line))?;
        if !scan.rest.is_empty() {
            return None;
        }
        self.kinds = mem::take(&mut again.kinds);
        let mut read = again.recorder.finish().0.into_iter();
        let families = families.into_iter().map(|family| family.or_else(|| read.next()));
        // Every sample of a plain block is shown.
        Some((families.collect::<Option<_>>()?, again.dropped))
    }
}

/// The rest of an exposition that was not compared yet.
struct Scan<'t> {
    known: &'t [u8],
    rest: &'t [u8],
    format: TextFormat,
    turn: &'t Turn<'t>,
}

impl<'t> Scan<'t> {
    /// Compares the known part of a line.
    fn known(&mut self, line: Line) -> Option<()> {
        let (known, after) = self.known.split_at_checked(line.length())?;
        let (bytes, rest) = self.rest.split_at_checked(line.length())?;
        (self.known, self.rest) = (after, rest);
        (known == bytes).then_some(())
    }

    /// Compares a line, and returns the part after the labels of a sample.
    fn line(&mut self, line: Line) -> Option<&'t [u8]> {
        self.turn.line().ok()?;
        self.known(line)?;
        if !line.is_sample() {
            return Some(&[]);
        }
        let (value, rest) = self.rest.split_at(line_feed(self.rest)?);
        self.rest = &rest[1..];
        // The name must end here, and there must be no labels.
        let is_value = matches!(value, [b' ', next, ..] if !matches!(next, b' ' | b'\t' | b'{'));
        (is_value && line.length() + value.len() <= MAX_LINE).then_some(value)
    }

    /// Returns the number of the next sample.
    fn number<'l>(&mut self, lines: &mut impl Iterator<Item = &'l Line>) -> Option<Number> {
        for line in lines {
            let value = self.line(*line)?;
            if line.is_sample() {
                let value = str::from_utf8(value).ok()?;
                return Some(number(match self.format {
                    TextFormat::Prometheus => value_and_time(value)?.0,
                    _ => text::number(value.strip_prefix(' ')?)?,
                }));
            }
        }
        None
    }
}

/// Returns the position of the end of the line.
fn line_feed(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|byte| *byte == b'\n')
}
