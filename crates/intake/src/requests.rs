//! The framework for inputs over HTTP. To write an input, implement [`BodyInput`]: parse the head
//! of a request, and then handle the body piece by piece.
//!
//! This module does everything else: it applies the rate limits and the limit on memory,
//! decompresses the body, detects loops between daemons, splits a long request into steps, and
//! counts accepted and refused samples.

use std::cell::RefMut;
use std::time::{Duration, Instant};

use hyper::StatusCode;
use hyper::header::HeaderValue;
use quipu::intake::Intake;
use quipu_client::via::{FIELD, LOOP, Loop, Via, ViaIds};

pub use super::Inputs;
pub use super::body::Pieces;
pub use super::list::Input;
pub use super::outcome::RequestOutcome;
use super::permits::MemoryPermit;
pub use super::refusal::{Refusal, Result};
use quipu_http::{Reply, Request, Response, Steps};
use quipu_process::address::Source;

/// An input over HTTP. A value of this type is the state of one request.
pub trait BodyInput: Sized + 'static {
    /// The row in the list of inputs.
    const INPUT: Input;
    /// Whether daemons forward such requests to each other, and must therefore detect loops.
    const IS_RELAYED: bool = false;
    /// Whether a client can repeat a partly accepted request, because repeated samples do not count
    /// twice.
    const IS_REPEATABLE: bool = true;

    /// Parses the head of a request.
    ///
    /// # Errors
    /// Returns the error in the head.
    fn new(inputs: &Inputs, request: &Request) -> Result<Self>;

    /// Returns the decoder of the body, which fails beyond `limit` bytes after decompression.
    ///
    /// # Errors
    /// Fails if the `Content-Encoding` is not supported.
    fn body(&self, request: &Request, limit: usize) -> Result<Pieces> {
        Pieces::new(request, limit)
    }

    /// Handles the next samples in the body, until the time slice of the step is over. Returns
    /// whether the body has ended.
    ///
    /// # Errors
    /// Fails if the rest of the body is unreadable.
    fn step(&mut self, body: &mut Pieces, context: &mut Context<'_>) -> Result<bool>;

    /// Returns the response after the last step. `failed` is the error of this step, if any.
    ///
    /// # Errors
    /// Returns a refusal if any sample was refused.
    fn finish(
        &mut self,
        outcome: &RequestOutcome,
        failed: Option<Box<Refusal>>,
    ) -> Result<Response> {
        outcome.end(failed)
    }

    /// Returns the response to a refused request. `input` is `None` if the head was refused.
    fn refuse(_input: Option<&Self>, _inputs: &Inputs, refusal: Refusal) -> Response {
        refusal.respond()
    }

    /// Returns whether the last step only waited for another request.
    fn is_waiting(&self) -> bool {
        false
    }
}

/// The context of one step of a request.
pub struct Context<'t> {
    /// The inputs of this thread.
    pub inputs: &'t Inputs,
    /// The accepted and refused samples.
    pub outcome: &'t mut RequestOutcome,
    /// The start of the step.
    pub begun: Instant,
}

impl<'t> Context<'t> {
    /// Returns the intake of this thread, with the source of the request.
    pub fn intake(&self) -> RefMut<'t, Intake> {
        let mut intake = self.inputs.intake();
        intake.set_source(&Source::named(self.outcome.source()));
        intake
    }
}

/// The approximate duration of a step. Other requests of the thread are handled between two steps.
pub const STEP: Duration = Duration::from_micros(100);

/// Handles a request.
pub fn respond<I: BodyInput>(inputs: &Inputs, request: &Request) -> Reply {
    let input = match I::new(inputs, request) {
        Ok(input) => input,
        Err(refusal) => return I::refuse(None, inputs, *refusal).into(),
    };
    match admit(&input, inputs, request) {
        Ok((via_ids, body, outcome)) => {
            let permit = MemoryPermit::new(&inputs.shared().permits, body.is_large());
            begin(RunningRequest { input, inputs: inputs.clone(), permit, body, outcome, via_ids })
        }
        Err(refusal) => I::refuse(Some(&input), inputs, *refusal).into(),
    }
}

/// Checks the rate limit and the path of a request through other daemons, before its body is read.
fn admit<I: BodyInput>(
    input: &I,
    inputs: &Inputs,
    request: &Request,
) -> Result<(ViaIds, Pieces, RequestOutcome)> {
    let shared = inputs.shared();
    let via_ids = match I::IS_RELAYED {
        true => shared.via.check(request.headers()).map_err(|Loop| is_own(&shared.via))?,
        false => ViaIds::default(),
    };
    let body = input.body(request, shared.options.common.body_bytes)?;
    Ok((via_ids, body, RequestOutcome::new::<I>(inputs, request)?))
}

/// Returns the refusal of samples that this daemon sent itself. The status 409 shows the sender
/// that a loop is the reason, not the samples.
fn is_own(via: &Via) -> Box<Refusal> {
    let refusal = Refusal::new(StatusCode::CONFLICT, LOOP);
    match HeaderValue::from_str(via.own()) {
        Ok(own) => refusal.with(FIELD, own),
        Err(_) => refusal,
    }
}

/// Runs steps for about 100 us. Returns the response if it is then complete, or else the remaining
/// steps.
pub fn begin(mut steps: impl Steps + 'static) -> Reply {
    let begun = Instant::now();
    loop {
        if let Some(response) = steps.step() {
            return Reply::Now(response);
        }
        if steps.is_waiting() || begun.elapsed() > STEP {
            return Reply::Steps(Box::new(steps));
        }
    }
}

/// A request in progress.
struct RunningRequest<I> {
    input: I,
    inputs: Inputs,
    permit: MemoryPermit,
    body: Pieces,
    outcome: RequestOutcome,
    /// The daemons that the samples passed through. Empty after the first accepted sample, because
    /// they are then stored.
    via_ids: ViaIds,
}

impl<I: BodyInput> Steps for RunningRequest<I> {
    fn step(&mut self) -> Option<Response> {
        if !self.permit.take() {
            return None;
        }
        let Self { input, inputs, body, outcome, via_ids, .. } = self;
        if let Err(refusal) = outcome.begin() {
            return Some(I::refuse(Some(input), inputs, *refusal));
        }
        let mut context = Context { inputs, outcome, begun: Instant::now() };
        let has_ended = input.step(body, &mut context);
        context.outcome.report();
        if context.outcome.taken() > 0 {
            inputs.shared().via.note(via_ids);
        }
        let failed = match has_ended {
            Ok(false) => return None,
            Ok(true) => None,
            Err(refusal) => Some(refusal),
        };
        let response = input.finish(context.outcome, failed);
        Some(response.unwrap_or_else(|refusal| I::refuse(Some(input), inputs, *refusal)))
    }

    fn is_waiting(&self) -> bool {
        self.permit.is_waiting() || self.input.is_waiting()
    }
}
