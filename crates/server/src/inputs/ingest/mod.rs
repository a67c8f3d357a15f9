//! `POST /ingest`: messages in any format of `quipu-wire`, one or a stream.
//!
//! Counters add up, gauges hold the last value, and each value of a batch timer is observed. A
//! message that is wrong is refused with its number, its place and the reason; the others count, as
//! far as the framing tells where they begin. A request that is sent again counts again.

mod id;
mod options;

use quipu::intake::{Given, Intake, Mode, Refused, Shape};
use quipu_arena::Arena;
use quipu_wire::{AnyDecoder, Message};

use super::Inputs;
use super::body::{Pieces, cut};
use super::refusals::Input;
use super::tally::Tally;
use crate::http::{Reply, Request, Response, Steps};
use options::Options;

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
    pieces: Pieces,
    decoder: AnyDecoder,
    arena: Arena,
    timers: Shape,
    tally: Tally,
    /// The number of messages so far.
    messages: u64,
    buffer: [u8; PIECE],
}

/// The bytes of the body that one step takes: a thousand small messages, or more in a quipu stream.
const PIECE: usize = 4 << 10;

impl Ingesting {
    #[expect(clippy::result_large_err, reason = "the response to send, once for each request")]
    fn new(inputs: &Inputs, request: &Request) -> Result<Self, Response> {
        let Options { format, kind, framing, timers } = Options::of(request)?;
        let limit = inputs.shared().body_bytes;
        Ok(Self {
            inputs: inputs.clone(),
            pieces: Pieces::new(request, limit)?,
            decoder: format.decoder(kind, framing).limit(limit),
            arena: Arena::new(),
            timers,
            tally: Tally::new(Input::Ingest, inputs, request),
            messages: 0,
            buffer: [0; PIECE],
        })
    }

    /// Takes the messages that the decoder holds. Returns whether more can follow.
    fn take(&mut self) -> bool {
        let Self { inputs, decoder, arena, timers, tally, messages, .. } = self;
        let mut intake = inputs.intake();
        intake.set_source(tally.source());
        loop {
            let position = decoder.position();
            let mut guard = arena.guard();
            let taken = match decoder.next(&guard.scope()) {
                Ok(None) => break true,
                Ok(Some(message)) => {
                    *messages += 1;
                    take(inputs, &mut intake, &message, timers)
                }
                Err(error) => {
                    *messages += 1;
                    drop(guard);
                    tally.refused("malformed", format_args!("message {messages}: {error}"));
                    // If the next message can be found, the decoder has advanced.
                    if decoder.position() > position {
                        continue;
                    }
                    break false;
                }
            };
            match taken {
                Ok(()) => tally.took(1),
                Err((reason, what)) => {
                    let what = format_args!("message {messages}, at byte {position}: {what}");
                    tally.refused(reason, what);
                }
            }
        }
    }
}

impl Steps for Ingesting {
    fn step(&mut self) -> Option<Response> {
        let failed = match self.pieces.next(&mut self.buffer) {
            Ok(0) => {
                self.decoder.end();
                self.take();
                None
            }
            Ok(len) => {
                self.decoder.push(&self.buffer[..len]);
                if self.take() {
                    self.tally.report();
                    return None;
                }
                None
            }
            Err(response) => Some(response),
        };
        self.tally.report();
        Some(self.tally.response(failed))
    }
}

/// Takes a message: all of it or, if a value of a timer is not a number, what comes before.
fn take(
    inputs: &Inputs,
    intake: &mut Intake,
    message: &Message<'_>,
    timers: &Shape,
) -> Result<(), (&'static str, String)> {
    let message = match message {
        Message::MetricUnion(union) => union.to_metric().ok_or_else(|| {
            let what = "a union needs the type of a metric, and no value of another type";
            ("union", what.to_owned())
        })?,
        metric => *metric,
    };
    let refused = |refused: Refused| (refused.reason(), refused.to_string());
    let taken = id::split(message.id(), |name, labels| {
        let metric = inputs.metric(name);
        let shared = inputs.shared();
        let mut take = |given, mode| shared.take(intake, metric, labels, &given, mode, None);
        match message {
            Message::Counter(counter) => take(Given::Counter(counter.value as f64), Mode::Add),
            Message::Gauge(gauge) => take(Given::Gauge(gauge.value), Mode::Set),
            Message::BatchTimer(timer) => timer
                .values
                .iter()
                .try_for_each(|value| shared.observe(intake, metric, labels, timers, *value, 1.0)),
            Message::MetricUnion(_) => Ok(()),
        }
    });
    match taken {
        Ok(taken) => taken.map_err(refused),
        Err(what) => {
            let id = String::from_utf8_lossy(message.id());
            Err(("id", format!("{what}: {:?}", cut(&id, 100))))
        }
    }
}
