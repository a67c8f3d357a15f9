//! `POST /ingest`: messages in any format of `quipu-wire`, one or a stream.
//!
//! Counters add up, gauges hold the last value, and each value of a batch timer is observed. A
//! message that is wrong is refused with its number, its place and the reason; the others count, as
//! far as the framing tells where they begin. A request that is sent again counts again.

mod batch;
mod id;
mod options;

use std::time::{Duration, Instant};

use quipu::intake::{Given, Intake, Metric, Mode, Shape};
use quipu_arena::Arena;
use quipu_wire::{AnyDecoder, Message};

use super::Inputs;
use super::body::{Piece, Pieces};
use super::place::Place;
use super::refusals::Input;
use super::tally::Tally;
use batch::{AT_ONCE, Batch};
use options::Options;
use quipu_http::{Reply, Request, Response, Steps};
use quipu_process::address::Source;
use quipu_process::text::cut;

/// Takes messages.
pub fn respond(inputs: &Inputs, request: &Request) -> Reply {
    match Ingesting::new(inputs, request) {
        Ok(mut ingesting) => match ingesting.step() {
            Some(response) => Reply::Now(response),
            None => Reply::Steps(Box::new(ingesting)),
        },
        Err(response) => Reply::Now(response),
    }
}

/// Messages that are being taken.
struct Ingesting {
    inputs: Inputs,
    place: Place,
    pieces: Pieces,
    decoder: AnyDecoder,
    arena: Arena,
    timers: Shape,
    tally: Tally,
    /// The number of messages so far.
    messages: u64,
    /// A timer that is being taken.
    batch: Option<Batch>,
    /// Whether the decoder may hold messages.
    holds: bool,
    /// Whether the decoder has all of the body.
    has_all: bool,
    buffer: [u8; PIECE],
}

/// The bytes of the body that the decoder gets at a time: a thousand small messages, or more in a
/// quipu stream.
const PIECE: usize = 4 << 10;

/// How long a step takes, and after how many messages it looks at the time.
const STEP: Duration = Duration::from_micros(100);
const MESSAGES_PER_LOOK: u32 = 16;

/// How the taking of messages goes on.
#[derive(PartialEq)]
enum Next {
    /// The decoder may hold more, for the next step.
    Messages,
    /// The decoder needs more of the body.
    Bytes,
    /// The rest cannot be read.
    End,
}

/// Why a message is refused.
type Fault = (&'static str, String);

impl Ingesting {
    #[expect(clippy::result_large_err, reason = "the response to send, once for each request")]
    fn new(inputs: &Inputs, request: &Request) -> Result<Self, Response> {
        let Options { format, kind, framing, timers } = Options::of(request)?;
        let limit = inputs.shared().body_bytes;
        Ok(Self {
            inputs: inputs.clone(),
            place: Place::of(&inputs.shared().places, request),
            pieces: Pieces::new(request, limit)?,
            decoder: format.decoder(kind, framing).limit(limit),
            arena: Arena::new(),
            timers,
            tally: Tally::new(Input::Ingest, inputs, request)?,
            messages: 0,
            batch: None,
            holds: false,
            has_all: false,
            buffer: [0; PIECE],
        })
    }

    /// Gives the decoder the next bytes of the body, unless it may hold messages.
    #[expect(clippy::result_large_err, reason = "the response to send, once for each request")]
    fn fill(&mut self) -> Result<(), Response> {
        if self.holds {
            return Ok(());
        }
        match self.pieces.next(&mut self.buffer)? {
            Piece::End => {
                self.decoder.end();
                self.has_all = true;
            }
            Piece::Bytes(len) => self.decoder.push(&self.buffer[..len]),
            Piece::Nothing => {}
        }
        Ok(())
    }

    /// Takes messages that the decoder holds, until the time of the step is over.
    fn take(&mut self) -> Next {
        let Self { inputs, decoder, arena, timers, tally, messages, batch, .. } = self;
        let mut intake = inputs.intake();
        intake.set_source(&Source::named(tally.source()));
        if let Some(timer) = batch {
            match timer.step(inputs, &mut intake, timers) {
                Ok(false) => return Next::Messages,
                Ok(true) => tally.took(1),
                Err(fault) => refuse(tally, *messages, timer.position, fault),
            }
            *batch = None;
        }
        let begun = Instant::now();
        let mut count = 0;
        loop {
            count += 1;
            if count % MESSAGES_PER_LOOK == 0 && begun.elapsed() >= STEP {
                return Next::Messages;
            }
            let position = decoder.position();
            let mut guard = arena.guard();
            let message = match decoder.next(&guard.scope()) {
                Ok(None) => return Next::Bytes,
                Ok(Some(message)) => message,
                Err(error) => {
                    *messages += 1;
                    drop(guard);
                    tally.refused("malformed", format_args!("message {messages}: {error}"));
                    // If the next message can be found, the decoder has advanced.
                    if decoder.position() > position {
                        continue;
                    }
                    return Next::End;
                }
            };
            *messages += 1;
            let taken = match metric(&message) {
                Ok(Message::BatchTimer(timer)) if timer.values.len() > AT_ONCE => {
                    *batch = Some(Batch::new(&timer, position));
                    return Next::Messages;
                }
                Ok(message) => take(inputs, &mut intake, &message, timers),
                Err(fault) => Err(fault),
            };
            match taken {
                Ok(()) => tally.took(1),
                Err(fault) => refuse(tally, *messages, position, fault),
            }
        }
    }
}

impl Steps for Ingesting {
    fn step(&mut self) -> Option<Response> {
        if !self.place.take() {
            return None;
        }
        if let Err(response) = self.tally.begin() {
            return Some(response);
        }
        let failed = match self.fill() {
            Ok(()) => {
                let next = self.take();
                self.tally.report();
                self.holds = next == Next::Messages;
                if self.holds || next == Next::Bytes && !self.has_all {
                    return None;
                }
                None
            }
            Err(response) => Some(response),
        };
        Some(self.tally.response(failed))
    }

    fn is_waiting(&self) -> bool {
        self.place.is_waiting()
    }
}

fn refuse(tally: &mut Tally, message: u64, position: u64, (reason, what): Fault) {
    tally.refused(reason, format_args!("message {message}, at byte {position}: {what}"));
}

/// The metric that a message has.
fn metric<'m>(message: &Message<'m>) -> Result<Message<'m>, Fault> {
    match message {
        Message::MetricUnion(union) => union.to_metric().ok_or_else(|| {
            let what = "a union needs the type of a metric, and no value of another type";
            ("union", what.to_owned())
        }),
        metric => Ok(*metric),
    }
}

/// Takes a message: all of it or, if a value of a timer is not a number, what comes before.
fn take(
    inputs: &Inputs,
    intake: &mut Intake,
    message: &Message<'_>,
    timers: &Shape,
) -> Result<(), Fault> {
    let taken = id::split(message.id(), |name, labels| {
        let metric = Metric { shape: Some(timers), ..inputs.metric(name) };
        let shared = inputs.shared();
        let mut take = |given, mode| shared.take(intake, metric, labels, &given, mode, None);
        match message {
            Message::Counter(counter) => take(Given::Counter(counter.value as f64), Mode::Add),
            Message::Gauge(gauge) => take(Given::Gauge(gauge.value), Mode::Set),
            Message::BatchTimer(timer) => timer.values.iter().try_for_each(|value| {
                take(Given::Observation { value: *value, weight: 1.0 }, Mode::Add)
            }),
            Message::MetricUnion(_) => Ok(()),
        }
    });
    let taken = taken.map_err(|what| wrong_id(message.id(), what))?;
    taken.map_err(|refused| (refused.reason(), intake.explain(refused).to_string()))
}

fn wrong_id(id: &[u8], what: &str) -> Fault {
    let shown = String::from_utf8_lossy(&id[..id.len().min(100)]);
    ("id", format!("{what}: {:?}", cut(&shown, 100)))
}
