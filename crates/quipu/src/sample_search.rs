//! The search for a single sample in a snapshot, for tests of programs that count.

use std::borrow::Cow;

use crate::exposition::{underscored_label, underscored_name};
use crate::snapshot::{CounterValue, FamilyHeader, Kind, Series, Sink, SummaryValue, Value};

/// A search for a sample by its name and labels, in the spelling of `Format::Text`. This search is
/// a sink.
pub(crate) struct SampleSearch<'a> {
    /// The name, escaped like in `Format::Text`.
    name: Cow<'a, str>,
    labels: Labels<'a>,
    value: Option<f64>,
}

/// Labels by name. The names are escaped like in `Format::Text`.
type Labels<'a> = Vec<(Cow<'a, str>, &'a str)>;

impl<'a> SampleSearch<'a> {
    pub(crate) fn new(name: &'a str, labels: &[(&'a str, &'a str)]) -> Self {
        let (name, labels) = (underscored_name(name), sorted(labels.iter().copied()));
        Self { name, labels, value: None }
    }

    /// Returns the value of the sample, if it was found.
    pub(crate) fn value(&self) -> Option<f64> {
        self.value
    }

    /// Returns the value of the sample whose name is the family's name and `suffix`, and whose
    /// labels are the series' labels and `own`.
    fn find(&self, family: &FamilyHeader<'_>, series: &Series<'_>, suffix: &str) -> Option<f64> {
        // The search must also contain the label that the format adds to a sample.
        let is_same =
            |own: Option<(&str, &str)>| sorted(series.labels(family).chain(own)) == self.labels;
        let added = |name: &str| {
            let name = underscored_label(name);
            self.labels.iter().find(|label| label.0 == name).map(|label| label.1)
        };
        match series.value {
            Value::Counter(CounterValue { total, .. }) if is_same(None) => Some(total.as_f64()),
            Value::Gauge(value) | Value::Unknown(value) if is_same(None) => Some(value.as_f64()),
            Value::Info if is_same(None) => Some(1.0),
            Value::StateSet(states) => {
                let wanted = added(family.name)?;
                let (_, is_on) = states.iter().find(|(state, _)| *state == wanted)?;
                is_same(Some((family.name, wanted))).then_some(f64::from(u8::from(*is_on)))
            }
            Value::Histogram(histogram) => match suffix {
                "_count" if is_same(None) => Some(histogram.count as f64),
                "_sum" if is_same(None) => Some(histogram.sum),
                "_bucket" => {
                    let le = added("le")?;
                    let bound: f64 = le.parse().ok()?;
                    let buckets = histogram.buckets;
                    // Without classic buckets, the format writes one for all observations.
                    let count = if buckets.is_empty() {
                        (bound == f64::INFINITY).then_some(histogram.count)?
                    } else {
                        let end = buckets.iter().position(|bucket| bucket.bound == bound)?;
                        let counts = buckets[..=end].iter().map(|bucket| bucket.count);
                        counts.fold(0, u64::saturating_add)
                    };
                    is_same(Some(("le", le))).then_some(count as f64)
                }
                _ => None,
            },
            Value::Summary(SummaryValue { quantiles, count, sum }) => match suffix {
                "_count" if is_same(None) => Some(count as f64),
                "_sum" if is_same(None) => Some(sum),
                "" => {
                    let text = added("quantile")?;
                    let wanted: f64 = text.parse().ok()?;
                    let (_, value) = quantiles.iter().find(|(quantile, _)| *quantile == wanted)?;
                    is_same(Some(("quantile", text))).then_some(*value)
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// Returns the part of the wanted name after the name of the family, if the family can contain
    /// such samples.
    fn suffix(&self, family: &FamilyHeader<'_>) -> Option<&str> {
        if underscored_name(&family.text_name()) == self.name {
            return Some("");
        }
        let suffix = self.name.strip_prefix(&*underscored_name(family.name))?;
        let suffixes: &[&str] = match family.kind {
            Kind::Histogram => &["_count", "_sum", "_bucket"],
            Kind::Summary => &["_count", "_sum"],
            _ => &[],
        };
        suffixes.contains(&suffix).then_some(suffix)
    }
}

impl Sink for SampleSearch<'_> {
    fn family(&mut self, _: &FamilyHeader<'_>) {}

    fn series(&mut self, family: &FamilyHeader<'_>, series: &Series<'_>) {
        if self.value.is_none()
            && let Some(suffix) = self.suffix(family)
        {
            self.value = self.find(family, series, suffix);
        }
    }
}

/// Returns the labels by name. Prometheus treats an empty value like a missing label.
fn sorted<'a>(labels: impl Iterator<Item = (&'a str, &'a str)>) -> Labels<'a> {
    let labels = labels.filter(|(_, value)| !value.is_empty());
    let mut labels: Vec<_> = labels.map(|(name, value)| (underscored_label(name), value)).collect();
    labels.sort_unstable();
    labels
}

#[cfg(test)]
mod tests {
    use crate::{
        CounterFamily, Description, Histogram, HistogramFamily, Registry, StateSet, Summary,
    };

    #[test]
    fn every_sample_of_the_text_format_is_found_with_its_value() {
        let registry = Registry::new();
        let sizes = Description::new("sizes", "").labels(["b", "a"]).buckets([1.0, 2.5]);
        let sizes: HistogramFamily<[&str; 2]> = registry.register(sizes).unwrap();
        for value in [0.5, 2.0, 9.0] {
            sizes.observe(&["x", "y"], value);
        }
        let phase = Description::new("phase", "").states(["up", "down"]);
        registry.register::<StateSet<&str>>(phase).unwrap().set(&"up");
        let lag = Description::new("lag", "").quantiles([0.5]);
        registry.register::<Summary>(lag).unwrap().observe(3.0);
        registry.gauge("level", "").unwrap().set(-1.5);
        let dotted = Description::new("a.b", "").labels(["c.d"]);
        registry.register::<CounterFamily<[&str; 1]>>(dotted).unwrap().inc(&["x"]);
        let native: Histogram =
            registry.register(Description::new("native", "").native(3)).unwrap();
        native.observe(1.0);
        registry.counter("hits", "").unwrap().inc_by(7);
        let _empty: Histogram = registry.register(Description::new("empty", "")).unwrap();

        let mut samples = 0;
        for line in registry.text().lines().filter(|line| !line.starts_with('#')) {
            let (sample, value) = line.rsplit_once(' ').unwrap();
            let (name, labels) = sample.split_once('{').unwrap_or((sample, "}"));
            let labels: Vec<(&str, &str)> = labels
                .trim_end_matches('}')
                .split(',')
                .filter_map(|label| label.split_once('='))
                .map(|(name, value)| (name, value.trim_matches('"')))
                .collect();
            assert_eq!(registry.value(name, &labels), value.parse().ok(), "{line}");
            samples += 1;
        }
        assert!(samples > 20);
        assert_eq!(registry.value("a.b_total", &[("c.d", "x")]), Some(1.0));
        let labels = [("a", "y"), ("b", "x")];
        assert_eq!(registry.value("sizes_count", &labels), Some(3.0));
        for (name, labels) in [
            ("sizes", &labels[..]),
            ("sizes_count", &labels[..1]),
            ("sizes_bucket", &labels[..]),
            ("hits", &[]),
            ("hits_total", &labels[..]),
            ("phase", &[("phase", "sideways")]),
            ("lag", &[("quantile", "0.9")]),
        ] {
            assert_eq!(registry.value(name, labels), None, "{name} {labels:?}");
        }
    }
}
