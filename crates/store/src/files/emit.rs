//! Emits the families that were read from files to a sink, which encodes them.

use quipu::snapshot::{
    Bucket, FamilyHeader, HistogramValue, Kind, Label, Number, Series, Sink, SummaryValue, Texts,
    Value as Shown,
};

use super::families::{self, Families, Value};
use super::key::Labels;

/// Emits all families in order of their names.
pub(super) fn emit(families: &mut Families, sink: &mut dyn Sink) {
    for (name, family) in &mut families.by_name {
        one(name, family, sink);
    }
}

fn one(name: &str, family: &mut families::Family, sink: &mut dyn Sink) {
    // If a series lacks one of these labels, it gets the label with an empty value, which means the
    // same.
    let names: Vec<String> = family.labels().into_iter().map(str::to_owned).collect();
    let labels: Vec<Label<'_>> = names.iter().map(|name| Label::new(name)).collect();
    let (help, kind) = (&*family.help, family.kind);
    let shown = FamilyHeader::new(kind, name, help).with_labels(&labels);
    sink.family(&shown);
    let mut out = Out { family: &shown, names: &names, texts: Vec::new(), sink };
    for series in &mut family.series {
        let labels = &series.labels;
        match &mut series.value {
            Value::Number(reading) => out.number(labels, None, reading.value),
            Value::Each(values) => {
                for (pid, value) in values {
                    out.number(labels, Some(pid), *value);
                }
            }
            Value::Summary { count, sum } => {
                let count = whole(*count);
                out.series(labels, None, Shown::Summary(SummaryValue::new(count, *sum)));
            }
            Value::Histogram(histogram) => {
                let sum = histogram.sum;
                let buckets: Vec<Bucket<'_>> = histogram
                    .finish()
                    .iter()
                    .map(|(bound, le, count)| {
                        let count = whole(*count);
                        // Files can spell infinity differently.
                        let le = if *bound == f64::INFINITY { "+Inf" } else { le };
                        Bucket::new(*bound, count).le(le)
                    })
                    .collect();
                let count = buckets.iter().fold(0_u64, |sum, b| sum.saturating_add(b.count));
                let histogram = HistogramValue::new(count, sum).buckets(&buckets);
                out.series(labels, None, Shown::Histogram(histogram));
            }
        }
    }
}

struct Out<'a> {
    family: &'a FamilyHeader<'a>,
    names: &'a [String],
    texts: Vec<u8>,
    sink: &'a mut dyn Sink,
}

impl Out<'_> {
    fn number(&mut self, labels: &Labels, pid: Option<&str>, value: f64) {
        let number = Number::Float(value);
        let value = match self.family.kind {
            Kind::Counter => Shown::counter(number),
            Kind::Gauge => Shown::Gauge(number),
            _ => Shown::Unknown(number),
        };
        self.series(labels, pid, value);
    }

    fn series(&mut self, labels: &Labels, pid: Option<&str>, value: Shown<'_>) {
        self.texts.clear();
        let mut rest = labels.iter().peekable();
        for name in self.names {
            // Both lists are sorted.
            let own = rest.next_if(|(label, _)| *label == name).map(|(_, value)| &**value);
            let text = own.or(pid.filter(|_| name == "pid")).unwrap_or("");
            Texts::push(&mut self.texts, text);
        }
        self.sink.series(self.family, &Series::new(Texts::new(&self.texts), value));
    }
}

/// Returns a count from a number in a file. Applications write integers, but damaged files can
/// contain any number.
fn whole(count: f64) -> u64 {
    // The cast saturates, and converts NaN to 0.
    count.round() as u64
}
