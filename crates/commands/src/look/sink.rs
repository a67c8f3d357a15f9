//! A sink that adds the series of a segment to a look.

use quipu::snapshot::{self, FamilyHeader, HistogramValue, Number, Series, Sink};

use super::{Look, Points, Value, exponential};

/// Adds series to a look.
pub(super) struct LookSink<'l> {
    look: &'l mut Look,
    family: u32,
    points: Vec<(f64, f64)>,
    /// Whether the series are from a recording, which contains neither exponential buckets nor
    /// quantiles.
    is_recorded: bool,
}

impl<'l> LookSink<'l> {
    pub(super) fn new(look: &'l mut Look) -> Self {
        Self { look, family: 0, points: Vec::new(), is_recorded: false }
    }

    pub(super) fn for_recording(look: &'l mut Look) -> Self {
        Self { is_recorded: true, ..Self::new(look) }
    }
}

fn histogram<'p>(
    histogram: &HistogramValue<'_>,
    is_recorded: bool,
    points: &'p mut Vec<(f64, f64)>,
) -> Value<Points<'p>> {
    let HistogramValue { count, sum, buckets, native, .. } = *histogram;
    points.clear();
    points.extend(buckets.iter().map(|bucket| (bucket.bound, bucket.count as f64)));
    let native = native.filter(|_| buckets.is_empty());
    // The count of unknown exponential buckets is unknown too.
    let count = if is_recorded && native.is_some() { f64::NAN } else { count as f64 };
    let native = native.filter(|_| !is_recorded);
    if let Some(native) = native {
        let zero = (native.zero_threshold, native.zero_count as f64);
        let sides = [native.negative, native.positive];
        let sides = sides.map(|side| side.iter().map(|&(index, n)| (index, n as f64)));
        exponential::append(native.schema.into(), zero, sides, points);
        // Observations of NaN are in no bucket.
        let beyond = count - points.iter().map(|(_, count)| count).sum::<f64>();
        if beyond > 0.0 {
            points.push((f64::INFINITY, beyond));
        }
    }
    Value::Histogram { count, sum, buckets: points, is_exponential: native.is_some() }
}

impl Sink for LookSink<'_> {
    fn family(&mut self, family: &FamilyHeader<'_>) {
        self.family = self.look.family(super::Family {
            name: family.text_name(),
            kind: family.kind,
            help: family.help.to_owned(),
            unit: family.unit.to_owned(),
        });
    }

    fn series(&mut self, family: &FamilyHeader<'_>, series: &Series<'_>) {
        let start = series.start.map(|start| start.as_nanos());
        let number = self.family;
        let value = match series.value {
            snapshot::Value::Counter(snapshot::CounterValue { total: n, .. })
            | snapshot::Value::Gauge(n)
            | snapshot::Value::Unknown(n) => Value::Number(n),
            snapshot::Value::Info => Value::Number(Number::Unsigned(1)),
            snapshot::Value::Histogram(ref value) => {
                histogram(value, self.is_recorded, &mut self.points)
            }
            snapshot::Value::Summary(snapshot::SummaryValue { quantiles, count, sum, .. }) => {
                let quantiles = if self.is_recorded { &[] } else { quantiles };
                Value::Summary { count: count as f64, sum, quantiles }
            }
            snapshot::Value::StateSet(states) => {
                for &(state, is_on) in states {
                    let labels = series.labels(family).chain([(family.name, state)]);
                    let value = Value::Number(Number::Unsigned(is_on.into()));
                    self.look.add(number, labels, start, value);
                }
                return;
            }
            _ => return,
        };
        self.look.add(number, series.labels(family), start, value);
    }
}
