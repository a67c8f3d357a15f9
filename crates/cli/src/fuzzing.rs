//! A daemon without sockets, threads and files, for the fuzz target `exposition`. The target calls
//! functions to send input, and a scrape returns the page. All other code is the daemon's own.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use hyper::body::Bytes;
use hyper::header::CONTENT_TYPE;
use quipu::Registry;
use quipu::exposition::{Escaping, Format};
use quipu::intake::Intake;
use quipu_segment::Segment;
use quipu_window::{BucketedWindow, KeyedWindows};

use crate::config::{Flags, Settings};
use crate::exposing::ScrapeSteps;
use crate::metrics::{Metrics, OwnMetrics};
use crate::routes::Routes;
use crate::state::State;
use crate::top::Top;
use quipu_agent::{Filter, MergedFamilies, read_segment, targets};
use quipu_commands::count::{KEYS, REQUESTS};
use quipu_http::{Handler, Reply, Request, Response, Steps};
use quipu_intake::refusals::Refusals;
use quipu_intake::{Inputs, Shared, graphite, statsd};
use quipu_sources::recorded::{Labels, SourceSnapshot};
use quipu_translate::otlp::Translation;

/// A function that handles packets of lines.
type Lines = Box<dyn FnMut(&[u8])>;

/// A daemon with an empty state. Dropping it frees all of its memory.
pub struct Daemon {
    parts: Option<Parts>,
    leaked: LeakedValues,
}

/// The parts that refer to [`LeakedValues`].
struct Parts {
    statsd: Lines,
    graphite: Lines,
    routes: Routes,
    inputs: Inputs,
    files: Vec<Arc<SourceSnapshot>>,
    targets: Vec<Arc<SourceSnapshot>>,
    merged: Option<Arc<MergedFamilies>>,
}

/// The values that would live as long as the process in a real daemon.
struct LeakedValues {
    state: *mut State,
    metrics: *mut Metrics,
    shared: *mut Shared,
    top: *mut Top,
}

/// The settings of a daemon.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Whether the daemon also shows its own metrics.
    pub own: bool,
    /// Whether OTLP translates names.
    pub translate: bool,
}

/// The settings without and with translation of OTLP names.
static SETTINGS: LazyLock<[Settings; 2]> = LazyLock::new(|| {
    use Translation::{NoTranslation, UnderscoreEscapingWithSuffixes};
    [NoTranslation, UnderscoreEscapingWithSuffixes].map(|translation| {
        let mut flags = Flags::default();
        flags.inputs.otlp.otlp_translation = Some(translation);
        Settings::resolve(flags).expect("the defaults are valid")
    })
});

impl Daemon {
    /// Creates a daemon with these settings.
    ///
    /// # Errors
    /// Fails if the system provides no memory.
    pub fn new(options: Options) -> Result<Self, Box<dyn std::error::Error>> {
        let settings = &SETTINGS[usize::from(options.translate)];
        let segment = Segment::private(STATE_BYTES)?;
        let registry = Registry::from_segment(segment.clone());
        let (minute, second) = (Duration::from_secs(60), Duration::from_secs(1));
        let state = Box::into_raw(Box::new(State {
            requests: BucketedWindow::options(minute, second)
                .tickets()
                .build_in(&segment, REQUESTS)?,
            keys: KeyedWindows::options(minute, second, 1).build_in(&segment, KEYS)?,
            intake: Intake::new(&registry, settings.intake.clone())?,
            segment,
            taken: AtomicU64::new(0),
        }));
        // SAFETY: `drop` drops this box after all values that refer to the box.
        let state_ref: &'static State = unsafe { &*state };
        let metrics = Box::into_raw(Box::new(Metrics::new(state_ref)?));
        // SAFETY: as above.
        let metrics_ref: &'static Metrics = unsafe { &*metrics };
        if options.own {
            registry.register_collector(OwnMetrics::new(metrics_ref.registry()))?;
        }
        let refusals = Refusals::new(metrics_ref.registry(), &state_ref.taken)?;
        let (access, flags) = (settings.http.access.clone(), settings.flags.shown());
        let shared = Shared::new(settings.inputs.clone(), refusals, None, access, flags);
        shared.push.restore_now(&mut state_ref.intake.clone());
        let shared = Box::into_raw(Box::new(shared));
        // SAFETY: as above.
        let shared_ref: &'static Shared = unsafe { &*shared };
        let top = Box::into_raw(Box::<Top>::default());
        // SAFETY: as above.
        let top_ref: &'static Top = unsafe { &*top };
        let inputs = Inputs::new(state_ref.intake.clone(), shared_ref);
        let parts = Parts {
            statsd: statsd::lines(&state_ref.intake, shared_ref, metrics_ref.registry())?,
            graphite: graphite::lines(&state_ref.intake, shared_ref, metrics_ref.registry())?,
            routes: Routes::new(state_ref, metrics_ref, top_ref, inputs.clone(), None),
            inputs,
            files: Vec::new(),
            targets: Vec::new(),
            merged: None,
        };
        Ok(Self { parts: Some(parts), leaked: LeakedValues { state, metrics, shared, top } })
    }

    /// Handles a packet of StatsD.
    pub fn statsd(&mut self, packet: &[u8]) {
        (self.parts().statsd)(packet);
    }

    /// Handles a packet of Graphite.
    pub fn graphite(&mut self, packet: &[u8]) {
        (self.parts().graphite)(packet);
    }

    /// Handles a request with a body of this content type. Returns the status and the body of the
    /// response.
    ///
    /// # Errors
    /// Fails for a method or target that HTTP does not allow.
    pub fn request(
        &mut self,
        method: &str,
        target: &str,
        content_type: &str,
        body: Vec<u8>,
    ) -> Result<(u16, Vec<u8>), hyper::http::Error> {
        let head = hyper::Request::builder().method(method).uri(target);
        let (head, ()) = head.header(CONTENT_TYPE, content_type).body(())?.into_parts();
        let client = Some(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let request = Request::new(head, Bytes::from(body), Instant::now(), client);
        let response = match self.parts().routes.handle(&request) {
            Reply::Now(response) => response,
            Reply::Steps(mut steps) => finish(&mut *steps),
        };
        Ok((response.status().as_u16(), response.into_body().to_vec()))
    }

    /// Parses an exposition like a scrape of another target. Returns whether its series are shown.
    pub fn target(&mut self, body: &[u8], content_type: &str) -> bool {
        let targets = &mut self.parts().targets;
        let seen = targets::read_exposition(targets.len(), body, content_type);
        let is_shown = seen.is_some();
        targets.extend(seen);
        is_shown
    }

    /// Reads another segment like the agent, with these additional labels. Returns whether its
    /// series are shown.
    pub fn segment(&mut self, path: &Path, labels: &[(String, String)]) -> bool {
        let files = &mut self.parts().files;
        let name = format!("segment-{}", files.len());
        let mut all: Labels = vec![("segment".to_owned(), name.clone())];
        all.extend(labels.iter().filter(|(name, _)| name != "segment").cloned());
        let seen = read_segment(path, name, PathBuf::from("/run"), all);
        let is_shown = seen.is_some();
        files.extend(seen);
        is_shown
    }

    /// Merges the segments and targets with the families of the daemon, like a scrape with a new
    /// reading.
    pub fn merge(&mut self) {
        let parts = self.parts();
        let mut sources = targets::with_reports(&parts.targets);
        sources.extend(parts.files.iter().cloned());
        let merged = MergedFamilies::merge(parts.inputs.intake().registry(), sources);
        parts.merged = Some(Arc::new(merged));
    }

    /// Scrapes the daemon. Returns the content type and the page. With the number of a segment, the
    /// page contains only this segment.
    pub fn scrape(
        &mut self,
        format: Format,
        escaping: Escaping,
        segment: Option<usize>,
    ) -> (String, Vec<u8>) {
        if self.parts().merged.is_none() {
            self.merge();
        }
        let parts = self.parts();
        let source = segment.map(|number| format!("segment-{number}"));
        let filter = Filter { source, ..Filter::default() };
        let merged = parts.merged.clone().unwrap_or_default();
        let mut exposing = ScrapeSteps::over(&parts.inputs, format, escaping, filter, merged);
        let response = finish(&mut exposing);
        let content_type = response.headers()[CONTENT_TYPE].to_str().unwrap_or_default().to_owned();
        (content_type, response.into_body().to_vec())
    }

    fn parts(&mut self) -> &mut Parts {
        self.parts.as_mut().expect("only `drop` takes them")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.parts = None;
        let LeakedValues { state, metrics, shared, top } = self.leaked;
        // SAFETY: the pointers are from `Box::into_raw`. Every value with a reference to them was
        // in `parts`, or is in one of these boxes and does not use its reference when it is
        // dropped.
        unsafe {
            drop(Box::from_raw(shared));
            drop(Box::from_raw(top));
            drop(Box::from_raw(metrics));
            drop(Box::from_raw(state));
        }
    }
}

/// Runs all steps, and returns the final response.
fn finish(steps: &mut dyn Steps) -> Response {
    for _ in 0..MAX_STEPS {
        if let Some(response) = steps.step() {
            return response;
        }
    }
    panic!("a response does not end");
}

/// The limit on memory for received metrics in bytes.
const STATE_BYTES: u64 = 64 << 20;
/// The maximum number of steps, more than any response needs.
const MAX_STEPS: u32 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_shows_all_inputs() {
        let mut daemon = Daemon::new(Options { own: true, translate: true }).unwrap();
        daemon.statsd(b"a:1|c");
        daemon.graphite(b"b 2 N\n");
        let import = "/api/v1/import/prometheus";
        let (status, _) = daemon.request("POST", import, "text/plain", b"c 3\n".into()).unwrap();
        assert_eq!(status, 204);
        let (status, _) =
            daemon.request("PUT", "/metrics/job/x", "text/plain", b"d 4\n".into()).unwrap();
        assert_eq!(status, 200);
        assert!(daemon.target(b"e 5\n", "text/plain"));
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("a.quipu");
        Registry::open(&path).unwrap().gauge("f", "").unwrap().set(6.0);
        assert!(daemon.segment(&path, &[]));
        let (content_type, page) = daemon.scrape(Format::Text, Escaping::Underscores, None);
        assert!(content_type.starts_with("text/plain"));
        let page = String::from_utf8(page).unwrap();
        for line in [
            "\na 1\n",
            "\nb 2\n",
            "\nc 3\n",
            "\nd{instance=\"\",job=\"x\"} 4\n",
            "\ne{job=\"scrape\",instance=\"target-0\"} 5\n",
            "\nf{segment=\"segment-0\"} 6\n",
            "\nquipu_events_total 0\n",
        ] {
            assert!(page.contains(line), "{line}: {page}");
        }
        let (_, part) = daemon.scrape(Format::Text, Escaping::Underscores, Some(0));
        assert_eq!(part, b"# TYPE f gauge\nf{segment=\"segment-0\"} 6\n");
    }
}
