//! `LabelWriter`: label values and groups write to it when a series is looked up.

use std::fmt::{self, Display, Write};

use quipu_segment::series::KeyWriter;

/// Collects the label values of a series, in the order of the labels. See
/// [`LabelValue`](crate::LabelValue) for examples.
///
/// ```
/// use quipu::label::LabelWriter;
/// use quipu::{CounterFamily, Description, LabelGroup, LabelValue, Registry};
///
/// /// A priority, of which only the first letter is shown.
/// struct Priority(&'static str);
///
/// impl LabelValue for Priority {
///     fn encode(&self, writer: &mut LabelWriter<'_>) {
///         writer.text(&self.0[..1]);
///     }
/// }
///
/// #[derive(LabelGroup)]
/// struct Job { priority: Priority }
///
/// let registry = Registry::new();
/// let jobs: CounterFamily<Job> = registry.register(Description::new("jobs", "Jobs."))?;
/// jobs.inc(&Job { priority: Priority("high") });
/// assert_eq!(registry.value("jobs_total", &[("priority", "h")]), Some(1.0));
/// # Ok::<(), quipu::Error>(())
/// ```
#[derive(Debug)]
pub struct LabelWriter<'a>(KeyWriter<'a>);

impl LabelWriter<'_> {
    /// Lends the segment's key writer to `write`, wrapped into a `LabelWriter`.
    #[inline(always)]
    pub(crate) fn wrap(key: &mut KeyWriter<'_>, write: impl FnOnce(&mut LabelWriter<'_>)) {
        key.lend(|key| {
            let mut writer = LabelWriter(key);
            write(&mut writer);
            writer.0
        });
    }

    /// Writes a value by its index in [`LabelValue::VALUES`](crate::LabelValue::VALUES).
    ///
    /// With an index out of range, or for a label without such values, the update is counted in the
    /// family's overflow series.
    pub fn index(&mut self, index: u32) {
        self.0.fixed(index);
    }

    /// Writes value number `index` of `count` values, like [`LabelWriter::index`]. This is for
    /// derived code: its index is always in range, so the values need not be looked up.
    #[doc(hidden)]
    #[inline]
    pub fn index_within(&mut self, index: u32, count: u32) {
        self.0.index(index, count);
    }

    /// Writes a value as a string.
    ///
    /// If you gave the label fixed values at registration, for example with
    /// [`Description::values`](crate::Description::values), and the string is none of them, the
    /// update is counted in the family's overflow series.
    #[inline]
    pub fn text(&mut self, text: &str) {
        self.0.text(text);
    }

    /// Writes a value with [`Display`]. This allocates no memory for up to 64 bytes. If formatting
    /// fails, the value is the part before the failure.
    #[inline]
    pub fn display(&mut self, value: impl Display) {
        let mut buffer = TextBuffer { short: [0; SHORT], length: 0, long: String::new() };
        let _ = write!(buffer, "{value}");
        self.text(buffer.text());
    }
}

/// The longest string that is formatted on the stack, in bytes.
const SHORT: usize = 64;

/// A buffer for a formatted string: on the stack up to [`SHORT`] bytes, otherwise on the heap.
struct TextBuffer {
    short: [u8; SHORT],
    length: usize,
    /// The whole string, once it is longer than `SHORT`.
    long: String,
}

impl TextBuffer {
    fn text(&self) -> &str {
        if self.long.is_empty() { self.short_text() } else { &self.long }
    }

    fn short_text(&self) -> &str {
        // This is always valid UTF-8, because `write_str` only appends whole strings.
        std::str::from_utf8(&self.short[..self.length]).unwrap_or_default()
    }
}

impl Write for TextBuffer {
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        if self.long.is_empty() {
            let end = self.length + piece.len();
            if let Some(place) = self.short.get_mut(self.length..end) {
                place.copy_from_slice(piece.as_bytes());
                self.length = end;
                return Ok(());
            }
            self.long = self.short_text().to_owned();
        }
        self.long.push_str(piece);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::Label;
    use crate::{CounterFamily, Description, LabelGroup, LabelValue, Registry};

    #[test]
    fn formatted_texts_are_whole_whatever_their_length() {
        for length in [0, 1, SHORT - 1, SHORT, SHORT + 1, 3 * SHORT] {
            for pieces in [1, 2, 7] {
                let mut buffer = TextBuffer { short: [0; SHORT], length: 0, long: String::new() };
                let text: String = ('a'..='z').cycle().take(length).collect();
                let bytes = text.as_bytes().chunks(length.div_ceil(pieces).max(1));
                bytes.for_each(|piece| buffer.write_str(str::from_utf8(piece).unwrap()).unwrap());
                assert_eq!(buffer.text(), text);
            }
        }
    }

    /// A value that writes an index.
    struct IndexValue(u32);

    impl LabelValue for IndexValue {
        const VALUES: Option<&'static [&'static str]> = Some(&["a", "b"]);

        fn encode(&self, writer: &mut LabelWriter<'_>) {
            writer.index(self.0);
        }
    }

    struct Labels(IndexValue, &'static str);

    impl LabelGroup for Labels {
        type Identity = Self;
        const LABELS: &'static [Label<'static>] = &[
            Label { name: "fixed", values: IndexValue::VALUES },
            Label { name: "dynamic", values: None },
        ];

        fn encode(&self, writer: &mut LabelWriter<'_>) {
            self.0.encode(writer);
            self.1.encode(writer);
        }
    }

    #[test]
    fn a_value_without_an_index_is_found_by_its_encoding() {
        crate::counter!("encoded", "Encoded.", "value" => IndexValue(1)).inc();
        let value = Registry::global().value("encoded_total", &[("value", "b")]);
        assert_eq!(value, Some(1.0));
    }

    #[test]
    fn an_optional_value_can_be_of_any_type() {
        let registry = Registry::new();
        let family: CounterFamily<OptionalLabels> =
            registry.register(Description::new("c", "")).unwrap();
        family.inc(&OptionalLabels(Some(true), Some(80)));
        family.inc(&OptionalLabels(None, None));
        let value = |ok, port| registry.value("c_total", &[("ok", ok), ("port", port)]);
        assert_eq!([value("true", "80"), value("", "")], [Some(1.0); 2]);
    }

    struct OptionalLabels(Option<bool>, Option<u16>);

    impl LabelGroup for OptionalLabels {
        type Identity = Self;
        const LABELS: &'static [Label<'static>] = &[Label::new("ok"), Label::new("port")];

        fn encode(&self, writer: &mut LabelWriter<'_>) {
            self.0.encode(writer);
            self.1.encode(writer);
        }
    }

    #[test]
    fn an_index_out_of_range_is_counted_in_the_overflow_series() {
        let registry = Registry::new();
        let family: CounterFamily<Labels> = registry.register(Description::new("c", "")).unwrap();
        for index in 0..4 {
            family.inc(&Labels(IndexValue(index), "x"));
        }
        let value = |fixed| registry.value("c_total", &[("fixed", fixed), ("dynamic", "x")]);
        assert_eq!([value("a"), value("b")], [Some(1.0); 2]);
        assert_eq!(registry.value("c_total", &[("quipu_overflow", "true")]), Some(2.0));
        assert_eq!(family.overflowed(), 2);
    }
}
