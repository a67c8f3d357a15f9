//! The routes of Pushgateway's API, and what all threads share of it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Method, StatusCode};
use quipu::intake::Intake;

use super::apply;
use super::batch::{Batch, Fault};
use super::changing::{Change, Changing};
use super::groups::{Groups, Nanos};
use super::json::{self, Listing};
use super::options::{Options, Settings};
use super::parse::Parser;
use super::path::{Grouping, is_group};
use super::restore;
use crate::http::{Reply, Request, Response, Steps, method_not_allowed, text};
use crate::inputs::Inputs;
use crate::inputs::body;
use crate::inputs::refusals::Input;

/// What all threads share of the API.
#[derive(Debug)]
pub struct Push {
    settings: Settings,
    groups: Mutex<Groups>,
    started: SystemTime,
    /// The settings of the daemon, for `/api/v1/status`.
    flags: BTreeMap<String, String>,
}

impl Push {
    /// Takes over the groups that are in the segment.
    ///
    /// # Errors
    /// If the families of the segment are inconsistent.
    pub fn new(
        settings: Settings,
        flags: BTreeMap<String, String>,
        intake: &mut Intake,
    ) -> Result<Self, quipu::Error> {
        let groups = restore::restore(intake, settings.expiry)?;
        Ok(Self { settings, groups: Mutex::new(groups), started: SystemTime::now(), flags })
    }

    /// Whether a request brings metrics to this API.
    pub fn takes(&self, method: &Method, path: &str) -> bool {
        let is_push = matches!(*method, Method::PUT | Method::POST);
        let rest = path.strip_prefix("/metrics/");
        is_push && self.settings.enabled && rest.is_some_and(is_group)
    }

    /// The reply to a request, if its path is one of this API.
    pub fn reply(&'static self, inputs: &Inputs, request: &Request) -> Option<Reply> {
        if !self.settings.enabled {
            return None;
        }
        let path = request.path();
        let of_group = path.strip_prefix("/metrics/").filter(|rest| is_group(rest));
        if let Some(rest) = of_group {
            return Some(self.group(inputs, request, rest));
        }
        let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
        Some(match path {
            "/api/v1/status" if is_read => json::status(&self.flags, self.started).into(),
            "/api/v1/metrics" if is_read => {
                let listing = Listing::new(self.groups().keys());
                begin(List { push: self, inputs: inputs.clone(), listing })
            }
            "/api/v1/status" | "/api/v1/metrics" => match *request.method() {
                Method::OPTIONS => json::options().into(),
                _ => method_not_allowed("GET, HEAD, OPTIONS").into(),
            },
            "/api/v1/admin/wipe" if self.settings.admin => match *request.method() {
                Method::PUT => {
                    let keys = self.groups().keys();
                    begin(Changing::new(self, inputs, Change::Wipe(keys)))
                }
                _ => method_not_allowed("PUT").into(),
            },
            _ => return None,
        })
    }

    /// Hides the groups whose time is over, if there are any; to be done before a scrape.
    pub fn expire(&'static self, inputs: &Inputs) -> Option<impl Steps + use<>> {
        let is_due = self.groups().next_to_expire(now()).is_some();
        is_due.then(|| Changing::new(self, inputs, Change::Expire))
    }

    /// The settings.
    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The index. It is locked for a step at most.
    pub(super) fn groups(&self) -> MutexGuard<'_, Groups> {
        // The index is consistent between any two changes of it.
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A request for a group, whose path goes on like this.
    fn group(&'static self, inputs: &Inputs, request: &Request, rest: &str) -> Reply {
        let removes = match *request.method() {
            Method::PUT => true,
            Method::POST | Method::DELETE => false,
            _ => return method_not_allowed("PUT, POST, DELETE").into(),
        };
        let grouping = match Grouping::parse(rest) {
            Ok(grouping) => grouping,
            Err(fault) => return bad(fault).into(),
        };
        if request.method() == Method::DELETE {
            let delete = Change::Delete(grouping.key().into());
            return begin(Changing::new(self, inputs, delete));
        }
        let refuse = |what: &dyn std::fmt::Display| {
            inputs.refusals().refused(Input::Push, grouping.job(), "malformed", what);
        };
        let options = match Options::of(&self.settings, &grouping, request) {
            Ok(options) => options,
            Err(fault) => {
                refuse(&fault);
                return bad(fault).into();
            }
        };
        let body = match body::decode(request, inputs.shared().body_bytes) {
            Ok(body) => body,
            Err(response) => {
                refuse(&"the body cannot be decoded");
                return response.into();
            }
        };
        let content_type = request.headers().get(CONTENT_TYPE).map(HeaderValue::to_str);
        let parser = Parser::new(content_type.and_then(Result::ok).unwrap_or_default(), body);
        let batch = Batch::new(grouping, inputs.intake().limits());
        let inputs = inputs.clone();
        let reading = Stage::Reading(Box::new((parser, batch)), options, removes);
        begin(Pushing { push: self, inputs, stage: reading })
    }
}

/// A push: its body is read, then it is applied.
struct Pushing {
    push: &'static Push,
    inputs: Inputs,
    stage: Stage,
}

enum Stage {
    Reading(Box<(Parser, Batch)>, Options, bool),
    Changing(Box<Changing>),
}

impl Steps for Pushing {
    fn step(&mut self) -> Option<Response> {
        let Self { push, inputs, stage } = self;
        let (reading, options, removes) = match stage {
            Stage::Changing(changing) => return changing.step(),
            Stage::Reading(reading, options, removes) => (reading, *options, *removes),
        };
        let (parser, batch) = &mut **reading;
        let key = batch.grouping().key().into();
        let read = match parser.step(batch) {
            Ok(false) => return None,
            Ok(true) => batch.finish(),
            Err(fault) => Err(fault),
        };
        let change = match read {
            Ok(()) => {
                let empty = Batch::new(batch.grouping().clone(), inputs.intake().limits());
                let batch = std::mem::replace(batch, empty);
                let expiry = push.settings.expiry;
                let push = apply::Push { key, batch, options, removes, now: now(), expiry };
                Change::Push(Box::new(push))
            }
            Err(fault) => {
                let job = batch.grouping().job();
                inputs.refusals().refused(Input::Push, job, fault.reason(), &fault);
                match fault {
                    Fault::Malformed(_) => return Some(bad(fault)),
                    Fault::Inconsistent(_) => Change::Fail(key, fault.to_string()),
                }
            }
        };
        *stage = Stage::Changing(Box::new(Changing::new(push, inputs, change)));
        None
    }
}

/// `GET /api/v1/metrics`.
struct List {
    push: &'static Push,
    inputs: Inputs,
    listing: Listing,
}

impl Steps for List {
    fn step(&mut self) -> Option<Response> {
        self.listing.step(&self.push.groups(), &mut self.inputs.intake())
    }
}

/// The response, if it takes about 100 us or less, or else the rest of the steps.
fn begin(mut steps: impl Steps + 'static) -> Reply {
    let begun = Instant::now();
    loop {
        if let Some(response) = steps.step() {
            return Reply::Now(response);
        }
        if begun.elapsed() > TURN {
            return Reply::Steps(Box::new(steps));
        }
    }
}

/// How long a request may take at once.
const TURN: Duration = Duration::from_micros(100);

/// A 400 response.
pub(super) fn bad(what: impl std::fmt::Display) -> Response {
    text(StatusCode::BAD_REQUEST, format!("{what}\n"))
}

/// The time now.
pub(super) fn now() -> Nanos {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
