//! The daemon's own metrics about watched files and scrape targets.

use std::time::{Duration, SystemTime};

use quipu::collector::Collector;
use quipu::snapshot::{FamilyHeader, Kind, Number, Series, Sink};

use super::merged::About;
use super::readings::AgentReadings;
use quipu_sources::recorded::Origin;
use quipu_sources::segment_file::Header;

/// The state of all sources at the last reading.
#[derive(Debug, Default)]
pub(super) struct Status {
    pub(super) sources: Vec<SourceRow>,
    /// The number of conflicts of files, in the order of [`About::ALL`].
    pub(super) conflicts: [usize; About::ALL.len()],
    /// The number of conflicts of targets, in the same order.
    pub(super) target_conflicts: [usize; About::ALL.len()],
    pub(super) omitted: usize,
    /// The numbers of complete and of incomplete scans.
    pub(super) looks: [u64; 2],
    /// The number of failed readings of sources.
    pub(super) failures: u64,
    pub(super) unwatched: usize,
    /// The number of threads whose file systems do not respond.
    pub(super) late: usize,
    pub(super) took: Duration,
}

/// The state of one source.
#[derive(Debug, Clone)]
pub(super) struct SourceRow {
    pub(super) name: String,
    pub(super) path: String,
    pub(super) kind: &'static str,
    pub(super) header: Option<Header>,
    /// Whether any process keeps the source open; `None` if this is unknown.
    pub(super) is_open: Option<bool>,
    pub(super) is_faulty: bool,
    pub(super) is_shown: bool,
    /// Whether the last reading is too old.
    pub(super) is_old: bool,
    /// The time of the last successful reading.
    pub(super) read: Option<SystemTime>,
    pub(super) series: usize,
}

/// A collector of these metrics.
#[derive(Debug)]
pub struct Own {
    readings: AgentReadings,
    has_files: bool,
    has_targets: bool,
}

impl Own {
    /// Creates a collector of the last reading. The flags select the metrics about files, and about
    /// targets.
    pub fn new(readings: AgentReadings, has_files: bool, has_targets: bool) -> Self {
        Self { readings, has_files, has_targets }
    }
}

impl Collector for Own {
    fn names(&self) -> Vec<String> {
        names(self)
    }

    fn collect(&self, sink: &mut dyn Sink) {
        let (status, is_stale) = self.readings.status();
        if self.has_targets {
            let (name, help) = (
                "quipu_scrape_target_conflicts",
                "Families and series of targets that contradict others, by what they differ in.",
            );
            let omitted = self.readings.0.omitted.count(Origin::Target);
            show_conflicts(name, help, status.target_conflicts, omitted, sink);
        }
        if !self.has_files {
            return;
        }
        let count =
            |has: fn(&SourceRow) -> bool| status.sources.iter().filter(|one| has(one)).count();
        let (name, help) =
            ("quipu_segments_watched", "Watched segment files and directories, by state.");
        let mut watched = sink.gauge(name, help, ["state"]);
        STATES.iter().for_each(|(state, has)| _ = watched.sample([state], count(*has)));
        let mut one = |kind, name, help, number: Number| {
            sink.begin(FamilyHeader::new(kind, name, help), []).sample([], number);
        };
        one(
            Kind::Gauge,
            "quipu_segments_left_out",
            "Segment files and directories that are not watched, because there are too many.",
            status.omitted.into(),
        );
        one(
            Kind::Counter,
            "quipu_segments_read_failures",
            "How often a file could not be read.",
            status.failures.into(),
        );
        one(
            Kind::Gauge,
            "quipu_segments_directories_without_events",
            "Watched directories where new files are found within seconds, not at once.",
            status.unwatched.into(),
        );
        one(
            Kind::Gauge,
            "quipu_segments_places_late",
            "Watched places whose previous reading is shown, because a file system does not respond.",
            status.late.into(),
        );
        one(
            Kind::Gauge,
            "quipu_segments_read_seconds",
            "Duration of the last reading of all files.",
            status.took.as_secs_f64().into(),
        );
        let help = "Looks for files in the watched places; an incomplete one removes no file.";
        sink.counter("quipu_segments_looks", help, ["result"])
            .sample(["complete"], status.looks[0])
            .sample(["incomplete"], status.looks[1]);
        let (name, help) = (
            "quipu_segments_conflicts",
            "Families and series of watched files that contradict others, by what they differ in.",
        );
        let omitted = self.readings.0.omitted.count(Origin::File);
        show_conflicts(name, help, status.conflicts, omitted, sink);
        let segments =
            FamilyHeader::new(Kind::Info, "quipu_segments", "A watched segment file or directory.");
        let mut segments = sink.begin(segments, ["segment", "path", "kind", "instance"]);
        for one in &status.sources {
            let instance = one.header.map_or_else(String::new, |header| {
                header.instance.iter().map(|byte| format!("{byte:02x}")).collect()
            });
            segments.sample([&one.name, &one.path, one.kind, &instance], 1);
        }
        let mut each = |name, help, number: &dyn Fn(&SourceRow) -> Option<Number>| {
            let mut family = sink.gauge(name, help, ["segment"]);
            for one in &status.sources {
                number(one).into_iter().for_each(|number| _ = family.sample([&one.name], number));
            }
        };
        each(
            "quipu_segments_up",
            "Whether the metrics of the file are shown: it could be read in the last 5 minutes.",
            &|one| Some((one.is_shown && !one.is_old && !is_stale).into()),
        );
        let seconds = |time: Duration| Number::Float(time.as_secs_f64());
        each(
            "quipu_segments_last_read_time_seconds",
            "Unix time when the file could be read last.",
            &|one| one.read?.duration_since(SystemTime::UNIX_EPOCH).ok().map(seconds),
        );
        each("quipu_segments_open", "Whether a process has the segment file open.", &|one| {
            Some(one.is_open?.into())
        });
        each(
            "quipu_segments_start_time_seconds",
            "Unix time when the segment file was created.",
            &|one| Some(seconds(Duration::from_nanos(one.header?.created))),
        );
        each("quipu_segments_series", "Series that were last read from the file.", &|one| {
            Some(one.series.into())
        });
        each(
            "quipu_segments_series_left_out",
            "Series of the segment file that are omitted, because they kept changing.",
            &|one| Some(one.header?.omitted.into()),
        );
    }
}

/// Adds the number of conflicts by kind, together with the omitted series.
fn show_conflicts(
    name: &str,
    help: &str,
    mut counts: [usize; About::ALL.len()],
    omitted: usize,
    sink: &mut dyn Sink,
) {
    counts[About::Series as usize] = omitted;
    let mut conflicts = sink.gauge(name, help, ["about"]);
    for (about, count) in About::ALL.iter().zip(counts) {
        conflicts.sample([about.name()], count);
    }
}

/// Returns the names of the families that a collector produces.
pub fn names(collector: &dyn Collector) -> Vec<String> {
    struct Names(Vec<String>);

    impl Sink for Names {
        fn family(&mut self, family: &FamilyHeader<'_>) {
            self.0.push(family.name.to_owned());
        }

        fn series(&mut self, _: &FamilyHeader<'_>, _: &Series<'_>) {}
    }

    let mut names = Names(Vec::new());
    collector.collect(&mut names);
    names.0
}

/// A state: its label value, and a test whether a source is in this state.
type State = (&'static str, fn(&SourceRow) -> bool);

/// All states of sources.
const STATES: [State; 4] = [
    ("shown", |one| one.is_shown && !one.is_old),
    ("unreadable", |one| one.is_faulty && !one.is_old),
    ("expired", |one| !one.is_shown && !one.is_faulty && !one.is_old),
    ("old", |one| one.is_old),
];
