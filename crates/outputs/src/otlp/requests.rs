//! Writes data points to OTLP requests of bounded size, and reads them back from these requests.

use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;

use quipu_segment::hash::SeededState;
use quipu_wire::remote::otlp::{
    Attribute, AttributeValue, ExponentialPoint, HistogramPoint, MetricDescription, MetricsReader,
    MetricsWriter, NewPoint, PointValue, SummaryPoint, Temporality,
};

use super::resources::{BaseResource, Program, Resources};
use crate::queue::Form;
use crate::snapshot::{Requests, Writer};

/// The writer of one request.
#[derive(Debug)]
pub(crate) struct Points {
    writer: MetricsWriter,
    form: Form,
    /// The resources of the points; `None` if all labels stay in the points.
    resources: Option<Resources>,
    /// The time of all points.
    pub(super) time_ns: u64,
}

/// The number of points at which a request is full.
const MOST_POINTS: u64 = 2000;
/// The number of bytes at which a request is full.
const MOST_BYTES: usize = 1 << 20;

impl Points {
    pub(super) fn new(form: Form, time_ns: u64) -> Self {
        Self { writer: MetricsWriter::new(), form, resources: None, time_ns }
    }

    /// Groups the points by resource: the labels of a point determine its resource, and each
    /// resource also contains the attributes of `base`.
    pub(super) fn by_resource(self, base: &Arc<BaseResource>, hash: &SeededState) -> Self {
        Self { resources: Some(Resources::new(Arc::clone(base), hash)), ..self }
    }

    pub(super) fn name(&self) -> &str {
        self.writer.name()
    }

    fn push(&mut self, point: &NewPoint<'_>) {
        let Some(resources) = &mut self.resources else { return self.writer.push(point) };
        let (program, others) = Program::split_labels(point.attributes);
        resources.enter(&mut self.writer, program);
        let attributes = others.as_deref().unwrap_or(point.attributes);
        self.writer.push(&point.attributes(attributes));
    }
}

impl Writer for Points {
    fn form(&self) -> Form {
        self.form
    }

    fn is_full(&self, points: u64) -> bool {
        points >= MOST_POINTS || self.writer.len() >= MOST_BYTES
    }

    fn finish(&mut self, out: &mut Vec<u8>) {
        self.writer.finish(out);
        if let Some(resources) = &mut self.resources {
            resources.finished();
        }
    }

    /// Adds an end mark for each ended series, except for deltas. The sum of a series' deltas stays
    /// valid without a mark.
    fn mark(
        requests: &mut Requests<Self>,
        _: Form,
        request: &[u8],
        take: &mut dyn FnMut(u64) -> bool,
    ) {
        let resources = requests.writer.resources.as_ref();
        let base = resources.map(|resources| Arc::clone(resources.base())).unwrap_or_default();
        let (hash, time_ns) = (requests.hash.clone(), requests.writer.time_ns);
        each_point(request, &base, &hash, |metric, id, point| {
            let Some(value) = ended(&point.value).filter(|_| take(id)) else { return };
            if requests.writer.name() != metric.name {
                requests.begin_metric(metric.name, metric.description, metric.unit);
            }
            let mark =
                NewPoint::new(time_ns, value).attributes(point.attributes).no_recorded_value(true);
            requests.writer.push(&mark);
            requests.end(id, true);
        });
    }
}

impl Requests<Points> {
    /// Begins a metric. Add its points with [`Self::push_point`].
    pub(super) fn begin_metric(&mut self, name: &str, help: &str, unit: &str) {
        self.writer.writer.begin(name, help, unit);
    }

    /// Adds a point to the current metric.
    pub(super) fn push_point(&mut self, id: u64, point: &NewPoint<'_>) {
        self.writer.push(point);
        self.end(id, false);
    }
}

/// Returns the identity of a series: a hash of its metric name and its attributes. The keys are
/// sorted, and the values are strings.
pub(super) fn identity(hash: &SeededState, name: &str, attributes: &[Attribute<'_>]) -> u64 {
    let mut hasher = hash.build_hasher();
    name.hash(&mut hasher);
    for (key, value) in attributes {
        if let AttributeValue::Text(text) = value {
            (key, text).hash(&mut hasher);
        }
    }
    hasher.finish()
}

/// Calls the function with each point of a request: the metric, the [`identity`], and the point
/// with all labels and without exemplars. `base` contains the attributes of each resource that are
/// not labels. Returns false if the request is unreadable.
pub(super) fn each_point(
    request: &[u8],
    base: &BaseResource,
    hash: &SeededState,
    mut each: impl FnMut(&MetricDescription<'_>, u64, &NewPoint<'_>),
) -> bool {
    let mut reader = MetricsReader::new(request);
    let (mut number, mut labels) = (0, base.read(&[]));
    loop {
        let point = match reader.next_point() {
            Ok(Some(point)) => point,
            end => return end.is_ok(),
        };
        if number != point.resource.number {
            number = point.resource.number;
            labels = base.read(point.resource.attributes);
        }
        let all = labels.with(point.attributes);
        let attributes = all.as_deref().unwrap_or(point.attributes);
        let again = NewPoint::new(point.time_ns.unwrap_or(0), point.value)
            .attributes(attributes)
            .start_ns(point.start_ns)
            .no_recorded_value(point.no_recorded_value);
        let id = identity(hash, point.metric.name, attributes);
        each(&point.metric, id, &again);
    }
}

/// Returns the value that marks the end of a series with this kind of value; `None` for deltas,
/// which need no end mark.
fn ended(value: &PointValue<'_>) -> Option<PointValue<'static>> {
    Some(match *value {
        PointValue::Sum { temporality: Temporality::Delta, .. }
        | PointValue::Histogram { temporality: Temporality::Delta, .. }
        | PointValue::Exponential { temporality: Temporality::Delta, .. } => return None,
        PointValue::Gauge(_) => PointValue::Gauge(None),
        PointValue::Sum { monotonic, temporality, .. } => {
            PointValue::Sum { value: None, monotonic, temporality }
        }
        PointValue::Histogram { temporality, .. } => {
            PointValue::Histogram { point: HistogramPoint::default(), temporality }
        }
        PointValue::Exponential { temporality, .. } => {
            PointValue::Exponential { point: ExponentialPoint::default(), temporality }
        }
        PointValue::Summary(_) => PointValue::Summary(SummaryPoint::default()),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use quipu_wire::remote::otlp::Number;

    use super::*;
    use crate::coding::Coding;
    use crate::snapshot::Snapshot;

    fn base() -> BaseResource {
        BaseResource::new(&["service.name=all".parse().unwrap(), "a=b".parse().unwrap()])
    }

    /// Creates a snapshot of `count` gauges, and of the same number of delta sums. The series
    /// belong to three programs in turn.
    fn take(count: usize, before: Option<&Snapshot>, hash: &SeededState) -> Snapshot {
        let points = Points::new(Form::Points, 2).by_resource(&Arc::new(base()), hash);
        let mut requests = Requests::new(points, 1, Coding::Gzip, hash);
        let (gauge, temporality) = (PointValue::Gauge(Some(Number::Int(1))), Temporality::Delta);
        let sum = PointValue::Sum { value: Some(Number::Int(1)), monotonic: true, temporality };
        for (name, value) in [("level", gauge), ("hits", sum)] {
            requests.begin_metric(name, "", "");
            for n in 0..count {
                let text = n.to_string();
                let job = ["", "one", "shop/other"][n % 3];
                let attributes =
                    [("job", AttributeValue::Text(job)), ("n", AttributeValue::Text(&text))];
                let id = identity(hash, name, &attributes);
                assert!(requests.begin(id));
                let point = NewPoint::new(1, value).attributes(&attributes);
                requests.push_point(id, &point);
            }
        }
        if let Some(before) = before {
            requests.end_missing(before);
        }
        requests.finish()
    }

    #[test]
    fn requests_are_bounded_and_ends_are_marked_once() {
        let hash = SeededState::default();
        let ends = |snapshot: &Snapshot| {
            let (mut ends, mut all) = (0, 0);
            for body in &snapshot.bodies {
                let request = body.expand().unwrap();
                assert!(each_point(&request, &base(), &hash, |metric, _, point| {
                    let is_end = point.no_recorded_value;
                    assert!(!is_end || (metric.name, point.time_ns) == ("level", 2));
                    ends += usize::from(is_end);
                    all += 1;
                }));
            }
            (ends, all)
        };
        let all = take(2501, None, &hash);
        let points: Vec<u64> = all.bodies.iter().map(|body| body.samples).collect();
        assert_eq!(points, [2000, 2000, 1002]);
        // Deltas are not marked.
        let fewer = take(2000, Some(&all), &hash);
        assert_eq!(ends(&fewer), (501, 4501));
        assert_eq!(ends(&take(2000, Some(&fewer), &hash)), (0, 4000));
        assert_eq!(ends(&take(0, Some(&fewer), &hash)), (2000, 2000));
    }
}
