//! The daemon's own metrics about the files that it watches, and the targets that it scrapes.

use std::time::{Duration, SystemTime};

use quipu::collector::Collector;
use quipu::snapshot::{Family, Kind, Label, Number, Series, Sink, Texts, Value};

use super::merged::About;
use super::watched::Watched;
use quipu_sources::recorded::Origin;
use quipu_sources::segment_file::Header;

/// What is known of the sources after a reading.
#[derive(Debug, Default)]
pub(super) struct Status {
    pub(super) sources: Vec<Shown>,
    /// Those of files by what they differ in, in the order of [`About::ALL`].
    pub(super) conflicts: [usize; About::ALL.len()],
    /// Those of targets.
    pub(super) target_conflicts: [usize; About::ALL.len()],
    pub(super) left_out: usize,
    /// The number of looks that were complete, and of others.
    pub(super) looks: [u64; 2],
    /// How often a source could not be read.
    pub(super) failures: u64,
    pub(super) unwatched: usize,
    /// The threads for places that are away.
    pub(super) late: usize,
    pub(super) took: Duration,
}

/// What is known of a source.
#[derive(Debug, Clone)]
pub(super) struct Shown {
    pub(super) name: String,
    pub(super) path: String,
    pub(super) kind: &'static str,
    pub(super) header: Option<Header>,
    /// Whether a process has it open; `None` if that is not known.
    pub(super) is_open: Option<bool>,
    pub(super) is_faulty: bool,
    pub(super) is_shown: bool,
    /// Whether the last reading is too old.
    pub(super) is_old: bool,
    /// When it could be read last.
    pub(super) read: Option<SystemTime>,
    pub(super) series: usize,
}

/// A collector of these metrics.
#[derive(Debug)]
pub struct Own(Watched);

impl Own {
    /// Shows what the last reading found.
    pub fn new(watched: Watched) -> Self {
        Self(watched)
    }
}

impl Collector for Own {
    fn names(&self) -> Vec<String> {
        let one = [&INFO, &UP, &READ, &OPEN, &START, &SERIES, &SERIES_LEFT_OUT];
        let all = [&SOURCES, &LEFT_OUT, &LOOKS, &FAILURES, &UNWATCHED, &LATE, &CONFLICTS, &TOOK];
        let names = all.into_iter().chain(one);
        names.map(|family| family.name.to_owned()).collect()
    }

    fn collect(&self, sink: &mut dyn Sink) {
        let (status, is_stale) = self.0.status();
        let whole = |n: usize| Value::Gauge(Number::Unsigned(n as u64));
        let count = |has: fn(&Shown) -> bool| status.sources.iter().filter(|one| has(one)).count();
        sink.family(&SOURCES);
        for (state, has) in STATES {
            put(&SOURCES, &[state], whole(count(has)), sink);
        }
        sink.family(&LEFT_OUT);
        put(&LEFT_OUT, &[], whole(status.left_out), sink);
        let total = |n| Value::Counter { total: Number::Unsigned(n), exemplar: None };
        sink.family(&LOOKS);
        for (result, count) in ["complete", "incomplete"].into_iter().zip(status.looks) {
            put(&LOOKS, &[result], total(count), sink);
        }
        sink.family(&FAILURES);
        put(&FAILURES, &[], total(status.failures), sink);
        sink.family(&UNWATCHED);
        put(&UNWATCHED, &[], whole(status.unwatched), sink);
        sink.family(&LATE);
        put(&LATE, &[], whole(status.late), sink);
        put_conflicts(&CONFLICTS, status.conflicts, self.0.0.left_out.of(Origin::File), sink);
        sink.family(&TOOK);
        put(&TOOK, &[], Value::Gauge(Number::Float(status.took.as_secs_f64())), sink);
        sink.family(&INFO);
        for one in &status.sources {
            let instance = one.header.map_or_else(String::new, |header| {
                header.instance.iter().map(|byte| format!("{byte:02x}")).collect()
            });
            put(&INFO, &[&one.name, &one.path, one.kind, &instance], Value::Info, sink);
        }
        sink.family(&UP);
        for one in &status.sources {
            put(
                &UP,
                &[&one.name],
                whole(usize::from(one.is_shown && !one.is_old && !is_stale)),
                sink,
            );
        }
        sink.family(&READ);
        for one in &status.sources {
            if let Some(time) =
                one.read.and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok())
            {
                let seconds = Value::Gauge(Number::Float(time.as_secs_f64()));
                put(&READ, &[&one.name], seconds, sink);
            }
        }
        sink.family(&OPEN);
        for one in &status.sources {
            if let Some(is_open) = one.is_open {
                put(&OPEN, &[&one.name], whole(usize::from(is_open)), sink);
            }
        }
        sink.family(&START);
        for one in &status.sources {
            if let Some(header) = one.header {
                let seconds = Duration::from_nanos(header.created).as_secs_f64();
                put(&START, &[&one.name], Value::Gauge(Number::Float(seconds)), sink);
            }
        }
        sink.family(&SERIES);
        for one in &status.sources {
            put(&SERIES, &[&one.name], whole(one.series), sink);
        }
        sink.family(&SERIES_LEFT_OUT);
        for one in &status.sources {
            if let Some(header) = one.header {
                let left_out = Value::Gauge(Number::Unsigned(header.left_out));
                put(&SERIES_LEFT_OUT, &[&one.name], left_out, sink);
            }
        }
    }
}

/// A collector of the metrics about targets.
#[derive(Debug)]
pub struct OfTargets(Watched);

impl OfTargets {
    /// Shows what the last reading found.
    pub fn new(watched: Watched) -> Self {
        Self(watched)
    }
}

impl Collector for OfTargets {
    fn names(&self) -> Vec<String> {
        vec![TARGET_CONFLICTS.name.to_owned()]
    }

    fn collect(&self, sink: &mut dyn Sink) {
        let counts = self.0.status().0.target_conflicts;
        let left_out = self.0.0.left_out.of(Origin::Target);
        put_conflicts(&TARGET_CONFLICTS, counts, left_out, sink);
    }
}

/// Passes on what sources contradict others in, with the series that were left out.
fn put_conflicts(
    family: &Family<'_>,
    mut counts: [usize; About::ALL.len()],
    left_out: usize,
    sink: &mut dyn Sink,
) {
    counts[About::Series as usize] = left_out;
    sink.family(family);
    for (about, count) in About::ALL.into_iter().zip(counts) {
        put(family, &[about.name()], Value::Gauge(Number::Unsigned(count as u64)), sink);
    }
}

/// Passes on a series with these values of its labels.
pub fn put(family: &Family<'_>, labels: &[&str], value: Value<'_>, sink: &mut dyn Sink) {
    let mut texts = Vec::new();
    labels.iter().for_each(|label| Texts::push(&mut texts, label));
    let escape_free = !labels.iter().any(|label| label.contains(['"', '\\', '\n']));
    let texts = Texts::new(&texts);
    let (group, overflow, start, exemplar) = (0, false, None, None);
    let series = Series { group, texts, escape_free, overflow, start, value, exemplar };
    sink.series(family, &series);
}

/// A state of sources, and whether one is in it.
type State = (&'static str, fn(&Shown) -> bool);

/// The states of sources.
const STATES: [State; 4] = [
    ("shown", |one| one.is_shown && !one.is_old),
    ("unreadable", |one| one.is_faulty && !one.is_old),
    ("expired", |one| !one.is_shown && !one.is_faulty && !one.is_old),
    ("old", |one| one.is_old),
];

/// A family of gauges.
pub const fn gauge(
    name: &'static str,
    help: &'static str,
    labels: &'static [Label<'static>],
) -> Family<'static> {
    Family { name, help, unit: "", kind: Kind::Gauge, labels, groups: 1, bare: false }
}

const SOURCES: Family<'static> = gauge(
    "quipu_segments_watched",
    "Watched segment files and directories, by state.",
    &[Label { name: "state", values: None }],
);

const LEFT_OUT: Family<'static> = gauge(
    "quipu_segments_left_out",
    "Segment files and directories that are not watched, since there are too many.",
    &[],
);

const LOOKS: Family<'static> = Family {
    kind: Kind::Counter,
    ..gauge(
        "quipu_segments_looks",
        "Looks for files in the watched places; what an incomplete one did not see is not gone.",
        &[Label { name: "result", values: None }],
    )
};

const FAILURES: Family<'static> = Family {
    kind: Kind::Counter,
    ..gauge(
        "quipu_segments_read_failures",
        "How often a file could not be read; one whose contents are at fault is read ever less often.",
        &[],
    )
};

const UNWATCHED: Family<'static> = gauge(
    "quipu_segments_directories_without_events",
    "Watched directories in which new files are found within seconds, not at once.",
    &[],
);

const LATE: Family<'static> = gauge(
    "quipu_segments_places_late",
    "Watched places whose files are shown as they were, since a file system does not respond.",
    &[],
);

const CONFLICTS: Family<'static> = gauge(
    "quipu_segments_conflicts",
    "Families and series of watched files that contradict others, by what they differ in.",
    &[Label { name: "about", values: None }],
);

const TARGET_CONFLICTS: Family<'static> = gauge(
    "quipu_scrape_target_conflicts",
    "Families and series of targets that contradict others, by what they differ in.",
    &[Label { name: "about", values: None }],
);

const TOOK: Family<'static> =
    gauge("quipu_segments_read_seconds", "Time that the last reading of all files took.", &[]);

const INFO: Family<'static> = Family {
    kind: Kind::Info,
    ..gauge(
        "quipu_segments",
        "A watched segment file or directory.",
        &[
            Label { name: "segment", values: None },
            Label { name: "path", values: None },
            Label { name: "kind", values: None },
            Label { name: "instance", values: None },
        ],
    )
};

const OF_SEGMENT: &[Label<'static>] = &[Label { name: "segment", values: None }];

const UP: Family<'static> = gauge(
    "quipu_segments_up",
    "Whether the metrics of the file are shown: it could be read, not too long ago.",
    OF_SEGMENT,
);

const READ: Family<'static> = gauge(
    "quipu_segments_last_read_time_seconds",
    "Unix time at which the file could be read last.",
    OF_SEGMENT,
);

const OPEN: Family<'static> =
    gauge("quipu_segments_open", "Whether a process has the segment file open.", OF_SEGMENT);

const START: Family<'static> = gauge(
    "quipu_segments_start_time_seconds",
    "Unix time at which the segment file was made.",
    OF_SEGMENT,
);

const SERIES: Family<'static> =
    gauge("quipu_segments_series", "Series that were last read from the file.", OF_SEGMENT);

const SERIES_LEFT_OUT: Family<'static> = gauge(
    "quipu_segments_series_left_out",
    "Series of the segment file that changed again and again while they were read, and are left out.",
    OF_SEGMENT,
);
