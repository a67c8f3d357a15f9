//! The Graphite input: lines of the plaintext protocol over TCP, UDP and unix sockets, for example
//! `servers.web1.load 0.7 1700000000`.
//!
//! Each value becomes the value of a gauge, like in graphite_exporter. The value with the latest
//! timestamp wins; for equal timestamps, the last one received.

mod settings;

use std::mem;

use quipu::intake::{InputValue, Intake, Metric, Mode, Order, Rejection};
use quipu::{Counter, Metrics as Group, Registry, Scope};
use quipu_wire::remote::graphite::{GraphiteLines, GraphiteSample};
use quipu_wire::remote::statsd::Name;

use super::Shared;
use super::list::{Input, LineInput};
use super::listeners::mapping::{MetricClass, scaled};
use super::listeners::{
    self, Common, Listeners, NameResolver, Protocol, Reader, Report, RunningListeners, put_labels,
    recycle,
};
use super::types;
use quipu_process::time::now_ms;
pub use settings::GraphiteFlags;

const GRAPHITE: Protocol = Protocol { name: "Graphite", flag: "graphite" };

/// The row in the list of inputs.
pub(super) const LINES: LineInput =
    LineInput { protocol: GRAPHITE, options: |options| &options.graphite, start };

/// Starts a thread for each socket.
fn start(
    listeners: Listeners,
    intake: &Intake,
    shared: &'static Shared,
    registry: &Registry,
) -> Result<RunningListeners, listeners::Error> {
    listeners.start(intake, shared, registry, prepare)
}

/// Handles packets without a socket, for fuzzing.
#[doc(hidden)]
pub fn lines(
    intake: &Intake,
    shared: &'static Shared,
    registry: &Registry,
) -> Result<listeners::PacketSink, quipu::Error> {
    listeners::lines(GRAPHITE, intake, shared, registry, prepare)
}

/// Registers the metrics. Returns a function that creates the reader of a listener.
fn prepare(scope: &Scope) -> Result<impl Fn(NameResolver) -> GraphiteReader + use<>, quipu::Error> {
    let GraphiteMetrics { samples } = scope.metrics()?;
    Ok(move |names| GraphiteReader {
        names,
        labels: Vec::new(),
        taken: 0,
        samples: samples.clone(),
    })
}

#[derive(Debug, Group)]
struct GraphiteMetrics {
    /// The number of accepted values.
    samples: Counter,
}

/// Parses the lines of one listener.
struct GraphiteReader {
    names: NameResolver,
    /// A reused buffer for the labels of a line, empty between lines.
    labels: Vec<(&'static str, &'static str)>,
    /// The number of accepted values since the last flush.
    taken: u64,
    samples: Counter,
}

impl Reader for GraphiteReader {
    const INPUT: Input = Input::named("graphite");
    const FRAMES: bool = false;

    fn read(&mut self, common: &mut Common, lines: &[u8], report: &Report<'_>) {
        let now_ms = now_ms();
        for line in GraphiteLines::new(lines) {
            common.counts.lines += 1;
            match line {
                Ok(sample) => self.take(common, &sample, now_ms, report),
                Err(error) => report.refuse(error.reason().as_str(), &error),
            }
        }
    }

    fn flush(&mut self) -> u64 {
        self.samples.inc_by(self.taken);
        mem::take(&mut self.taken)
    }
}

impl GraphiteReader {
    fn take(
        &mut self,
        common: &mut Common,
        sample: &GraphiteSample<'_>,
        now_ms: i64,
        report: &Report<'_>,
    ) {
        let path = sample.path;
        let resolved = self.names.resolve(Name { head: path, tail: "" }, MetricClass::Gauge);
        let Some((metric, treatment)) = common.metric(&path, &resolved, report) else { return };
        let Some(value) = scaled(sample.value, treatment.scale) else {
            let detail = format_args!("{path:.100}: its mapping's `scale` makes it infinite");
            return report.refuse("malformed_value", &detail);
        };
        // Declared before the labels, because they can borrow from it.
        let mut strange = Vec::new();
        let mut labels: Vec<(&str, &str)> = mem::take(&mut self.labels);
        let most = common.intake.limits().labels;
        let tags = put_labels(&resolved, || sample.tags(), most, &mut labels, &mut strange);
        common.counts.tag_errors += tags.faults;
        let time = Some(types::sample_time(sample.timestamp_ms.unwrap_or(now_ms)));
        let metric = Metric { time, order: Order::Latest, ..metric };
        let taken = match tags.are_cut {
            // A mapping can remove labels, but not labels beyond the limit, which were not read.
            true => Err(Rejection::Labels),
            false => {
                let (shared, intake) = (common.shared, &mut common.intake);
                shared.take(intake, metric, &labels, &InputValue::Gauge(value), Mode::Set, None)
            }
        };
        match taken {
            Ok(()) => self.taken += 1,
            Err(refused) => {
                let detail = common.intake.explain(refused);
                report.refuse(refused.reason(), &format_args!("{path:.100}: {detail}"));
            }
        }
        self.labels = recycle(labels);
    }
}
