//! The writer of a collector: families with labels, and numbers as their samples.

use std::fmt;

use super::{FamilyHeader, Kind, Label, Number, Series, Sink, Texts, Timestamp, Value};

/// Methods for your [collectors](crate::collector::Collector): each starts a family, and returns a
/// writer for its series.
impl<'k> dyn Sink + 'k {
    /// Starts a counter with these names of labels.
    ///
    /// ```
    /// use quipu::exposition::{Encoder, Escaping, Format};
    /// use quipu::snapshot::Sink;
    ///
    /// let mut encoder = Encoder::new(Format::Text, Escaping::default());
    /// let sink: &mut dyn Sink = &mut encoder;
    /// let mut packets = sink.counter("packets", "Packets.", ["device"]);
    /// packets.sample(["eth0"], 7);
    /// assert!(encoder.buffer().ends_with(b"packets_total{device=\"eth0\"} 7\n"));
    /// ```
    pub fn counter<'s, const N: usize>(
        &'s mut self,
        name: &'s str,
        help: &'s str,
        labels: [&'s str; N],
    ) -> FamilyWriter<'s, N> {
        self.begin(FamilyHeader::new(Kind::Counter, name, help), labels)
    }

    /// Starts a gauge with these names of labels.
    pub fn gauge<'s, const N: usize>(
        &'s mut self,
        name: &'s str,
        help: &'s str,
        labels: [&'s str; N],
    ) -> FamilyWriter<'s, N> {
        self.begin(FamilyHeader::new(Kind::Gauge, name, help), labels)
    }

    /// Starts a family of any kind, with these names of labels instead of the labels of the header.
    pub fn begin<'s, const N: usize>(
        &'s mut self,
        family: FamilyHeader<'s>,
        labels: [&'s str; N],
    ) -> FamilyWriter<'s, N> {
        let (labels, start) = (labels.map(Label::new), None);
        let writer = FamilyWriter { sink: self, family, labels, start, texts: Vec::new() };
        writer.sink.family(&family.with_labels(&writer.labels));
        writer
    }
}

/// Writes the series of one family to a [`Sink`]. You pass one value for each of the `N` labels;
/// another number of values does not compile.
///
/// ```
/// use quipu::collector::Collector;
/// use quipu::snapshot::{FamilyHeader, Kind, Sink};
///
/// struct Uptime;
///
/// impl Collector for Uptime {
///     fn names(&self) -> Vec<String> {
///         vec!["uptime_seconds".into()]
///     }
///
///     fn collect(&self, sink: &mut dyn Sink) {
///         let family = FamilyHeader::new(Kind::Gauge, "uptime_seconds", "Time since the start.");
///         sink.begin(family.unit("seconds"), ["host"]).sample(["a"], 1.5).sample(["b"], 60);
///     }
/// }
///
/// let registry = quipu::Registry::new();
/// registry.register_collector(Uptime)?;
/// assert!(registry.text().ends_with("uptime_seconds{host=\"b\"} 60\n"));
/// # Ok::<(), quipu::Error>(())
/// ```
#[must_use = "a family without samples is not shown"]
pub struct FamilyWriter<'s, const N: usize> {
    sink: &'s mut (dyn Sink + 's),
    family: FamilyHeader<'s>,
    labels: [Label<'s>; N],
    start: Option<Timestamp>,
    texts: Vec<u8>,
}

impl<const N: usize> FamilyWriter<'_, N> {
    /// Sets the time when the following series started to count from zero.
    pub fn start(&mut self, start: impl Into<Option<Timestamp>>) -> &mut Self {
        self.start = start.into();
        self
    }

    /// Writes the number of a counter, a gauge or an unknown value, with these values of the
    /// labels. The number of an info is not shown. For the other kinds, use
    /// [`FamilyWriter::series`].
    pub fn sample(&mut self, labels: [&str; N], number: impl Into<Number>) -> &mut Self {
        let number = number.into();
        let value = match self.family.kind {
            Kind::Counter => Value::counter(number),
            Kind::Info => Value::Info,
            Kind::Unknown => Value::Unknown(number),
            _ => Value::Gauge(number),
        };
        self.series(labels, value)
    }

    /// Writes a value of any kind, such as a histogram, with these values of the labels. A value of
    /// another kind than the family's kind is omitted, because a scraper would refuse the whole
    /// page.
    pub fn series(&mut self, labels: [&str; N], value: Value<'_>) -> &mut Self {
        if value.kind() == self.family.kind {
            let series = Series::new(Texts::encode(labels, &mut self.texts), value);
            let series = Series { start: self.start, ..series };
            self.sink.series(&self.family.with_labels(&self.labels), &series);
        }
        self
    }
}

impl<const N: usize> fmt::Debug for FamilyWriter<'_, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = self.family.with_labels(&self.labels);
        f.debug_struct("FamilyWriter").field("family", &family).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exposition::{Encoder, Escaping, Format};
    use crate::snapshot::{Bucket, HistogramValue};

    fn text(format: Format, write: impl Fn(&mut dyn Sink)) -> String {
        let mut encoder = Encoder::new(format, Escaping::default());
        write(&mut encoder);
        String::from_utf8(encoder.buffer().to_vec()).unwrap()
    }

    #[test]
    fn values_of_labels_are_escaped() {
        let text = text(Format::Text, |sink| {
            sink.gauge("x", "", ["a", "b"]).sample(["\"", "c"], 1).sample(["d", "\\\n"], -1.5);
        });
        assert!(
            text.ends_with("x{a=\"\\\"\",b=\"c\"} 1\nx{a=\"d\",b=\"\\\\\\n\"} -1.5\n"),
            "{text}"
        );
    }

    #[test]
    fn a_start_applies_to_the_series_that_follow() {
        let text = text(Format::OpenMetrics2, |sink| {
            let mut family = sink.counter("x", "", ["a"]);
            family.sample(["b"], 1).start(Timestamp::from_nanos(2_000_000_000)).sample(["c"], 2);
        });
        assert!(text.ends_with("x_total{a=\"b\"} 1\nx_total{a=\"c\"} 2 st@2\n"), "{text}");
    }

    #[test]
    fn a_value_of_another_kind_is_omitted() {
        let buckets = [Bucket::new(1.0, 2), Bucket::new(f64::INFINITY, 1)];
        let value = Value::Histogram(HistogramValue::new(3, 2.5).buckets(&buckets));
        let text = text(Format::OpenMetrics, |sink| {
            let family = FamilyHeader::new(Kind::Histogram, "x", "");
            sink.begin(family, []).sample([], 7).series([], value).series([], Value::Info);
            sink.counter("y", "", []).sample([], 7_u64);
            sink.begin(FamilyHeader::new(Kind::Info, "z", ""), ["v"]).sample(["1"], true);
        });
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        let expected = [
            "x_bucket{le=\"1.0\"} 2",
            "x_bucket{le=\"+Inf\"} 3",
            "x_sum 2.5",
            "x_count 3",
            "y_total 7",
            "z_info{v=\"1\"} 1",
        ];
        assert_eq!(lines, expected);
    }
}
