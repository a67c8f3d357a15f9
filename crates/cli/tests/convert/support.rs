//! Runs the binary on given bytes, and builds these bytes.

use std::io::Write;
use std::process::{Command, Stdio};
use std::thread;

use quipu_arena::Arena;
use quipu_wire::{
    AnyFormat, BatchTimer, Counter, Framing, Gauge, Kind, Message, MetricType, MetricUnion,
};

/// The exit code and the output of a run.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: Option<i32>,
    pub(crate) out: Vec<u8>,
    pub(crate) err: String,
}

impl Run {
    /// Returns the output of a run, which must have succeeded.
    #[track_caller]
    pub(crate) fn success(self) -> Vec<u8> {
        assert_eq!((self.code, &*self.err), (Some(0), ""), "{}", self.text());
        self.out
    }

    /// Expects the run to fail with a message that contains these parts.
    #[track_caller]
    pub(crate) fn expect_error(&self, parts: &[&str]) {
        assert_eq!(self.code, Some(1), "{self:?}");
        assert!(self.err.starts_with("quipu: ") && self.err.ends_with('\n'), "{self:?}");
        assert_eq!(self.err.lines().count(), 1, "{self:?}");
        for part in parts {
            assert!(self.err.contains(part), "no {part:?} in {:?}", self.err);
        }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.out).into()
    }
}

pub(crate) fn quipu(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_quipu"));
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs the binary with `input` as its standard input.
pub(crate) fn run(arguments: &[&str], input: &[u8]) -> Run {
    let mut child = quipu(arguments).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let output = thread::scope(|scope| {
        scope.spawn(move || {
            // Ignore the error, because a run that fails early can leave input unread.
            let _ = stdin.write_all(input);
        });
        child.wait_with_output().unwrap()
    });
    let err = String::from_utf8(output.stderr).unwrap();
    Run { code: output.status.code(), out: output.stdout, err }
}

/// Returns messages of a kind that every format can carry.
pub(crate) fn messages(kind: Kind) -> Vec<Message<'static>> {
    const IDS: [&[u8]; 4] = [b"name=bulbasaur,trainer=ash,type=grass", b"", b"\xff\x00\t\n", b"a"];
    const TIMERS: [&[f64]; 4] =
        [&[1.0, 2.0, 3.0, 4.0, 5.0], &[], &[0.1, -1e300, 5e-324], &[f64::MAX]];
    const COUNTERS: [i64; 4] = [100, 0, i64::MIN, i64::MAX];
    const GAUGES: [f64; 4] = [100.0, 0.0, -0.3, 1e-300];
    (0..4)
        .map(|i| match kind {
            Kind::Counter => Counter { id: IDS[i], value: COUNTERS[i] }.into(),
            Kind::BatchTimer => BatchTimer { id: IDS[i], values: TIMERS[i] }.into(),
            Kind::Gauge => Gauge { id: IDS[i], value: GAUGES[i] }.into(),
            Kind::MetricUnion => MetricUnion {
                metric_type: MetricType(i as i8),
                id: IDS[i],
                counter: COUNTERS[i],
                timer: TIMERS[i],
                gauge: GAUGES[i],
            }
            .into(),
        })
        .collect()
}

pub(crate) fn format(name: &str) -> AnyFormat {
    name.parse().unwrap()
}

/// Encodes the messages as a stream.
pub(crate) fn encoded(format: AnyFormat, framing: Framing, messages: &[Message<'_>]) -> Vec<u8> {
    let mut encoder = format.encoder(framing);
    let mut out = Vec::new();
    for message in messages {
        encoder.append(message, &mut out).unwrap();
    }
    encoder.flush(&mut out);
    out
}

/// Decodes the messages of a stream, one per line.
pub(crate) fn lines(format: AnyFormat, kind: Kind, framing: Framing, stream: &[u8]) -> String {
    let mut decoder = format.decoder(kind, framing);
    decoder.push(stream);
    decoder.end();
    let mut out = Vec::new();
    let mut arena = Arena::new();
    loop {
        let mut guard = arena.guard();
        match decoder.next(&guard.scope()).unwrap() {
            Some(message) => self::format("tsv").encode(&message, &mut out).unwrap(),
            None => return String::from_utf8(out).unwrap(),
        }
    }
}

pub(crate) fn tsv(messages: &[Message<'_>]) -> String {
    String::from_utf8(encoded(format("tsv"), Framing::Own, messages)).unwrap()
}

/// Returns the name of a kind on the command line.
pub(crate) fn argument(kind: Kind) -> &'static str {
    match kind {
        Kind::Counter => "counter",
        Kind::BatchTimer => "batch-timer",
        Kind::Gauge => "gauge",
        Kind::MetricUnion => "union",
    }
}

/// Returns the formats that carry all four messages exactly. StatsD lines are excluded, because
/// they only support metrics and few ids.
#[allow(dead_code, reason = "the comparison's tests take all formats")]
pub(crate) fn exact() -> impl Iterator<Item = AnyFormat> {
    AnyFormat::all().filter(|format| !["statsd", "dogstatsd"].contains(&format.as_str()))
}
