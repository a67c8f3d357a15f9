//! The daemon's own metrics of listeners. They exist only if there is a listener of their protocol.

use quipu::{Counter, CounterFamily, IntGauge, IntGaugeFamily, Metrics as Group};

/// The metrics of all listeners of a protocol.
#[derive(Debug, Group)]
pub(super) struct ListenerFamilies {
    /// Datagrams that were received.
    #[metric(labels = ["listener"])]
    packets: CounterFamily<[&'static str; 1]>,
    /// Bytes that were received.
    #[metric(labels = ["listener"])]
    received_bytes: CounterFamily<[&'static str; 1]>,
    /// Lines that were received, and further samples of lines with several samples.
    #[metric(labels = ["listener"])]
    lines: CounterFamily<[&'static str; 1]>,
    /// Datagrams that the kernel dropped because the receive buffer was full.
    #[metric(labels = ["listener"])]
    kernel_drops: CounterFamily<[&'static str; 1]>,
    /// Size of the receive buffer, as the kernel counts it.
    #[metric(labels = ["listener"])]
    receive_buffer_bytes: IntGaugeFamily<[&'static str; 1]>,
    /// Connections that are open.
    #[metric(labels = ["listener"])]
    connections_open: IntGaugeFamily<[&'static str; 1]>,
    /// Connections that were accepted.
    #[metric(labels = ["listener"])]
    connections_accepted: CounterFamily<[&'static str; 1]>,
    /// Connections that were closed to make room for others.
    #[metric(labels = ["listener"])]
    connections_gave_way: CounterFamily<[&'static str; 1]>,
    /// Connections that were closed at once because too many were open.
    #[metric(labels = ["listener"])]
    connections_refused: CounterFamily<[&'static str; 1]>,
    /// Tags without a name or a value, which were omitted.
    tag_errors: Counter,
    /// Samples that a rule of the mapping dropped.
    samples_dropped: Counter,
}

/// The metrics of one listener.
#[derive(Debug)]
pub(super) struct ListenerMetrics {
    packets: Counter,
    bytes: Counter,
    lines: Counter,
    pub(super) kernel_drops: Counter,
    pub(super) receive_buffer: IntGauge,
    pub(super) open: IntGauge,
    pub(super) accepted: Counter,
    pub(super) gave_way: Counter,
    pub(super) refused: Counter,
    tag_errors: Counter,
    dropped: Counter,
}

/// The counts that are not added to the metrics yet.
#[derive(Debug, Default)]
pub(crate) struct ListenerCounts {
    pub(super) packets: u64,
    pub(super) bytes: u64,
    pub(crate) lines: u64,
    pub(crate) tag_errors: u64,
    pub(crate) dropped: u64,
}

impl ListenerFamilies {
    /// Returns the metrics of a listener.
    pub(super) fn listener(&self, address: &str) -> ListenerMetrics {
        let labels = &[address];
        ListenerMetrics {
            packets: self.packets.bind(labels),
            bytes: self.received_bytes.bind(labels),
            lines: self.lines.bind(labels),
            kernel_drops: self.kernel_drops.bind(labels),
            receive_buffer: self.receive_buffer_bytes.bind(labels),
            open: self.connections_open.bind(labels),
            accepted: self.connections_accepted.bind(labels),
            gave_way: self.connections_gave_way.bind(labels),
            refused: self.connections_refused.bind(labels),
            tag_errors: self.tag_errors.clone(),
            dropped: self.samples_dropped.clone(),
        }
    }
}

impl ListenerMetrics {
    /// Adds counts to the metrics.
    pub(super) fn add(&self, counts: &ListenerCounts) {
        let all = [
            (&self.packets, counts.packets),
            (&self.bytes, counts.bytes),
            (&self.lines, counts.lines),
            (&self.tag_errors, counts.tag_errors),
            (&self.dropped, counts.dropped),
        ];
        for (counter, count) in all.into_iter().filter(|(_, count)| *count > 0) {
            counter.inc_by(count);
        }
    }
}
