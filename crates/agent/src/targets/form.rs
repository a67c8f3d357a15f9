//! A parse cache for the exposition of a target. Most expositions change only in their values from
//! one scrape to the next. The part that stays the same is called the *form*.
//!
//! If an exposition matches the form byte for byte, its families and series are already known, and
//! no series is new. For families of plain numbers with one line per series, only the numbers must
//! then be parsed. The lines of other families are parsed again, because their values can change
//! the meaning of a line. For example, a histogram whose counts decrease is shown as separate
//! samples. If an exposition differs from the form or contains an invalid line, it is parsed as a
//! whole, because only the full parser reports the reason.
//!
//! A form takes about as much memory as its exposition, and creating it requires a copy. It is
//! therefore only kept if it is likely to be useful: see [`Shape::is_useful`].

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

/// The form of an exposition, to parse the next one faster.
#[derive(Debug)]
pub(super) struct Form {
    format: TextFormat,
    /// The exposition, without the parts of lines after the labels of samples.
    text: Vec<u8>,
    lines: Vec<Line>,
    blocks: Vec<Block>,
    /// The types of all families, by name.
    kinds: HashMap<String, wire::FamilyType>,
    /// The number of samples.
    samples: usize,
    /// The snapshot of the last exposition with this form.
    snapshot: Arc<SourceSnapshot>,
}

/// A summary of an exposition, which determines whether its form is kept.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    /// The hash of the bytes that the form would contain.
    pub(super) hash: u64,
    lines: usize,
    /// The number of lines in plain blocks.
    plain: usize,
    /// The size that the form would have in memory, in bytes.
    bytes: usize,
}

/// A line: its length in the form, and whether it is a sample.
#[derive(Debug, Clone, Copy)]
struct Line(u32);

/// A range of lines that ends with the last line of a family.
#[derive(Debug, Clone, Copy)]
struct Block {
    /// The index of the block's last line, plus one.
    lines: usize,
    /// The index of the block's last recorded family, plus one.
    families: usize,
    /// Whether the block consists of one line for each series of one numeric family, in order.
    is_plain: bool,
}

/// The structure of an exposition, collected while it is parsed.
#[derive(Debug, Default)]
pub(super) struct Draft {
    lines: Vec<Line>,
    /// The index of the current line.
    at: usize,
    blocks: Vec<Block>,
    /// The number of samples in the current block.
    samples: usize,
    /// Whether a line of the current block rules out a plain block.
    is_refused: bool,
}

/// The maximum length of a line to compare, which is also the parser's limit.
const MAX_LINE: usize = 64 << 10;
/// The maximum size of a form in bytes, approximately.
const MAX_BYTES: usize = 8 << 20;
/// The size of a family in a form in bytes, approximately and without its name.
const FAMILY_BYTES: usize = 64;

impl Shape {
    /// Returns whether to keep the form. `before` is the hash of the previous exposition. If the
    /// last two expositions match, the next one is likely to match too. At least half of the lines
    /// must be plain, because only these are parsed faster.
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
    /// Adds a line.
    pub(super) fn line(&mut self, item: &Item<'_, '_>) {
        self.at = self.lines.len();
        // A line that is too long gets a length that never matches.
        let of = |length, is_sample| Line::new(length, is_sample).unwrap_or(Line(u32::MAX));
        self.lines.push(match item {
            Item::Sample(sample) => of(sample.encoded.len(), true),
            _ => of(0, false),
        });
    }

    /// Marks the current line as a sample.
    pub(super) fn sample(&mut self) {
        self.samples += 1;
    }

    /// Marks the current block as not plain, because a line does not belong to its family, or
    /// contains more than a number.
    pub(super) fn refuse(&mut self) {
        self.is_refused = true;
    }

    /// Marks the end of the exposition.
    pub(super) fn end(&mut self) {
        self.at = self.lines.len();
    }

    /// Ends the block of the previous family, which contained this number of metrics, because the
    /// current line begins a new family. `recorded` contains all families so far.
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

    /// Returns the shape of the exposition. `None` if such an exposition must always be parsed as a
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
        // A family without series is not shown, so no form can contain it.
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

    /// Creates the form of an exposition that has a shape.
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
    /// Sets the snapshot of the last exposition with this form.
    pub(super) fn with_snapshot(self, snapshot: &Arc<SourceSnapshot>) -> Self {
        Self { snapshot: Arc::clone(snapshot), ..self }
    }

    /// Parses an exposition with this form, during this turn. Returns `None` if the exposition has
    /// another form, and at the time limit.
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
        let limits = Limits::default().samples(usize::MAX).bytes(usize::MAX);
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
                // The block contains only comments.
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

/// The part of an exposition that was not compared yet.
struct Scan<'t> {
    known: &'t [u8],
    rest: &'t [u8],
    format: TextFormat,
    turn: &'t Turn<'t>,
}

impl<'t> Scan<'t> {
    /// Compares the part of a line that the form contains.
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
        // The name must end here, without labels.
        let is_value = matches!(value, [b' ', next, ..] if !matches!(next, b' ' | b'\t' | b'{'));
        (is_value && line.length() + value.len() <= MAX_LINE).then_some(value)
    }

    /// Compares lines up to the next sample, and parses its number.
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

/// Returns the position of the first line feed.
fn line_feed(bytes: &[u8]) -> Option<usize> {
    bytes.iter().position(|byte| *byte == b'\n')
}
