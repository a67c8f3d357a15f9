//! Parses one line of an exposition: a sample, or a comment such as `# HELP`.

use alloc::vec::Vec;

use super::{
    Escapes, Item, LineExemplar, Text, TextFault, TextFormat, TextLabel, TextLineError, TextReader,
    TextReason, TextSample,
};
use crate::remote::exposition::FamilyType;
use crate::remote::lines::{find, float, name_end};

/// A line and the current position.
#[derive(Clone, Copy)]
struct Line<'a> {
    line: &'a str,
    number: u64,
    at: usize,
    format: TextFormat,
}

/// The contents that braces can have in front of the labels.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Braces {
    /// The name of a metric, if no name precedes the braces.
    OfSample,
    /// Only labels.
    OfExemplar,
}

impl<'a> TextReader<'a> {
    #[inline(always)]
    pub(super) fn read(&mut self, line: &'a str) -> Result<Item<'_, 'a>, TextLineError> {
        let number = self.state.lines;
        let format = self.state.options.format;
        let mut line = Line { line, number, at: 0, format };
        line.skip_spaces();
        let item = match line.peek() {
            Some(b'#') => line.comment().inspect(|item| {
                self.state.is_ended |= matches!(item, Item::End);
            }),
            _ => {
                let max_labels = self.state.options.max_labels;
                let TextReader { labels, exemplar_labels, .. } = self;
                line.sample(labels, exemplar_labels, max_labels)
            }
        };
        item.map_err(|TextFault { offset, reason }| TextLineError { line: number, offset, reason })
    }
}

impl<'a> Line<'a> {
    fn comment<'r>(&mut self) -> Result<Item<'r, 'a>, TextFault> {
        let rest = &self.line[self.at + 1..];
        let word = rest.trim_start_matches([' ', '\t']);
        let spaces = rest.len() - word.len();
        let is_strict = self.format == TextFormat::OpenMetrics;
        if is_strict && word == "EOF" && spaces == 1 {
            return Ok(Item::End);
        }
        let known = ["HELP", "TYPE", "UNIT"].into_iter().find(|known| {
            let after = word.strip_prefix(known).and_then(|after| after.as_bytes().first());
            matches!(after, Some(b' ')) || !is_strict && matches!(after, Some(b'\t'))
        });
        match known {
            Some(known) if spaces == 1 || spaces > 0 && !is_strict => {
                if known == "UNIT" && !is_strict {
                    return Ok(Item::Comment(rest));
                }
                self.at += 1 + spaces + known.len();
                self.metadata(known)
            }
            _ if is_strict => Err(self.fault(TextReason::UnknownComment)),
            _ => Ok(Item::Comment(rest)),
        }
    }

    /// Reads the name and the rest of a comment such as `# HELP`.
    fn metadata<'r>(&mut self, word: &str) -> Result<Item<'r, 'a>, TextFault> {
        self.space(TextReason::MalformedName)?;
        let name = match self.peek() {
            Some(b'"') => self.quoted(TextReason::MalformedName)?,
            _ => self.plain::<true>(TextReason::MalformedName)?,
        };
        if name.raw.is_empty() {
            return Err(self.fault(TextReason::MalformedName));
        }
        if !self.is_at_end() || self.format == TextFormat::OpenMetrics {
            let is_space = matches!(self.peek(), Some(b' '))
                || self.format == TextFormat::Prometheus && matches!(self.peek(), Some(b'\t'));
            if !is_space {
                return Err(self.fault(TextReason::MalformedName));
            }
            self.at += 1;
        }
        let text = &self.line[self.at..];
        match word {
            "HELP" => {
                let escapes = match self.format {
                    _ if !text.contains('\\') => Escapes::None,
                    TextFormat::Prometheus => Escapes::Help,
                    TextFormat::OpenMetrics => Escapes::All,
                };
                Ok(Item::Help { name, text: Text { raw: text, escapes } })
            }
            "TYPE" => match self.kind(text) {
                Some(kind) => Ok(Item::Type { name, kind }),
                None => Err(self.fault(TextReason::UnknownType)),
            },
            _ => Ok(Item::Unit { name, unit: text }),
        }
    }

    fn kind(&self, text: &str) -> Option<FamilyType> {
        let (text, is_strict) = match self.format {
            TextFormat::Prometheus => (text.trim_matches([' ', '\t']), false),
            TextFormat::OpenMetrics => (text, true),
        };
        match text {
            "counter" => Some(FamilyType::Counter),
            "gauge" => Some(FamilyType::Gauge),
            "histogram" => Some(FamilyType::Histogram),
            "summary" => Some(FamilyType::Summary),
            "untyped" if !is_strict => Some(FamilyType::Unknown),
            "unknown" if is_strict => Some(FamilyType::Unknown),
            "gaugehistogram" if is_strict => Some(FamilyType::GaugeHistogram),
            "info" if is_strict => Some(FamilyType::Info),
            "stateset" if is_strict => Some(FamilyType::StateSet),
            _ => None,
        }
    }

    #[inline(always)]
    fn sample<'r>(
        &mut self,
        labels: &'r mut Vec<TextLabel<'a>>,
        exemplar_labels: &'r mut Vec<TextLabel<'a>>,
        max_labels: usize,
    ) -> Result<Item<'r, 'a>, TextFault> {
        labels.clear();
        let mut name = self.plain::<true>(TextReason::MalformedName)?;
        if !matches!(self.peek(), None | Some(b' ' | b'\t' | b'{')) {
            return Err(self.fault(TextReason::MalformedName));
        }
        let mut encoded = self.at;
        self.skip_spaces();
        if self.peek() == Some(b'{') {
            self.braces(Braces::OfSample, &mut name, labels, max_labels)?;
            encoded = self.at;
        }
        if name.raw.is_empty() {
            return Err(self.fault(TextReason::MalformedName));
        }
        self.space(TextReason::MalformedValue)?;
        let value = self.number(TextReason::MalformedValue)?;
        let line = self.number;
        let (timestamp_ms, exemplar, encoded) = (None, None, &self.line[..encoded]);
        let mut sample = TextSample { name, labels, value, timestamp_ms, exemplar, line, encoded };
        self.skip_spaces();
        if !self.is_at_end() {
            self.end(&mut sample, exemplar_labels, max_labels)?;
        }
        Ok(Item::Sample(sample))
    }

    /// Reads the rest of a line after the value.
    fn end<'r>(
        &mut self,
        sample: &mut TextSample<'r, 'a>,
        exemplar_labels: &'r mut Vec<TextLabel<'a>>,
        max_labels: usize,
    ) -> Result<(), TextFault> {
        if self.format == TextFormat::Prometheus {
            let end = self.token_end();
            let time = self.line[self.at..end].parse();
            sample.timestamp_ms =
                Some(time.map_err(|_| self.fault(TextReason::MalformedTimestamp))?);
            self.at = end;
            self.skip_spaces();
        } else {
            if !self.rest().starts_with(b" # ") {
                self.space(TextReason::MalformedTimestamp)?;
                sample.timestamp_ms = Some(self.seconds(TextReason::MalformedTimestamp)?);
            }
            if self.rest().starts_with(b" # {") {
                self.at += 3;
                sample.exemplar = Some(self.exemplar(exemplar_labels, max_labels)?);
            }
        }
        if self.is_at_end() { Ok(()) } else { Err(self.fault(TextReason::MalformedTimestamp)) }
    }

    fn exemplar<'r>(
        &mut self,
        labels: &'r mut Vec<TextLabel<'a>>,
        max_labels: usize,
    ) -> Result<LineExemplar<'r, 'a>, TextFault> {
        const REASON: TextReason = TextReason::MalformedExemplar;
        labels.clear();
        let mut no_name = Text { raw: "", escapes: Escapes::None };
        self.braces(Braces::OfExemplar, &mut no_name, labels, max_labels)?;
        self.space(REASON)?;
        let value = self.number(REASON)?;
        let timestamp_ms = match self.is_at_end() {
            true => None,
            false => {
                self.space(REASON)?;
                Some(self.seconds(REASON)?)
            }
        };
        Ok(LineExemplar { labels, value, timestamp_ms })
    }

    /// Reads labels in braces. The metric's name may be the first item, in quotes.
    #[inline(always)]
    fn braces(
        &mut self,
        braces: Braces,
        name: &mut Text<'a>,
        labels: &mut Vec<TextLabel<'a>>,
        max_labels: usize,
    ) -> Result<(), TextFault> {
        const REASON: TextReason = TextReason::MalformedLabels;
        self.at += 1;
        loop {
            self.skip_spaces();
            let start = self.at;
            let label = match self.peek() {
                Some(b'}') => break self.at += 1,
                Some(b'"') => {
                    let text = self.quoted(REASON)?;
                    self.skip_spaces();
                    if braces == Braces::OfSample && matches!(self.peek(), Some(b',' | b'}')) {
                        if !name.raw.is_empty() || text.raw.is_empty() {
                            return Err(TextFault {
                                offset: start,
                                reason: TextReason::MalformedName,
                            });
                        }
                        *name = text;
                        self.at += usize::from(self.peek() == Some(b','));
                        continue;
                    }
                    text
                }
                _ => self.plain::<false>(REASON)?,
            };
            if label.raw.is_empty() || label.raw == "__name__" {
                return Err(TextFault { offset: start, reason: REASON });
            }
            self.skip_spaces();
            self.expect(b'=', REASON)?;
            self.skip_spaces();
            if labels.len() == max_labels {
                return Err(TextFault { offset: start, reason: TextReason::TooManyLabels });
            }
            let value = self.quoted(REASON)?;
            if labels.iter().any(|other| other.name == label) {
                return Err(TextFault { offset: start, reason: TextReason::DuplicateLabel });
            }
            labels.push(TextLabel { name: label, value });
            self.skip_spaces();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {}
                _ => return Err(self.fault(REASON)),
            }
        }
        Ok(())
    }

    /// Reads a quoted string.
    #[inline(always)]
    fn quoted(&mut self, reason: TextReason) -> Result<Text<'a>, TextFault> {
        self.expect(b'"', reason)?;
        let start = self.at;
        let bytes = self.line.as_bytes();
        let mut escapes = Escapes::None;
        let mut end = find(bytes, start, *b"\"\\");
        while bytes.get(end) == Some(&b'\\') {
            escapes = Escapes::All;
            // Any character can follow the backslash, and the line can end before it.
            end = find(bytes, (end + 2).min(bytes.len()), *b"\"\\");
        }
        if end == bytes.len() {
            return Err(TextFault { offset: end, reason });
        }
        self.at = end + 1;
        Ok(Text { raw: &self.line[start..end], escapes })
    }

    /// Reads a name without quotes. This name cannot begin with a digit, but can be empty.
    #[inline(always)]
    fn plain<const COLONS: bool>(&mut self, reason: TextReason) -> Result<Text<'a>, TextFault> {
        if self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            return Err(self.fault(reason));
        }
        let end = name_end::<COLONS>(self.line.as_bytes(), self.at);
        let text = Text { raw: &self.line[self.at..end], escapes: Escapes::None };
        self.at = end;
        Ok(text)
    }

    /// Reads a number up to the next space.
    #[inline(always)]
    fn number(&mut self, reason: TextReason) -> Result<f64, TextFault> {
        let end = self.token_end();
        let number = float(&self.line[self.at..end]).ok_or_else(|| self.fault(reason))?;
        self.at = end;
        Ok(number)
    }

    /// Reads seconds as milliseconds.
    fn seconds(&mut self, reason: TextReason) -> Result<i64, TextFault> {
        const LIMIT: f64 = (1_u64 << 63) as f64;
        let start = self.at;
        let ms = self.number(reason)? * 1000.0;
        if !(-LIMIT..LIMIT).contains(&ms) {
            return Err(TextFault { offset: start, reason });
        }
        let whole = ms as i64;
        let fraction = ms - whole as f64;
        Ok(whole + i64::from(fraction >= 0.5) - i64::from(fraction <= -0.5))
    }

    #[inline(always)]
    fn token_end(&self) -> usize {
        match self.format {
            TextFormat::Prometheus => find(self.line.as_bytes(), self.at, *b" \t"),
            TextFormat::OpenMetrics => find(self.line.as_bytes(), self.at, [b' ']),
        }
    }

    /// Skips spaces and tabs, which Prometheus' format allows everywhere.
    #[inline(always)]
    fn skip_spaces(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t')) && self.format == TextFormat::Prometheus {
            self.at += 1;
        }
    }

    /// Skips the single space between two parts of a line in OpenMetrics, or any number of spaces
    /// and tabs in Prometheus' format.
    #[inline(always)]
    fn space(&mut self, reason: TextReason) -> Result<(), TextFault> {
        match self.format {
            TextFormat::Prometheus => self.skip_spaces(),
            TextFormat::OpenMetrics => self.expect(b' ', reason)?,
        }
        Ok(())
    }

    #[inline(always)]
    fn expect(&mut self, byte: u8, reason: TextReason) -> Result<(), TextFault> {
        if self.peek() != Some(byte) {
            return Err(self.fault(reason));
        }
        self.at += 1;
        Ok(())
    }

    #[inline(always)]
    fn peek(&self) -> Option<u8> {
        self.line.as_bytes().get(self.at).copied()
    }

    #[inline(always)]
    fn rest(&self) -> &'a [u8] {
        &self.line.as_bytes()[self.at..]
    }

    #[inline(always)]
    fn is_at_end(&self) -> bool {
        self.at == self.line.len()
    }

    #[cold]
    fn fault(&self, reason: TextReason) -> TextFault {
        TextFault { offset: self.at, reason }
    }
}
