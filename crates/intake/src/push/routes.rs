//! The routes of Pushgateway's API, and what all threads share of it.

use std::collections::BTreeMap;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hyper::Method;
use hyper::header::HeaderValue;
use quipu::intake::Intake;
use tracing::warn;

use super::apply;
use super::batch::{Batch, Fault};
use super::changing::{Begun, Change, Changing};
use super::content::Content;
use super::forms::Forms;
use super::groups::{Groups, Nanos};
use super::json::{self, Listing};
use super::options::{Options, Settings};
use super::parse::Parser;
use super::path::Grouping;
use super::restore;
use crate::admission::Admission;
use crate::body::{Piece, Pieces};
use crate::place::Place;
use crate::refusals::{Input, Refusals};
use crate::{Inputs, source};
use quipu_client::media::Media;
use quipu_http::{Reply, Request, Response, Steps, bad_request, unavailable};

/// What all threads share of the API.
#[derive(Debug)]
pub struct Push {
    settings: Settings,
    groups: Mutex<Groups>,
    forms: Forms,
    started: SystemTime,
    /// The settings of the daemon by name, for `/api/v1/status`.
    flags: BTreeMap<String, String>,
    /// A change whose client left.
    parked: Mutex<Option<Begun>>,
    /// Whether the index has the groups that were in the segment at the start.
    is_ready: AtomicBool,
}

impl Push {
    /// Without groups. Requests for groups wait until [`Push::restore`] has ended.
    pub fn new(settings: Settings, flags: BTreeMap<String, String>) -> Self {
        Self {
            settings,
            groups: Mutex::default(),
            forms: Forms::default(),
            started: SystemTime::now(),
            flags,
            parked: Mutex::default(),
            is_ready: AtomicBool::new(false),
        }
    }

    /// Starts a thread that takes over the groups that are in the segment: a scrape does not need
    /// the index, so the daemon is ready before.
    ///
    /// # Errors
    /// That of the system if it cannot create a thread.
    pub fn restore(&'static self, mut intake: Intake) -> std::io::Result<()> {
        if !self.settings.enabled {
            return Ok(());
        }
        let restore = move || self.restore_now(&mut intake);
        thread::Builder::new().name("groups".into()).spawn(restore).map(drop)
    }

    /// Takes over the groups that are in the segment.
    pub fn restore_now(&self, intake: &mut Intake) {
        match restore::restore(intake, self.settings.expiry) {
            Ok(groups) => *self.groups() = groups,
            Err(error) => warn!(%error, "cannot read the groups of pushed metrics"),
        }
        // Release: threads that see this see the groups.
        self.is_ready.store(true, Ordering::Release);
    }

    /// Whether requests for groups can be served. If not, waits for a moment.
    pub(super) fn is_ready(&self) -> bool {
        // Acquire: see `restore`.
        let is_ready = self.is_ready.load(Ordering::Acquire);
        if !is_ready {
            thread::sleep(MOMENT);
        }
        is_ready
    }

    /// `GET /api/v1/metrics`.
    pub fn list(&'static self, inputs: &Inputs, request: &Request) -> Reply {
        let reader = self.reader(request);
        match *request.method() {
            Method::OPTIONS => json::options(reader).into(),
            _ => begin(List { push: self, inputs: inputs.clone(), listing: None, reader }),
        }
    }

    /// `GET /api/v1/status`.
    pub fn status(&self, request: &Request) -> Response {
        let reader = self.reader(request);
        match *request.method() {
            Method::OPTIONS => json::options(reader),
            _ => json::status(&self.flags, self.started, reader),
        }
    }

    /// The origin of the foreign page that sent a request, if it may read the response.
    fn reader(&self, request: &Request) -> Option<HeaderValue> {
        self.settings.access.reader(request.headers()).cloned()
    }

    /// `PUT /api/v1/admin/wipe`.
    pub fn wipe(&'static self, inputs: &Inputs) -> Reply {
        begin(Changing::new(self, inputs, Change::Wipe(None)))
    }

    /// Hides the groups whose time is over, if there are any; to be done before a scrape.
    pub fn expire(&'static self, inputs: &Inputs) -> Option<impl Steps + use<>> {
        let is_due = self.groups().next_to_expire(now()).is_some();
        is_due.then(|| Changing::new(self, inputs, Change::Expire))
    }

    /// Goes on with a change whose client left, for about 100 us, if there is one; to be called by
    /// the requests that it keeps out. Returns false if there is none.
    pub fn go_on(&self, intake: &mut Intake, refusals: &Refusals) -> bool {
        let Some(mut begun) = self.parked().take() else { return false };
        if begun.work.step(&self.groups, intake, refusals).is_none() {
            self.park(begun);
        }
        true
    }

    /// Leaves a change to others. The gate is closed until it is done, so there is one at most.
    pub(super) fn park(&self, begun: Begun) {
        *self.parked() = Some(begun);
    }

    fn parked(&self) -> MutexGuard<'_, Option<Begun>> {
        // It is whole or not there.
        self.parked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The index. It is locked for a step at most.
    pub(super) fn groups(&self) -> MutexGuard<'_, Groups> {
        // The index is consistent between any two changes of it.
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The index, unlocked.
    pub(super) fn index(&self) -> &Mutex<Groups> {
        &self.groups
    }

    /// PUT, POST and DELETE of a group, whose labels are in the path.
    pub fn group(&'static self, inputs: &Inputs, request: &Request) -> Reply {
        let removes = *request.method() == Method::PUT;
        let path = request.path();
        let rest = path.strip_prefix("/metrics/").unwrap_or(path);
        let grouping = match Grouping::parse(rest) {
            Ok(grouping) => grouping,
            Err(fault) => return bad_request(fault).into(),
        };
        if request.method() == Method::DELETE {
            let delete = Change::Delete(grouping.key().into());
            return begin(Changing::new(self, inputs, delete));
        }
        let refuse = |what: &dyn std::fmt::Display| {
            inputs.refusals().refused(Input::Push, grouping.job(), "malformed", what);
        };
        let admission = match Admission::new(inputs, Input::Push, &source(request)) {
            Ok(admission) => admission,
            Err(response) => return response.into(),
        };
        let options = match Options::of(&self.settings, &grouping, request) {
            Ok(options) => options,
            Err(fault) => {
                refuse(&fault);
                return bad_request(fault).into();
            }
        };
        let parser = Parser::new(Media::from_headers(request.headers()));
        let pieces = match Pieces::new(request, inputs.shared().body_bytes) {
            Ok(pieces) => pieces,
            Err(response) => {
                refuse(&"the body cannot be decoded");
                return response.into();
            }
        };
        let place = Place::of(&inputs.shared().places, request);
        let batch = Batch::new(grouping, inputs.intake().limits());
        let reading = Reading { pieces, parser, batch, options, removes, is_begun: false };
        let stage = Stage::Reading(Box::new(reading));
        begin(Pushing { push: self, inputs: inputs.clone(), stage, place, admission })
    }
}

/// A push: its body is read, then it is applied.
struct Pushing {
    push: &'static Push,
    inputs: Inputs,
    stage: Stage,
    place: Place,
    /// What the client may bring.
    admission: Admission,
}

enum Stage {
    Reading(Box<Reading>),
    Changing(Box<Changing>),
}

/// A body that is being read.
struct Reading {
    pieces: Pieces,
    parser: Parser,
    batch: Batch,
    options: Options,
    removes: bool,
    /// Whether a piece of it was read.
    is_begun: bool,
}

impl Reading {
    /// Reads a piece. Returns what the body holds at its end.
    fn step(&mut self, forms: &Forms) -> Result<Option<Content>, Stop> {
        let Self { pieces, parser, batch, is_begun, .. } = self;
        let plain = pieces.plain().filter(|body| body.len() < PIECE && parser.is_text());
        if let Some(body) = plain
            && let Some(content) = forms.guess(body, batch.grouping())
        {
            return Ok(Some(content));
        }
        let mut buffer = [0; PIECE];
        let decoding = |response| Stop::Decoding(Box::new(response));
        let (len, is_end) = piece(pieces, &mut buffer).map_err(decoding)?;
        let body = &buffer[..len];
        if !mem::replace(is_begun, true) && is_end && parser.is_text() {
            return forms.read(body, batch).map(Some).map_err(Stop::Fault);
        }
        parser.push(body, batch).map_err(Stop::Fault)?;
        if !is_end {
            return Ok(None);
        }
        parser.finish(batch).map_err(Stop::Fault)?;
        batch.finish().map(Some).map_err(Stop::Fault)
    }
}

/// Reads a piece of a body. Returns its length, and whether the body ends with it.
#[expect(clippy::result_large_err, reason = "the response to send, once for each request")]
fn piece(pieces: &mut Pieces, buffer: &mut [u8]) -> Result<(usize, bool), Response> {
    let mut len = 0;
    // A short body and its end.
    for _ in 0..2 {
        match pieces.next(&mut buffer[len..])? {
            Piece::Bytes(more) => len += more,
            Piece::Nothing => break,
            Piece::End => return Ok((len, true)),
        }
        if len == buffer.len() {
            break;
        }
    }
    Ok((len, false))
}

/// Why the reading of a body ends early.
enum Stop {
    Decoding(Box<Response>),
    Fault(Fault),
}

impl Drop for Pushing {
    /// What a push brought counts even if it cannot be read to its end, or its client leaves.
    fn drop(&mut self) {
        if let Stage::Reading(reading) = &self.stage {
            self.admission.brought(reading.batch.len() as u64);
        }
    }
}

impl Steps for Pushing {
    fn step(&mut self) -> Option<Response> {
        let Self { push, inputs, stage, place, admission } = self;
        let reading = match stage {
            Stage::Changing(changing) => return changing.step(),
            Stage::Reading(reading) => reading,
        };
        if !place.take() {
            return None;
        }
        let key = reading.batch.grouping().key().into();
        let change = match reading.step(&push.forms) {
            Ok(None) => return None,
            Ok(Some(content)) => {
                let Reading { options, removes, .. } = **reading;
                if let Err(response) = admission.take(content.families.len() as u64) {
                    return Some(response);
                }
                let expiry = push.settings.expiry;
                let push = apply::Push { key, content, options, removes, now: now(), expiry };
                Change::Push(Box::new(push))
            }
            Err(Stop::Decoding(response)) => {
                let job = reading.batch.grouping().job();
                let what = "the body cannot be decoded";
                inputs.refusals().refused(Input::Push, job, "malformed", &what);
                return Some(*response);
            }
            Err(Stop::Fault(fault)) => {
                let job = reading.batch.grouping().job();
                inputs.refusals().refused(Input::Push, job, fault.reason(), &fault);
                match fault {
                    Fault::Malformed(_) => return Some(bad_request(fault)),
                    Fault::Inconsistent(_) => {
                        admission.brought(reading.batch.len() as u64);
                        Change::Fail(key, bad_request(fault))
                    }
                }
            }
        };
        *stage = Stage::Changing(Box::new(Changing::new(push, inputs, change)));
        None
    }

    fn is_waiting(&self) -> bool {
        match &self.stage {
            Stage::Changing(changing) => changing.is_waiting(),
            Stage::Reading(_) => self.place.is_waiting(),
        }
    }
}

/// `GET /api/v1/metrics`.
struct List {
    push: &'static Push,
    inputs: Inputs,
    listing: Option<Listing>,
    reader: Option<HeaderValue>,
}

impl Steps for List {
    fn step(&mut self) -> Option<Response> {
        if self.listing.is_none() && !self.push.is_ready() {
            return None;
        }
        let groups = self.push.groups();
        let listing = self.listing.get_or_insert_with(|| Listing::new(groups.keys()));
        if !listing.reserve() {
            return Some(unavailable(NO_MEMORY, "1"));
        }
        let body = listing.step(&groups, &mut self.inputs.intake())?;
        Some(json::respond(body, self.reader.take()))
    }

    fn held(&self) -> usize {
        self.listing.as_ref().map_or(0, Listing::held)
    }

    fn is_waiting(&self) -> bool {
        self.listing.is_none()
    }
}

/// The response, if it takes about 100 us or less, or else the rest of the steps.
fn begin(mut steps: impl Steps + 'static) -> Reply {
    let begun = Instant::now();
    loop {
        if let Some(response) = steps.step() {
            return Reply::Now(response);
        }
        if steps.is_waiting() || begun.elapsed() > TURN {
            return Reply::Steps(Box::new(steps));
        }
    }
}

/// The body of the response to a listing that finds no memory.
const NO_MEMORY: &str = "there is no memory for the response: try again, or raise the limit on \
                         address space (ulimit -v)\n";

/// How much of a body is read in one step, in about 100 us.
const PIECE: usize = 16 << 10;

/// How long a request waits for the index in one step.
const MOMENT: Duration = Duration::from_micros(50);

/// How long a request may take at once.
const TURN: Duration = Duration::from_micros(100);

/// The time now.
pub(super) fn now() -> Nanos {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
