//! The encoder: a sink that appends to a buffer, which the next scrape reuses.

use super::known::KnownFamilies;
use super::page::{Omissions, Page};
use super::protobuf::Protobuf;
use super::style::{Dialect, Style};
use super::{Escaping, Format};
use crate::snapshot::{FamilyHeader, FamilyKey, Kind, Label, Series, Sink, Texts, Value};

/// Writes a snapshot in one of the formats. After one scrape, it does not allocate for later
/// scrapes of the same size. It keeps the headers and the labels that it rendered for the families
/// of a registry, up to some megabytes, for the next scrape in the same format.
///
/// A scraper refuses a whole page because of one bad family or series. The encoder omits those, so
/// you still get the rest of the page. [`Encoder::finish`] counts the omitted series in the metric
/// `quipu_series_omitted`, by [`Rule`](super::Rule).
///
/// ```
/// use quipu::exposition::{Encoder, Escaping, Format};
///
/// let registry = quipu::Registry::new();
/// registry.counter("jobs", "Completed jobs.")?.inc();
/// let mut encoder = Encoder::new(Format::OpenMetrics, Escaping::default());
/// registry.visit(&mut encoder)?;
/// encoder.finish();
/// assert!(encoder.buffer().ends_with(b"jobs_total 1\n# EOF\n"));
/// # Ok::<(), quipu::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct Encoder {
    format: Format,
    style: Style,
    page: Page,
    families: KnownFamilies,
    protobuf: Protobuf,
    out: Vec<u8>,
}

impl Encoder {
    /// Creates an encoder.
    pub fn new(format: Format, escaping: Escaping) -> Self {
        let mut encoder = Self::default();
        encoder.reset(format, escaping);
        encoder
    }

    /// Clears the encoder for the next scrape, and keeps its memory.
    pub fn reset(&mut self, format: Format, escaping: Escaping) {
        if (self.format, self.style.escaping) == (format, escaping) {
            self.families.rewind();
        } else {
            self.families.forget();
        }
        self.format = format;
        self.page.reset(format, escaping);
        self.out.clear();
        self.style.escaping = escaping;
        self.style.dialect = match format {
            Format::Text | Format::TextUtf8 => Dialect::Text,
            Format::OpenMetrics => Dialect::OpenMetrics,
            Format::OpenMetrics2 => Dialect::OpenMetrics2,
            Format::Protobuf => {
                self.protobuf.reset(escaping);
                Dialect::default()
            }
        };
    }

    /// Makes the line-based formats write bucket bounds with `put`. Use this if your series
    /// continue the series of a library that formats bounds differently than Go.
    #[doc(hidden)]
    pub fn bounds(&mut self, put: fn(f64, &mut Vec<u8>)) {
        self.style.put_bound = Some(put);
        self.families.forget();
    }

    /// Writes the header of a family now, even if the family is empty; without this call, its first
    /// series writes the header. Only line-based formats use headers. You must pass the family to
    /// [`Sink::family`] before.
    #[doc(hidden)]
    pub fn header(&mut self, family: &FamilyHeader<'_>) {
        let known = &mut *self.families.current;
        if self.format != Format::Protobuf && self.page.admits_family(family, &known.checked) {
            known.text.header(family, &mut self.out);
        }
    }

    /// Returns the bytes written so far. A protobuf message is appended only when its family is
    /// complete.
    pub fn buffer(&self) -> &[u8] {
        &self.out
    }

    /// Like [`Encoder::buffer`], to remove bytes that were sent.
    #[doc(hidden)]
    pub fn buffer_mut(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Returns the number of bytes of the protobuf message that is not complete yet.
    #[doc(hidden)]
    pub fn pending(&self) -> usize {
        self.protobuf.pending()
    }

    /// Returns the memory of the rendered families in the cache, in bytes.
    #[doc(hidden)]
    pub fn cached(&self) -> usize {
        self.families.size()
    }

    /// Returns the series that are omitted so far.
    pub fn omissions(&self) -> &Omissions {
        self.page.omissions()
    }

    /// Writes the end of the exposition, after the number of omitted series, if there are any.
    pub fn finish(&mut self) {
        self.count_omissions();
        match self.format {
            Format::Text | Format::TextUtf8 => {}
            Format::OpenMetrics | Format::OpenMetrics2 => self.out.extend_from_slice(b"# EOF\n"),
            Format::Protobuf => self.protobuf.finish(&mut self.out),
        }
    }

    /// Writes the metric `quipu_series_omitted`, unless a source of the page already provides it.
    fn count_omissions(&mut self) {
        let mut texts = Vec::new();
        let counts = self.page.omissions().counts();
        for (number, (rule, count)) in counts.enumerate() {
            if number == 0 {
                self.family(&OMITTED);
                if !self.page.is_new_family() {
                    return;
                }
            }
            let texts = Texts::encode([rule.as_str()], &mut texts);
            let series = Series::checked(texts, true, Value::gauge(count));
            self.any_series(&OMITTED, &series);
        }
    }

    /// Writes a series of any kind, in any format.
    #[inline(never)]
    fn any_series(&mut self, family: &FamilyHeader<'_>, series: &Series<'_>) {
        let known = &mut *self.families.current;
        if !self.page.admits(family, &known.checked, series) {
            return;
        }
        match self.format {
            Format::Protobuf => self.protobuf.series(family, series),
            _ => known.text.series(family, series, &mut self.out),
        }
    }

    fn start(&mut self, key: Option<FamilyKey>, family: &FamilyHeader<'_>) {
        let start = self.page.family(family);
        let is_known = self.families.choose(key, start.relation);
        let known = &mut *self.families.current;
        if !is_known {
            known.checked = self.page.check(family);
        }
        let checked = &known.checked;
        if self.format == Format::Protobuf {
            return self.protobuf.family(family, start.relation, checked, &mut self.out);
        }
        if !is_known {
            known.text.start(self.style, family, start.relation, checked);
        }
        known.text.begin(start.is_begun);
    }
}

impl Sink for Encoder {
    fn family(&mut self, family: &FamilyHeader<'_>) {
        self.start(None, family);
    }

    fn known_family(&mut self, key: FamilyKey, family: &FamilyHeader<'_>) {
        self.start(Some(key), family);
    }

    #[inline(always)]
    fn series(&mut self, family: &FamilyHeader<'_>, series: &Series<'_>) {
        // This only finds a rendered counter in line-based formats.
        if self.families.current.text.rendered_counter(series, &mut self.out) {
            return;
        }
        // A copy, because then the parts of the original can stay in registers.
        let series = *series;
        self.any_series(family, &series);
    }
}

const OMITTED: FamilyHeader<'static> = FamilyHeader::new(
    Kind::Gauge,
    "quipu_series_omitted",
    "Series that this page omits, because a scraper would refuse the page with them.",
)
.with_labels(&[Label::new("reason")]);
