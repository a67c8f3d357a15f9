//! The encoder: a sink that appends to memory which is used again for the next scrape.

use super::protobuf::Protobuf;
use super::text::{Dialect, Text};
use super::{Escaping, Format};
use crate::snapshot::{Family, Series, Sink};

/// Writes a snapshot in one of the formats. Once it has written a scrape, it allocates nothing for
/// the next one of the size.
#[derive(Debug, Default)]
pub struct Encoder {
    format: Format,
    text: Text,
    protobuf: Protobuf,
    out: Vec<u8>,
}

impl Encoder {
    /// An encoder.
    pub fn new(format: Format, escaping: Escaping) -> Self {
        let mut encoder = Self::default();
        encoder.reset(format, escaping);
        encoder
    }

    /// Begins anew, with the memory that it has.
    pub fn reset(&mut self, format: Format, escaping: Escaping) {
        self.format = format;
        self.out.clear();
        let dialect = match format {
            Format::Text | Format::TextUtf8 => Dialect::Text,
            Format::OpenMetrics => Dialect::OpenMetrics,
            Format::OpenMetrics2 => Dialect::OpenMetrics2,
            Format::Protobuf => return self.protobuf.reset(escaping),
        };
        self.text.reset(dialect, escaping);
    }

    /// Has the text formats write bounds of buckets by `put`: for programs whose series go on from
    /// those of a library that writes them in another way than Go.
    #[doc(hidden)]
    pub fn bounds(&mut self, put: fn(f64, &mut Vec<u8>)) {
        self.text.bounds(put);
    }

    /// Writes what comes before the series of a family now, whether it has any or not; else it comes
    /// with the first of them. The formats of text alone have it. The family was given before.
    pub fn header(&mut self, family: &Family<'_>) {
        if self.format != Format::Protobuf {
            self.text.header(family, &mut self.out);
        }
    }

    /// What is written and not yet taken. A message of protobuf is there when its family is over.
    pub fn buffer(&self) -> &[u8] {
        &self.out
    }

    /// The same, for taking.
    pub fn buffer_mut(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Writes what comes at the end.
    pub fn finish(&mut self) {
        match self.format {
            Format::Text | Format::TextUtf8 => {}
            Format::OpenMetrics | Format::OpenMetrics2 => self.out.extend_from_slice(b"# EOF\n"),
            Format::Protobuf => self.protobuf.finish(&mut self.out),
        }
    }
}

impl Sink for Encoder {
    fn family(&mut self, family: &Family<'_>) {
        match self.format {
            Format::Protobuf => self.protobuf.family(family, &mut self.out),
            _ => self.text.family(family),
        }
    }

    #[inline]
    fn series(&mut self, family: &Family<'_>, series: &Series<'_>) {
        match self.format {
            Format::Protobuf => self.protobuf.series(family, series),
            _ => self.text.series(family, series, &mut self.out),
        }
    }
}
