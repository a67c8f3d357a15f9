//! The sources of a server. A separate thread looks at the paths, because a file system that does
//! not respond must not block a scrape for long. In this case, the last values are shown until they
//! are too old.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use quipu::Registry;
use quipu::collector::Collector;
use quipu::snapshot::Sink;

use super::sources::Sources;
use crate::output::{Error, warn};
use quipu_sources::offload::{OffloadedState, STALE};
use quipu_sources::recorded::{Labels, RecordedFamily, Recorder, ShownMetadata};

/// Sources that a separate thread reads.
#[derive(Debug)]
pub(super) struct BackgroundSources(Mutex<State>);

#[derive(Debug)]
struct State {
    reader: OffloadedState<Reader>,
    /// The last families, and the start time of their reading.
    last: Option<(Instant, Vec<RecordedFamily>)>,
}

/// The part that the thread works on.
struct Reader {
    sources: Sources,
    /// The result of the last reading.
    read: Option<(Instant, Vec<RecordedFamily>)>,
}

/// How long a scrape waits for the thread. This is less than Prometheus waits for a scrape.
const PATIENCE: Duration = Duration::from_secs(5);

impl BackgroundSources {
    /// Creates a registry that shows all sources.
    ///
    /// # Errors
    /// Fails if the system cannot start a thread.
    pub(super) fn registry(sources: Sources) -> Result<Registry, Error> {
        let registry = Registry::new();
        let sources = Self::start(sources)?;
        registry.register_collector(sources).map_err(Error::new)?;
        Ok(registry)
    }

    fn start(sources: Sources) -> Result<Self, Error> {
        let reader = OffloadedState::start("sources", Reader { sources, read: None });
        let reader = reader.map_err(|error| {
            Error::new(format_args!("the system starts no thread: {error}; raise its limits"))
        })?;
        Ok(Self(Mutex::new(State { reader, last: None })))
    }
}

impl Reader {
    fn read(&mut self) {
        let (begun, mut recorder) = (Instant::now(), Recorder::unchecked());
        self.sources.collect(&mut recorder);
        self.read = Some((begun, recorder.heads()));
    }
}

impl std::fmt::Debug for Reader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reader").field("read", &self.read).finish_non_exhaustive()
    }
}

impl State {
    /// Lets the thread read the paths, and waits until `until`. If the thread is busy since an
    /// earlier scrape, this does not wait.
    fn read(&mut self, until: Instant) {
        let is_here = self.reader.wait(Instant::now()).is_some();
        self.take_read();
        self.reader.send(Reader::read);
        self.reader.wait(if is_here { until } else { Instant::now() });
        self.take_read();
        if let Some(is_late) = self.reader.take_back() {
            warn(&if is_late {
                "a file system does not respond: the values that were read last are shown"
            } else {
                "the file system responds again"
            });
        }
    }

    fn take_read(&mut self) {
        if let Some(read) = self.reader.here_mut().and_then(|reader| reader.read.take()) {
            self.last = Some(read);
        }
    }

    /// Passes on the last families, unless they are too old.
    fn pass(&self, now: Instant, sink: &mut dyn Sink) {
        let Some((begun, families)) = &self.last else { return };
        if now.saturating_duration_since(*begun) >= STALE {
            return;
        }
        for family in families {
            let RecordedFamily { name, help, kind, bare, .. } = family;
            let shown = ShownMetadata { name, help, kind: *kind, bare: *bare };
            family.pass(&Labels::new(), shown, 0, sink, |_| false);
        }
    }
}

impl Collector for BackgroundSources {
    fn names(&self) -> Vec<String> {
        Vec::new()
    }

    fn collect(&self, sink: &mut dyn Sink) {
        // A poisoned mutex is fine, because no change of the state can panic half way.
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.read(Instant::now() + PATIENCE);
        state.pass(Instant::now(), sink);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use quipu::exposition::{Encoder, Escaping, Format};

    use super::*;

    #[test]
    fn the_values_that_were_read_last_are_shown_while_the_thread_is_away() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("a.quipu");
        let registry = Registry::open(&path).unwrap();
        let jobs = registry.counter("jobs", "").unwrap();
        jobs.inc();
        let sources =
            BackgroundSources::start(Sources::open(&[path], std::iter::empty()).unwrap()).unwrap();
        let shown = |age: Duration| {
            let mut encoder = Encoder::new(Format::Text, Escaping::default());
            let state = sources.0.lock().unwrap();
            state.pass(Instant::now() + age, &mut encoder);
            let text = String::from_utf8(encoder.buffer().to_vec()).unwrap();
            text.lines().find(|line| line.starts_with("jobs_total ")).map(str::to_owned)
        };
        let read = |wait| sources.0.lock().unwrap().read(Instant::now() + wait);
        let minute = Duration::from_secs(60);
        read(minute);
        assert_eq!(shown(Duration::ZERO).unwrap(), "jobs_total 1");
        // The thread hangs, so the second scrape does not wait.
        let (release, wait) = channel::<()>();
        sources.0.lock().unwrap().reader.send(move |_| wait.recv().unwrap());
        jobs.inc();
        read(Duration::ZERO);
        read(600 * minute);
        assert_eq!(shown(Duration::ZERO).unwrap(), "jobs_total 1");
        assert_eq!(shown(STALE), None);
        release.send(()).unwrap();
        while shown(Duration::ZERO).unwrap() != "jobs_total 2" {
            read(minute);
        }
    }
}
