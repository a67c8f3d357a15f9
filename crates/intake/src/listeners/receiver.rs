//! Passes received lines to the [`Reader`] of their protocol, and counts them. Lines that exceed
//! the rate limit of their sender are refused.

use std::fmt::Display;
use std::mem;

use quipu::intake::{Intake, Metric};
use quipu_wire::remote::Cut;

use super::mapping::Treatment;
use super::metrics::{ListenerCounts, ListenerMetrics};
use super::names::ResolvedName;
use crate::Shared;
use crate::list::Input;
use crate::refusals::Refusals;
use quipu_process::address::Source;

/// Parses the lines of one protocol, and stores their values in the intake. A refused line or value
/// is reported, and does not affect the other lines.
pub(crate) trait Reader: Send + 'static {
    /// The row in the list of inputs.
    const INPUT: Input;
    /// Whether stream clients may write packets with a length prefix instead of lines.
    const FRAMES: bool;

    /// Parses whole lines and stores their values.
    fn read(&mut self, common: &mut Common, lines: &[u8], report: &Report<'_>);

    /// Adds the local counts to the metrics. Local counts need no atomics. Returns the number of
    /// samples accepted since the last call.
    fn flush(&mut self) -> u64;
}

/// The state that the readers of all protocols use.
pub(crate) struct Common {
    pub(crate) intake: Intake,
    pub(crate) shared: &'static Shared,
    /// The counts since the last flush.
    pub(crate) counts: ListenerCounts,
}

/// Receives the data of one listener: checks the rate limit, and passes the lines to the reader.
pub(super) struct Receiver<R> {
    common: Common,
    metrics: ListenerMetrics,
    reader: R,
}

/// A sender of lines. Its `Display` is for log messages.
pub(super) trait Sender: Display {
    /// Sets the sender as the source of the next lines.
    fn name_to(&self, intake: &mut Intake);
}

impl Sender for String {
    fn name_to(&self, intake: &mut Intake) {
        intake.set_source(&Source::named(self));
    }
}

/// Reports refused lines of one sender.
pub(crate) struct Report<'a> {
    refusals: &'static Refusals,
    input: Input,
    source: &'a dyn Display,
}

impl<R: Reader> Receiver<R> {
    pub(super) fn new(
        intake: Intake,
        shared: &'static Shared,
        metrics: ListenerMetrics,
        reader: R,
    ) -> Self {
        Self {
            common: Common { intake, shared, counts: ListenerCounts::default() },
            metrics,
            reader,
        }
    }

    /// Handles the lines of a datagram.
    pub(super) fn packet(&mut self, packet: &[u8], source: &dyn Sender) {
        self.common.counts.packets += 1;
        self.common.counts.bytes += packet.len() as u64;
        self.lines(packet, source);
    }

    /// Reports a datagram that does not fit into the buffer.
    pub(super) fn packet_too_long(&mut self, source: &dyn Sender) {
        self.common.counts.packets += 1;
        let report = self.report(source);
        report.refuse("packet_too_long", &"the datagram has over 65,536 bytes");
    }

    /// Handles a piece of a stream.
    pub(super) fn cut(&mut self, cut: Cut<'_>, source: &dyn Sender) {
        match cut {
            Cut::Lines(lines) => {
                self.common.counts.bytes += lines.len() as u64;
                self.lines(lines, source);
            }
            Cut::TooLong => {
                self.common.counts.lines += 1;
                let report = self.report(source);
                report.refuse("line_too_long", &"the line, or frame, is longer than the limit");
            }
        }
    }

    /// Returns the metrics of the listener.
    pub(super) fn metrics(&self) -> &ListenerMetrics {
        &self.metrics
    }

    /// Adds the local counts to the metrics.
    pub(super) fn flush(&mut self) {
        let counts = mem::take(&mut self.common.counts);
        let samples = self.reader.flush();
        if samples > 0 {
            self.common.shared.refusals.count_taken(R::INPUT, samples);
        }
        self.metrics.add(&counts);
    }

    fn lines(&mut self, input: &[u8], source: &dyn Sender) {
        source.name_to(&mut self.common.intake);
        let report = self.report(source);
        let allowance = self.common.shared.rate_limits.allowance(source);
        let before = self.common.counts.lines;
        if let Some(Err(excess)) = allowance.map(|allowance| allowance.check()) {
            for _ in input.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
                self.common.counts.lines += 1;
                report.refuse(excess.reason, &excess);
            }
            return;
        }
        self.reader.read(&mut self.common, input, &report);
        if let Some(allowance) = allowance {
            allowance.charge(self.common.counts.lines - before);
        }
    }

    fn report<'a>(&self, source: &'a dyn Sender) -> Report<'a> {
        Report { refusals: &self.common.shared.refusals, input: R::INPUT, source }
    }
}

impl Common {
    /// Returns the metric of a line with this name, and its properties. Returns `None` if a rule
    /// drops the line (which is counted) or produces an empty name (which is reported).
    #[inline]
    pub(crate) fn metric<'a>(
        &mut self,
        name: &dyn Display,
        resolved: &ResolvedName<'a>,
        report: &Report<'_>,
    ) -> Option<(Metric<'a>, &'a Treatment)> {
        let Some(treatment) = resolved.treatment else {
            self.counts.dropped += 1;
            return None;
        };
        if resolved.name.is_empty() {
            let detail = format_args!("{name:.100}: its mapping makes an empty name");
            report.refuse("empty_metric_name", &detail);
            return None;
        }
        let expiry = treatment.expiry.or(self.shared.options.common.expiry);
        let (help, shape) = (&treatment.help, Some(&treatment.shape));
        Some((Metric { help, expiry, shape, ..Metric::new(resolved.name) }, treatment))
    }
}

impl Report<'_> {
    /// Reports a refusal. `reason` is the value of a label, and `detail` is, for example, the
    /// beginning of the line.
    #[cold]
    pub(crate) fn refuse(&self, reason: &'static str, detail: &dyn Display) {
        self.refusals.refuse(self.input, &self.source.to_string(), reason, detail);
    }
}
