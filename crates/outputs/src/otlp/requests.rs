//! Points as requests that are ready to be sent, bounded in size.

use std::collections::HashSet;
use std::hash::{BuildHasher, Hash, Hasher};
use std::io::{self, Read, Write};
use std::sync::Arc;

use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use quipu_segment::hash::Seeded;
use quipu_wire::remote::{
    Attribute, Described, ExponentialPoint, HistogramPoint, MetricsReader, MetricsWriter, NewPoint,
    PointValue, SummaryPoint, Temporality, Value,
};

use super::Compression;
use super::resources::{Given, Program, Resources};

/// A request, as it is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Body {
    pub(super) bytes: Vec<u8>,
    pub(super) points: u64,
}

/// The requests of a snapshot.
#[derive(Debug)]
pub(super) struct Snapshot {
    pub(super) bodies: Vec<Body>,
    /// All series, as [`identity`] says, without those that have ended.
    pub(super) series: HashSet<u64, Seeded>,
}

/// Writes requests.
#[derive(Debug)]
pub(super) struct Requests {
    writer: MetricsWriter,
    /// The resources of points; `None` if all labels stay with the points.
    resources: Option<Resources>,
    compression: Compression,
    bodies: Vec<Body>,
    buffer: Vec<u8>,
}

/// The points and the bytes from which a request is full.
const MOST_POINTS: usize = 2000;
const MOST_BYTES: usize = 1 << 20;
/// The most bytes of a request. One that is full has one point more.
const MOST_EXPANDED: u64 = 1 << 30;

impl Body {
    fn new(request: &[u8], points: u64, compression: Compression) -> Self {
        let mut bytes = Vec::new();
        match compression {
            Compression::None => bytes.extend_from_slice(request),
            Compression::Gzip => {
                let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::fast());
                // Writing to memory does not fail.
                let _ = encoder.write_all(request);
                bytes = encoder.finish().unwrap_or_default();
            }
        }
        bytes.shrink_to_fit();
        Self { bytes, points }
    }

    /// The request, as it was before it was compressed.
    pub(super) fn expand(&self, compression: Compression) -> io::Result<Vec<u8>> {
        match compression {
            Compression::None => Ok(self.bytes.clone()),
            Compression::Gzip => {
                let mut bytes = Vec::new();
                let decoder = GzDecoder::new(&self.bytes[..]);
                decoder.take(MOST_EXPANDED).read_to_end(&mut bytes).map(|_| bytes)
            }
        }
    }
}

impl Requests {
    pub(super) fn new(compression: Compression) -> Self {
        Self {
            writer: MetricsWriter::new(),
            resources: None,
            compression,
            bodies: Vec::new(),
            buffer: Vec::new(),
        }
    }

    /// The same, with points of the resources that their labels name, which also have what is
    /// given.
    pub(super) fn by_resource(self, given: &Arc<Given>, hash: &Seeded) -> Self {
        Self { resources: Some(Resources::new(Arc::clone(given), hash)), ..self }
    }

    /// Begins a metric.
    pub(super) fn begin(&mut self, name: &str, help: &str, unit: &str) {
        self.writer.begin(name, help, unit);
    }

    /// Adds a point to the metric.
    pub(super) fn push(&mut self, point: &NewPoint<'_>) {
        match &mut self.resources {
            None => self.writer.push(point),
            Some(resources) => {
                let (program, others) = Program::of(point.attributes);
                resources.enter(&mut self.writer, program);
                let attributes = others.as_deref().unwrap_or(point.attributes);
                self.writer.push(&NewPoint { attributes, ..*point });
            }
        }
        if self.writer.points() >= MOST_POINTS || self.writer.len() >= MOST_BYTES {
            self.finish_request();
        }
    }

    fn finish_request(&mut self) {
        let points = self.writer.points() as u64;
        if points == 0 {
            return;
        }
        self.buffer.clear();
        self.writer.finish(&mut self.buffer);
        if let Some(resources) = &mut self.resources {
            resources.finished();
        }
        self.bodies.push(Body::new(&self.buffer, points, self.compression));
    }

    /// Marks the end of the series that the snapshot before has and that are not among these, if
    /// their values are not sums of what was added since.
    pub(super) fn end_missing(
        &mut self,
        before: &Snapshot,
        series: &HashSet<u64, Seeded>,
        time_ns: u64,
    ) {
        if before.series.iter().all(|one| series.contains(one)) {
            return;
        }
        let hash = before.series.hasher();
        let given = self.resources.as_ref().map(|resources| Arc::clone(resources.given()));
        let (given, compression) = (given.unwrap_or_default(), self.compression);
        each_point(&before.bodies, compression, &given, hash, |metric, id, point| {
            // What is not in the set there was a mark itself.
            if !before.series.contains(&id) || series.contains(&id) {
                return;
            }
            let Some(value) = ended(&point.value) else { return };
            if self.writer.name() != metric.name {
                self.begin(metric.name, metric.description, metric.unit);
            }
            let mark = NewPoint { start_ns: 0, time_ns, no_recorded_value: true, value, ..*point };
            self.push(&mark);
        });
    }

    /// The requests.
    pub(super) fn finish(mut self) -> Vec<Body> {
        self.finish_request();
        self.bodies
    }
}

/// A number for the name of a metric and its attributes, which are in the order of their keys and
/// have texts as values.
pub(super) fn identity(hash: &Seeded, name: &str, attributes: &[Attribute<'_>]) -> u64 {
    let mut hasher = hash.build_hasher();
    name.hash(&mut hasher);
    for (key, value) in attributes {
        if let Value::Text(text) = value {
            (key, text).hash(&mut hasher);
        }
    }
    hasher.finish()
}

/// Calls the function with each point of requests: with its metric, its [`identity`], and the point
/// with all its labels and without its exemplars. `given` is what its resource has beside labels. A
/// request that cannot be read is left out, and counted in what is returned.
pub(super) fn each_point(
    bodies: &[Body],
    compression: Compression,
    given: &Given,
    hash: &Seeded,
    mut each: impl FnMut(&Described<'_>, u64, &NewPoint<'_>),
) -> usize {
    let mut damaged = 0;
    for body in bodies {
        let Ok(request) = body.expand(compression) else {
            damaged += 1;
            continue;
        };
        let mut reader = MetricsReader::new(&request);
        let (mut number, mut labels) = (0, given.read(&[]));
        loop {
            let point = match reader.next_point() {
                Ok(Some(point)) => point,
                Ok(None) => break,
                Err(_) => {
                    damaged += 1;
                    break;
                }
            };
            if number != point.resource.number {
                number = point.resource.number;
                labels = given.read(point.resource.attributes);
            }
            let all = labels.with(point.attributes);
            let attributes = all.as_deref().unwrap_or(point.attributes);
            let again = NewPoint {
                attributes,
                start_ns: point.start_ns,
                time_ns: point.time_ns,
                no_recorded_value: point.no_recorded_value,
                value: point.value,
                exemplars: &[],
            };
            let id = identity(hash, point.metric.name, attributes);
            each(&point.metric, id, &again);
        }
    }
    damaged
}

/// The value of a point that marks the end of a series with this value. What was added since the
/// last point has no end.
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
    use quipu_wire::remote::Number;

    use super::*;

    fn given() -> Given {
        Given::new(&["service.name=all".parse().unwrap(), "a=b".parse().unwrap()])
    }

    /// A snapshot of that many gauges, and the same number of sums that were added, of three
    /// programs in turn.
    fn take(count: usize, before: Option<&Snapshot>, hash: &Seeded) -> Snapshot {
        let requests = Requests::new(Compression::Gzip);
        let mut requests = requests.by_resource(&Arc::new(given()), hash);
        let mut series = HashSet::with_hasher(hash.clone());
        let (gauge, temporality) = (PointValue::Gauge(Some(Number::Int(1))), Temporality::Delta);
        let sum = PointValue::Sum { value: Some(Number::Int(1)), monotonic: true, temporality };
        for (name, value) in [("level", gauge), ("hits", sum)] {
            requests.begin(name, "", "");
            for n in 0..count {
                let text = n.to_string();
                let job = ["", "one", "shop/other"][n % 3];
                let attributes = [("job", Value::Text(job)), ("n", Value::Text(&text))];
                series.insert(identity(hash, name, &attributes));
                requests.push(&NewPoint {
                    attributes: &attributes,
                    start_ns: 0,
                    time_ns: 1,
                    no_recorded_value: false,
                    value,
                    exemplars: &[],
                });
            }
        }
        if let Some(before) = before {
            requests.end_missing(before, &series, 2);
        }
        Snapshot { bodies: requests.finish(), series }
    }

    #[test]
    fn requests_are_bounded_and_ends_are_marked_once() {
        let hash = Seeded::default();
        let ends = |snapshot: &Snapshot| {
            let (mut ends, mut all) = (0, 0);
            let (bodies, given) = (&snapshot.bodies, given());
            each_point(bodies, Compression::Gzip, &given, &hash, |metric, _, point| {
                assert!(!point.no_recorded_value || (metric.name, point.time_ns) == ("level", 2));
                ends += usize::from(point.no_recorded_value);
                all += 1;
            });
            (ends, all)
        };
        let all = take(2501, None, &hash);
        let points: Vec<u64> = all.bodies.iter().map(|body| body.points).collect();
        assert_eq!(points, [2000, 2000, 1002]);
        // What was added has no end.
        let fewer = take(2000, Some(&all), &hash);
        assert_eq!(ends(&fewer), (501, 4501));
        assert_eq!(ends(&take(2000, Some(&fewer), &hash)), (0, 4000));
        assert_eq!(ends(&take(0, Some(&fewer), &hash)), (2000, 2000));
    }
}
