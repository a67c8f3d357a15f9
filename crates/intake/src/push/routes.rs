//! The HTTP routes of Pushgateway's API, and [`PushGateway`], the state that all threads share.

use std::collections::BTreeMap;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hyper::Method;
use hyper::header::HeaderValue;
use quipu::intake::Intake;
use tracing::warn;

use super::builder::{ContentBuilder, PushError};
use super::change::{Change, ChangeSteps, ExclusiveUpdate};
use super::content::Content;
use super::forms::BodyFormCache;
use super::groups::{Groups, Nanos};
use super::json::{self, Listing};
use super::options::{Options, Settings};
use super::parse::Parser;
use super::path::Grouping;
use super::restore;
use super::update;
use crate::body::{PIECE, Piece};
use crate::list::Route;
use crate::refusals::Refusals;
use crate::requests::{
    self, BodyInput, Context, Input, Inputs, Pieces, Refusal, RequestOutcome, Result, begin,
};
use quipu_client::media::Media;
use quipu_http::routing::Path;
use quipu_http::{Access, Reply, Request, Response, Steps};

/// The routes, for the list of inputs.
pub const ROUTES: &[Route] = &[
    Route { has_body: true, ..route("/metrics/job/", "{job}", CHANGES, group) },
    Route { has_body: true, ..route("/metrics/job@base64/", "{job}", CHANGES, group) },
    route("/api/v1/metrics", "", READS, list),
    route("/api/v1/status", "", READS, status),
    Route {
        is_on: |shared| shared.push.settings.enabled && shared.push.settings.admin,
        ..route("/api/v1/admin/wipe", "", "PUT", wipe)
    },
];

const CHANGES: &str = "PUT, POST, DELETE";
const READS: &str = "GET, HEAD, OPTIONS";

const fn route(
    start: &'static str,
    parameter: &'static str,
    methods: &'static str,
    respond: fn(&Inputs, &Request) -> Reply,
) -> Route {
    let path = Path::new(start, parameter, methods);
    Route { path, has_body: false, is_on: |shared| shared.push.settings.enabled, respond }
}

/// The state of Pushgateway's API, shared by all threads: the settings, and the index of groups.
#[derive(Debug)]
pub struct PushGateway {
    settings: Settings,
    /// Determines which web pages may read the groups.
    access: Access,
    groups: Mutex<Groups>,
    forms: BodyFormCache,
    started: SystemTime,
    /// The flags of the daemon by name, for `/api/v1/status`.
    flags: BTreeMap<String, String>,
    /// An update whose client closed the connection before the end. Other requests complete it.
    parked: Mutex<Option<ExclusiveUpdate>>,
    /// Whether the index was restored from the segment.
    is_ready: AtomicBool,
}

impl PushGateway {
    /// Creates a gateway without groups. Requests for groups wait until [`PushGateway::restore`]
    /// has finished.
    pub fn new(settings: Settings, access: Access, flags: BTreeMap<String, String>) -> Self {
        Self {
            settings,
            access,
            groups: Mutex::default(),
            forms: BodyFormCache::default(),
            started: SystemTime::now(),
            flags,
            parked: Mutex::default(),
            is_ready: AtomicBool::new(false),
        }
    }

    /// Restores the index from the segment, in a new thread. Scrapes need not wait for this,
    /// because they do not use the index.
    ///
    /// # Errors
    /// Fails if the system cannot create a thread.
    pub fn restore(&'static self, mut intake: Intake) -> std::io::Result<()> {
        if !self.settings.enabled {
            return Ok(());
        }
        let restore = move || self.restore_now(&mut intake);
        thread::Builder::new().name("groups".into()).spawn(restore).map(drop)
    }

    /// Restores the index from the segment, in this thread.
    pub fn restore_now(&self, intake: &mut Intake) {
        match restore::restore(intake, self.settings.expiry) {
            Ok(groups) => *self.groups() = groups,
            Err(error) => warn!(%error, "cannot read the groups of pushed metrics"),
        }
        // Release: a thread that sees this also sees the restored groups.
        self.is_ready.store(true, Ordering::Release);
    }

    /// Returns whether the index was restored. If not, sleeps for a moment, because the caller then
    /// tries again.
    pub(super) fn is_ready(&self) -> bool {
        // Acquire: pairs with the store in `restore_now`.
        let is_ready = self.is_ready.load(Ordering::Acquire);
        if !is_ready {
            thread::sleep(MOMENT);
        }
        is_ready
    }

    /// Returns the origin of the web page that sent a request, if this page may read the response.
    fn reader(&self, request: &Request) -> Option<HeaderValue> {
        self.access.reader(request.headers()).cloned()
    }

    /// Hides expired groups, if any. Call this before a scrape.
    pub fn expire(&'static self, inputs: &Inputs) -> Option<impl Steps + use<>> {
        let is_due = self.groups().next_to_expire(now()).is_some();
        is_due.then(|| ChangeSteps::new(self, inputs, Change::Expire))
    }

    /// Runs one step of a parked update. Requests that wait for the update call this. Returns false
    /// if there is none.
    pub fn continue_parked(&self, intake: &mut Intake, refusals: &Refusals) -> bool {
        let Some(mut begun) = self.parked().take() else { return false };
        if begun.update.step(&self.groups, intake, refusals).is_none() {
            self.park(begun);
        }
        true
    }

    /// Parks an update, for other requests to complete. There is at most one, because the gate
    /// stays closed until it is complete.
    pub(super) fn park(&self, begun: ExclusiveUpdate) {
        *self.parked() = Some(begun);
    }

    fn parked(&self) -> MutexGuard<'_, Option<ExclusiveUpdate>> {
        // A poisoned mutex is fine, because the update is complete or absent.
        self.parked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the settings of pushes.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Locks the index. Hold the lock for one step at most.
    pub(super) fn groups(&self) -> MutexGuard<'_, Groups> {
        // A poisoned mutex is fine, because the index is consistent between any two changes.
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn index(&self) -> &Mutex<Groups> {
        &self.groups
    }
}

/// `GET /api/v1/metrics`.
fn list(inputs: &Inputs, request: &Request) -> Reply {
    let push = &inputs.shared().push;
    let reader = push.reader(request);
    match *request.method() {
        Method::OPTIONS => json::options(reader).into(),
        _ => begin(ListRequest { push, inputs: inputs.clone(), listing: None, reader }),
    }
}

/// `GET /api/v1/status`.
fn status(inputs: &Inputs, request: &Request) -> Reply {
    let PushGateway { flags, started, .. } = &inputs.shared().push;
    let reader = inputs.shared().push.reader(request);
    match *request.method() {
        Method::OPTIONS => json::options(reader).into(),
        _ => json::status(flags, *started, reader).into(),
    }
}

/// `PUT /api/v1/admin/wipe`.
fn wipe(inputs: &Inputs, _: &Request) -> Reply {
    begin(ChangeSteps::new(&inputs.shared().push, inputs, Change::Wipe(None)))
}

/// Handles PUT, POST and DELETE of a group, whose labels are in the path.
fn group(inputs: &Inputs, request: &Request) -> Reply {
    if request.method() != Method::DELETE {
        return requests::respond::<PushRequest>(inputs, request);
    }
    match grouping(request) {
        Ok(grouping) => {
            let delete = Change::Delete(grouping.key().into());
            begin(ChangeSteps::new(&inputs.shared().push, inputs, delete))
        }
        Err(refusal) => refusal.respond().into(),
    }
}

/// Parses the labels of the group in the path.
fn grouping(request: &Request) -> Result<Grouping> {
    let path = request.path();
    let rest = path.strip_prefix("/metrics/").unwrap_or(path);
    Grouping::parse(rest).map_err(Refusal::bad)
}

/// A PUT or POST request. The body is parsed first, and then applied to the group.
struct PushRequest {
    parser: Parser,
    builder: ContentBuilder,
    options: Options,
    removes: bool,
    /// Whether any part of the body was parsed.
    is_begun: bool,
    /// The update of the group, after the body was parsed.
    steps: Option<Box<ChangeSteps>>,
    response: Option<Response>,
}

impl BodyInput for PushRequest {
    const INPUT: Input = super::INPUT;

    fn new(inputs: &Inputs, request: &Request) -> Result<Self> {
        let grouping = grouping(request)?;
        let settings = inputs.shared().push.settings();
        let options = Options::from_request(settings, &grouping, request).inspect_err(|fault| {
            inputs.refusals().refuse(Self::INPUT, grouping.job(), "malformed", fault);
        })?;
        Ok(Self {
            parser: Parser::new(Media::from_headers(request.headers())),
            builder: ContentBuilder::new(grouping, inputs.intake().limits()),
            options,
            removes: *request.method() == Method::PUT,
            is_begun: false,
            steps: None,
            response: None,
        })
    }

    fn step(&mut self, body: &mut Pieces, context: &mut Context<'_>) -> Result<bool> {
        if let Some(steps) = &mut self.steps {
            self.response = steps.step();
            return Ok(self.response.is_some());
        }
        let push = &context.inputs.shared().push;
        let read = match self.guess(body, &push.forms) {
            Some(content) => Ok(Some(content)),
            None => {
                let mut buffer = [0; PIECE];
                let (len, is_end) = piece(body, &mut buffer)?;
                self.read(&buffer[..len], is_end, &push.forms)
            }
        };
        // We count the samples even if the rest of the body is unreadable, or if the client
        // disconnects.
        context.outcome.hold(self.builder.len() as u64);
        let key = self.builder.grouping().key().into();
        let change = match read {
            Ok(None) => return Ok(false),
            Ok(Some(content)) => {
                context.outcome.take(content.families.len() as u64)?;
                let (options, removes, expiry) = (self.options, self.removes, push.settings.expiry);
                let push =
                    update::ParsedPush { key, content, options, removes, now: now(), expiry };
                Change::Push(Box::new(push))
            }
            Err(fault) => {
                let job = self.builder.grouping().job();
                context.inputs.refusals().refuse(Self::INPUT, job, fault.reason(), &fault);
                match fault {
                    PushError::Malformed(_) => return Err(Refusal::bad(fault)),
                    PushError::Inconsistent(_) => Change::Fail(key, Refusal::bad(fault).respond()),
                }
            }
        };
        self.steps = Some(Box::new(ChangeSteps::new(push, context.inputs, change)));
        Ok(false)
    }

    fn finish(&mut self, _: &RequestOutcome, failed: Option<Box<Refusal>>) -> Result<Response> {
        failed.map_or_else(|| Ok(self.response.take().unwrap_or_default()), Err)
    }

    fn refuse(input: Option<&Self>, inputs: &Inputs, refusal: Refusal) -> Response {
        if let Some(Self { builder, .. }) = input.filter(|_| !refusal.reason.is_empty()) {
            let (job, detail) = (builder.grouping().job(), "the body cannot be decoded");
            inputs.refusals().refuse(Self::INPUT, job, "malformed", &detail);
        }
        refusal.respond()
    }

    fn is_waiting(&self) -> bool {
        self.steps.as_ref().is_some_and(|steps| steps.is_waiting())
    }
}

impl PushRequest {
    /// Returns the content of a body that differs from the last body only in its values, without
    /// parsing.
    fn guess(&self, body: &Pieces, forms: &BodyFormCache) -> Option<Content> {
        let Self { parser, builder, .. } = self;
        let plain = body.plain().filter(|body| body.len() < PIECE && parser.is_text())?;
        forms.guess(plain, builder.grouping())
    }

    /// Parses the next bytes of the body. Returns the content at the end of the body.
    fn read(
        &mut self,
        body: &[u8],
        is_end: bool,
        forms: &BodyFormCache,
    ) -> Result<Option<Content>, PushError> {
        let Self { parser, builder, is_begun, .. } = self;
        if !mem::replace(is_begun, true) && is_end && parser.is_text() {
            return forms.read(body, builder).map(Some);
        }
        parser.push(body, builder)?;
        if !is_end {
            return Ok(None);
        }
        parser.finish(builder)?;
        builder.finish().map(Some)
    }
}

/// Reads the next bytes of the body. Returns their number, and whether the body ends after them.
fn piece(pieces: &mut Pieces, buffer: &mut [u8]) -> Result<(usize, bool)> {
    let mut len = 0;
    // We read twice, because the end of a short body is a piece of its own.
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

/// `GET /api/v1/metrics`.
struct ListRequest {
    push: &'static PushGateway,
    inputs: Inputs,
    listing: Option<Listing>,
    reader: Option<HeaderValue>,
}

impl Steps for ListRequest {
    fn step(&mut self) -> Option<Response> {
        if self.listing.is_none() && !self.push.is_ready() {
            return None;
        }
        let groups = self.push.groups();
        let listing = self.listing.get_or_insert_with(|| Listing::new(groups.keys()));
        if !listing.reserve() {
            return Some(Refusal::unavailable(NO_MEMORY, "1").respond());
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

const NO_MEMORY: &str = "there is no memory for the response: try again, or raise the limit on \
                         address space (ulimit -v)";

/// The time that a request sleeps before it tries again to lock the index.
const MOMENT: Duration = Duration::from_micros(50);

pub(super) fn now() -> Nanos {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
