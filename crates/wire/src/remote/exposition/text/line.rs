//! Reads one line.

use alloc::vec::Vec;

use super::{
    Escapes, Exemplar, Format, Item, Label, LineError, Reader, Reason, Sample, Text, TextFault,
};
use crate::remote::exposition::Kind;
use crate::remote::lines::{find, float, name_end};

/// A line, and how much of it was read.
#[derive(Clone, Copy)]
struct Line<'a> {
    line: &'a str,
    number: u64,
    at: usize,
    format: Format,
}

/// What the braces may have in front of the labels.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Braces {
    /// The name of a metric, if it was not before the braces.
    OfSample,
    /// Labels alone.
    OfExemplar,
}

impl<'a> Reader<'a> {
    #[inline(always)]
    pub(super) fn read(&mut self, line: &'a str) -> Result<Item<'_, 'a>, LineError> {
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
                let Reader { labels, exemplar_labels, .. } = self;
                line.sample(labels, exemplar_labels, max_labels)
            }
        };
        item.map_err(|TextFault { offset, reason }| LineError { line: number, offset, reason })
    }
}

impl<'a> Line<'a> {
    fn comment<'r>(&mut self) -> Result<Item<'r, 'a>, TextFault> {
        let rest = &self.line[self.at + 1..];
        let word = rest.trim_start_matches([' ', '\t']);
        let spaces = rest.len() - word.len();
        let is_strict = self.format == Format::OpenMetrics;
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
            _ if is_strict => Err(self.fault(Reason::UnknownComment)),
            _ => Ok(Item::Comment(rest)),
        }
    }

    /// Reads the name and the text of a comment with a meaning.
    fn metadata<'r>(&mut self, word: &str) -> Result<Item<'r, 'a>, TextFault> {
        self.space(Reason::MalformedName)?;
        let name = match self.peek() {
            Some(b'"') => self.quoted(Reason::MalformedName)?,
            _ => self.plain::<true>(Reason::MalformedName)?,
        };
        if name.raw.is_empty() {
            return Err(self.fault(Reason::MalformedName));
        }
        if !self.is_at_end() || self.format == Format::OpenMetrics {
            let is_space = matches!(self.peek(), Some(b' '))
                || self.format == Format::Prometheus && matches!(self.peek(), Some(b'\t'));
            if !is_space {
                return Err(self.fault(Reason::MalformedName));
            }
            self.at += 1;
        }
        let text = &self.line[self.at..];
        match word {
            "HELP" => {
                let escapes = match self.format {
                    _ if !text.contains('\\') => Escapes::None,
                    Format::Prometheus => Escapes::Help,
                    Format::OpenMetrics => Escapes::All,
                };
                Ok(Item::Help { name, text: Text { raw: text, escapes } })
            }
            "TYPE" => match self.kind(text) {
                Some(kind) => Ok(Item::Type { name, kind }),
                None => Err(self.fault(Reason::UnknownType)),
            },
            _ => Ok(Item::Unit { name, unit: text }),
        }
    }

    fn kind(&self, text: &str) -> Option<Kind> {
        let (text, is_strict) = match self.format {
            Format::Prometheus => (text.trim_matches([' ', '\t']), false),
            Format::OpenMetrics => (text, true),
        };
        match text {
            "counter" => Some(Kind::Counter),
            "gauge" => Some(Kind::Gauge),
            "histogram" => Some(Kind::Histogram),
            "summary" => Some(Kind::Summary),
            "untyped" if !is_strict => Some(Kind::Unknown),
            "unknown" if is_strict => Some(Kind::Unknown),
            "gaugehistogram" if is_strict => Some(Kind::GaugeHistogram),
            "info" if is_strict => Some(Kind::Info),
            "stateset" if is_strict => Some(Kind::StateSet),
            _ => None,
        }
    }

    #[inline(always)]
    fn sample<'r>(
        &mut self,
        labels: &'r mut Vec<Label<'a>>,
        exemplar_labels: &'r mut Vec<Label<'a>>,
        max_labels: usize,
    ) -> Result<Item<'r, 'a>, TextFault> {
        labels.clear();
        let mut name = self.plain::<true>(Reason::MalformedName)?;
        if !matches!(self.peek(), None | Some(b' ' | b'\t' | b'{')) {
            return Err(self.fault(Reason::MalformedName));
        }
        let mut encoded = self.at;
        self.skip_spaces();
        if self.peek() == Some(b'{') {
            self.braces(Braces::OfSample, &mut name, labels, max_labels)?;
            encoded = self.at;
        }
        if name.raw.is_empty() {
            return Err(self.fault(Reason::MalformedName));
        }
        self.space(Reason::MalformedValue)?;
        let value = self.number(Reason::MalformedValue)?;
        let line = self.number;
        let (timestamp_ms, exemplar, encoded) = (None, None, &self.line[..encoded]);
        let mut sample = Sample { name, labels, value, timestamp_ms, exemplar, line, encoded };
        self.skip_spaces();
        if !self.is_at_end() {
            self.end(&mut sample, exemplar_labels, max_labels)?;
        }
        Ok(Item::Sample(sample))
    }

    /// Reads what comes after the value.
    fn end<'r>(
        &mut self,
        sample: &mut Sample<'r, 'a>,
        exemplar_labels: &'r mut Vec<Label<'a>>,
        max_labels: usize,
    ) -> Result<(), TextFault> {
        if self.format == Format::Prometheus {
            let end = self.token_end();
            let time = self.line[self.at..end].parse();
            sample.timestamp_ms = Some(time.map_err(|_| self.fault(Reason::MalformedTimestamp))?);
            self.at = end;
            self.skip_spaces();
        } else {
            if !self.rest().starts_with(b" # ") {
                self.space(Reason::MalformedTimestamp)?;
                sample.timestamp_ms = Some(self.seconds(Reason::MalformedTimestamp)?);
            }
            if self.rest().starts_with(b" # {") {
                self.at += 3;
                sample.exemplar = Some(self.exemplar(exemplar_labels, max_labels)?);
            }
        }
        if self.is_at_end() { Ok(()) } else { Err(self.fault(Reason::MalformedTimestamp)) }
    }

    fn exemplar<'r>(
        &mut self,
        labels: &'r mut Vec<Label<'a>>,
        max_labels: usize,
    ) -> Result<Exemplar<'r, 'a>, TextFault> {
        const REASON: Reason = Reason::MalformedExemplar;
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
        Ok(Exemplar { labels, value, timestamp_ms })
    }

    /// Reads labels in braces. The name of the metric may be the first thing in them, in quotes.
    #[inline(always)]
    fn braces(
        &mut self,
        braces: Braces,
        name: &mut Text<'a>,
        labels: &mut Vec<Label<'a>>,
        max_labels: usize,
    ) -> Result<(), TextFault> {
        const REASON: Reason = Reason::MalformedLabels;
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
                            return Err(TextFault { offset: start, reason: Reason::MalformedName });
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
                return Err(TextFault { offset: start, reason: Reason::TooManyLabels });
            }
            let value = self.quoted(REASON)?;
            if labels.iter().any(|other| other.name == label) {
                return Err(TextFault { offset: start, reason: Reason::DuplicateLabel });
            }
            labels.push(Label { name: label, value });
            self.skip_spaces();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {}
                _ => return Err(self.fault(REASON)),
            }
        }
        Ok(())
    }

    /// Reads text in quotes.
    #[inline(always)]
    fn quoted(&mut self, reason: Reason) -> Result<Text<'a>, TextFault> {
        self.expect(b'"', reason)?;
        let start = self.at;
        let bytes = self.line.as_bytes();
        let mut escapes = Escapes::None;
        let mut end = find(bytes, start, *b"\"\\");
        while bytes.get(end) == Some(&b'\\') {
            escapes = Escapes::All;
            // What is escaped may be any character, and the line may end before it.
            end = find(bytes, (end + 2).min(bytes.len()), *b"\"\\");
        }
        if end == bytes.len() {
            return Err(TextFault { offset: end, reason });
        }
        self.at = end + 1;
        Ok(Text { raw: &self.line[start..end], escapes })
    }

    /// Reads a name that is not in quotes. It does not begin with a digit, and may be empty.
    #[inline(always)]
    fn plain<const COLONS: bool>(&mut self, reason: Reason) -> Result<Text<'a>, TextFault> {
        if self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            return Err(self.fault(reason));
        }
        let end = name_end::<COLONS>(self.line.as_bytes(), self.at);
        let text = Text { raw: &self.line[self.at..end], escapes: Escapes::None };
        self.at = end;
        Ok(text)
    }

    /// Reads a number, up to the next space.
    #[inline(always)]
    fn number(&mut self, reason: Reason) -> Result<f64, TextFault> {
        let end = self.token_end();
        let number = float(&self.line[self.at..end]).ok_or_else(|| self.fault(reason))?;
        self.at = end;
        Ok(number)
    }

    /// Reads seconds as milliseconds.
    fn seconds(&mut self, reason: Reason) -> Result<i64, TextFault> {
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
            Format::Prometheus => find(self.line.as_bytes(), self.at, *b" \t"),
            Format::OpenMetrics => find(self.line.as_bytes(), self.at, [b' ']),
        }
    }

    /// Skips spaces and tabs, which Prometheus' format may have anywhere.
    #[inline(always)]
    fn skip_spaces(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t')) && self.format == Format::Prometheus {
            self.at += 1;
        }
    }

    /// Skips the space that OpenMetrics has between the parts of a line; in Prometheus' format,
    /// any number of them.
    #[inline(always)]
    fn space(&mut self, reason: Reason) -> Result<(), TextFault> {
        match self.format {
            Format::Prometheus => self.skip_spaces(),
            Format::OpenMetrics => self.expect(b' ', reason)?,
        }
        Ok(())
    }

    #[inline(always)]
    fn expect(&mut self, byte: u8, reason: Reason) -> Result<(), TextFault> {
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
    fn fault(&self, reason: Reason) -> TextFault {
        TextFault { offset: self.at, reason }
    }
}
