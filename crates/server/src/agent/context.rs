//! Labels of segments from the context that their processes publish in memory, by OpenTelemetry's
//! proposal 4719: which process has a segment open, and what it says of itself.
//!
//! Of several processes, the first one that publishes a context gives the labels, for as long as it
//! lives. What was read of it stays until another one publishes a context. A process whose context
//! was read is asked at each reading whether that has changed. For the others, `/proc` is looked
//! through ever less often, and never for more than a tenth of the time.

mod memory;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::{Duration, Instant};

use quipu_wire::remote::read_process_context;
use tracing::debug;

use super::pattern::has_meaning;
use super::recorded::Labels;
use crate::inputs::otlp;
use crate::procfs;
use crate::segment_file::FileId;
use memory::{Fault, Place, Process};

/// The names of the states that a segment may be in: its labels were read; its processes publish
/// none, or it never had one; those that they publish cannot be read; none of its processes could
/// be found.
pub(super) const STATES: [&str; 4] = ["read", "none", "failed", "unseen"];

/// A state, by its number in [`STATES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Read,
    None,
    Failed,
    Unseen,
}

/// The contexts of the processes that have segments open.
#[derive(Debug)]
pub(super) struct Contexts {
    reading: Reading,
    segments: HashMap<FileId, Segment>,
    /// When processes are looked for again, at the earliest.
    next: Instant,
}

/// How contexts are read.
#[derive(Debug)]
struct Reading {
    /// How attributes become labels.
    options: otlp::Options,
    /// The device of files without a path.
    memfds: Option<String>,
}

/// What is known of a segment.
#[derive(Debug)]
struct Segment {
    labels: Labels,
    state: State,
    /// Where its process has the context that was read last.
    place: Option<Place>,
    is_open: bool,
    /// How often its processes were looked for in vain, and when that is due again.
    looks: u32,
    due: Instant,
}

/// A context that was found, and its labels; `None` if they cannot be read.
type Found = (Place, Option<Labels>);

/// The longest time until a process is looked for again that had no context.
const MAX_WAIT: Duration = Duration::from_secs(60);
/// The least time between two looks, in multiples of the time that one takes.
const SHARE: u32 = 10;
/// The most open files that a look goes through, and the most of one process.
const MAX_FILES: usize = 200_000;
const MAX_FILES_OF_ONE: usize = 4096;
/// The most processes of a segment whose contexts are looked for.
const MAX_PROCESSES: usize = 64;

static NO_LABELS: Labels = Labels::new();

/// The labels of a path, and those of a context under names that are free.
pub(super) fn joined(given: &Labels, context: &Labels) -> Labels {
    let mut labels = given.clone();
    for (name, value) in context {
        let mut name = name.clone();
        while labels.iter().any(|(other, _)| *other == name) {
            name.insert_str(0, "exported_");
        }
        labels.push((name, value.clone()));
    }
    labels
}

impl Contexts {
    pub(super) fn new(options: otlp::Options) -> Self {
        let reading = Reading { options, memfds: memory::device_of_memfds() };
        Self { reading, segments: HashMap::new(), next: Instant::now() }
    }

    /// The labels that a segment has of its process.
    pub(super) fn labels(&self, segment: FileId) -> &Labels {
        self.segments.get(&segment).map_or(&NO_LABELS, |segment| &segment.labels)
    }

    /// The number of segments in each state.
    pub(super) fn counts(&self) -> [usize; STATES.len()] {
        let mut counts = [0; STATES.len()];
        self.segments.values().for_each(|segment| counts[segment.state as usize] += 1);
        counts
    }

    /// Brings what is known of all segments up to date. They come with whether a process has them
    /// open.
    pub(super) fn refresh(&mut self, segments: HashMap<FileId, bool>) {
        let now = Instant::now();
        self.segments.retain(|id, _| segments.contains_key(id));
        for (id, is_open) in segments {
            let segment = self.segments.entry(id).or_insert_with(|| Segment::new(now));
            segment.note_open(is_open, now);
            segment.check(&self.reading, now);
        }
        let due = self.segments.iter().filter(|(_, segment)| segment.is_due(now));
        let due: HashSet<FileId> = due.map(|(id, _)| *id).collect();
        if !due.is_empty() && now >= self.next {
            self.look(&due, now);
            let ended = Instant::now();
            self.next = ended + (ended - now).saturating_mul(SHARE).min(MAX_WAIT);
        }
    }

    /// Looks for the processes that have these segments open, and for their contexts.
    fn look(&mut self, due: &HashSet<FileId>, now: Instant) {
        let mut processes = processes_of(due);
        // A process may have several segments open.
        let mut read = HashMap::new();
        for id in due {
            let Some(segment) = self.segments.get_mut(id) else { continue };
            let mut state = State::Unseen;
            for process in processes.remove(id).unwrap_or_default() {
                let found = read.entry(process).or_insert_with(|| self.reading.read(process));
                match found {
                    Ok(Some(found)) => {
                        segment.take(found.clone());
                        state = State::Read;
                        break;
                    }
                    Ok(None) if state == State::Unseen => state = State::None,
                    Ok(None) => {}
                    Err(_) => state = State::Failed,
                }
            }
            if state != State::Read {
                segment.missed(state, now);
            }
        }
    }
}

impl Reading {
    fn read(&self, process: Process) -> Result<Option<Found>, Fault> {
        let read = process.read(self.memfds.as_deref()).inspect_err(|fault| {
            debug!(pid = process.pid(), %fault, "the context of a process cannot be read");
        });
        Ok(read?.map(|(place, payload)| {
            let labels = self.labels(&payload).inspect_err(|what| {
                debug!(pid = process.pid(), %what, "the context of a process has no labels");
            });
            (place, labels.ok())
        }))
    }

    fn labels(&self, payload: &[u8]) -> Result<Labels, String> {
        let attributes = read_process_context(payload).map_err(|error| error.to_string())?;
        let mut labels = otlp::resource_labels(&self.options, &attributes)?;
        labels.retain(|(name, _)| !has_meaning(name));
        Ok(labels)
    }
}

impl Segment {
    fn new(now: Instant) -> Self {
        let (labels, state) = (Labels::new(), State::None);
        Self { labels, state, place: None, is_open: false, looks: 0, due: now }
    }

    /// Notes whether a process has it open. A new one is looked for at once.
    fn note_open(&mut self, is_open: bool, now: Instant) {
        if is_open && !self.is_open {
            (self.looks, self.due) = (0, now);
        }
        self.is_open = is_open;
    }

    /// Whether its processes are to be looked for.
    fn is_due(&self, now: Instant) -> bool {
        self.is_open && self.place.is_none() && self.due <= now
    }

    /// Looks at the context that was read last. If nothing is there any more, the labels stay, and
    /// another process is looked for.
    fn check(&mut self, reading: &Reading, now: Instant) {
        let Some(place) = self.place.as_ref().filter(|place| !place.is_current()) else { return };
        match reading.read(place.process()) {
            Ok(Some(found)) => self.take(found),
            // Later, then.
            Err(Fault::Changing) => {}
            Ok(None) | Err(_) => (self.place, self.looks, self.due) = (None, 0, now),
        }
    }

    /// Takes over a context that was read.
    fn take(&mut self, (place, labels): Found) {
        self.place = Some(place);
        self.state = if labels.is_some() { State::Read } else { State::Failed };
        if let Some(labels) = labels {
            self.labels = labels;
        }
    }

    /// Notes that no process has a context that can be read.
    fn missed(&mut self, state: State, now: Instant) {
        // What was read stays.
        if self.state != State::Read || state == State::Failed {
            self.state = state;
        }
        let wait = Duration::from_secs((1 << self.looks.min(16)) >> 1);
        self.due = now + wait.min(MAX_WAIT);
        self.looks += 1;
    }
}

/// The processes that have these files open for writing: those that began earlier come first.
fn processes_of(wanted: &HashSet<FileId>) -> HashMap<FileId, BTreeSet<Process>> {
    let own = std::process::id();
    let mut found = HashMap::<FileId, BTreeSet<Process>>::new();
    let mut left = MAX_FILES;
    for pid in procfs::processes().filter(|pid| *pid != own) {
        for file in procfs::open_files(pid).take(MAX_FILES_OF_ONE.min(left)) {
            left -= 1;
            let Some(id) = file.id().filter(|id| wanted.contains(id)) else { continue };
            // Others read it, as this process does.
            if let Some(process) = file.is_writable().then(|| Process::of(pid)).flatten() {
                let processes = found.entry(id).or_default();
                processes.insert(process);
                if processes.len() > MAX_PROCESSES {
                    processes.pop_last();
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Labels {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn labels_of_paths_come_before_those_of_contexts() {
        let given = labels(&[("segment", "a"), ("instance", "1")]);
        let context = labels(&[("job", "cart"), ("instance", "i-1"), ("exported_instance", "x")]);
        let expected = labels(&[
            ("segment", "a"),
            ("instance", "1"),
            ("job", "cart"),
            ("exported_instance", "i-1"),
            ("exported_exported_instance", "x"),
        ]);
        assert_eq!(joined(&given, &context), expected);
    }

    #[test]
    fn processes_without_a_context_are_looked_for_ever_less_often() {
        let start = Instant::now();
        let mut segment = Segment::new(start);
        assert!(!segment.is_due(start));
        segment.note_open(true, start);
        // A reading each second, for an hour.
        let mut looks = 0;
        for second in 0..3600 {
            let now = start + Duration::from_secs(second);
            segment.note_open(true, now);
            if segment.is_due(now) {
                segment.missed(State::None, now);
                looks += 1;
            }
        }
        assert!((60..70).contains(&looks), "{looks}");
        let now = start + Duration::from_secs(3600);
        segment.note_open(false, now);
        segment.note_open(true, now);
        assert!(segment.is_due(now));
        (0..100).for_each(|_| segment.missed(State::Unseen, now));
        assert!(segment.is_due(now + MAX_WAIT) && segment.state == State::Unseen);
    }

    #[test]
    fn labels_with_a_meaning_in_metrics_are_left_out() {
        let options = otlp::Options {
            enabled: false,
            translation: otlp::Translation::NoTranslation,
            promote: ["le", "__name__", "a.b"].map(String::from).into(),
        };
        let reading = Reading { options, memfds: None };
        let field = |number: u8, body: &[u8]| {
            [&[number << 3 | 2, u8::try_from(body.len()).unwrap()], body].concat()
        };
        let attribute = |key: &str| {
            let value = field(2, &field(1, b"x"));
            field(1, &[field(1, key.as_bytes()), value].concat())
        };
        let payload = ["le", "__name__", "a.b", "service.name"].map(attribute).concat();
        assert_eq!(reading.labels(&payload), Ok(labels(&[("job", "x"), ("a.b", "x")])));
        assert!(reading.labels(b"\x0a\x09").is_err());
    }
}
