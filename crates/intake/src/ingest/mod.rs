//! `POST /ingest`: a message or a stream of messages, in any format of `quipu-wire`.
//!
//! Counters are added up, a gauge stores the last value, and a batch timer observes each of its
//! values. An invalid message is refused with its number, its position and the reason. The other
//! messages are stored, as far as the framing shows where they begin. If you repeat a request, it
//! counts again.

mod id;
mod options;
mod timer;

use quipu::intake::{InputValue, Intake, Metric, Mode, Shape};
use quipu_arena::Arena;
use quipu_wire::{AnyDecoder, Message};

use super::body::Piece;
use super::outcome::RequestOutcome;
use super::requests::{BodyInput, Context, Input, Inputs, Pieces, Result, STEP};
use options::Options;
use quipu_http::Request;
use quipu_process::text::cut;
use timer::{PendingTimer, VALUES_PER_LOOK};

/// A request with messages, in progress.
pub struct IngestRequest {
    decoder: AnyDecoder,
    arena: Arena,
    timers: Shape,
    /// The number of messages so far.
    messages: u64,
    /// A timer whose values are not all observed yet.
    pending_timer: Option<PendingTimer>,
    /// Whether the decoder may contain complete messages.
    holds: bool,
    /// Whether the whole body was passed to the decoder.
    has_all: bool,
}

/// The number of bytes to pass to the decoder at a time. They contain about a thousand small
/// messages, or more in a quipu stream.
const PIECE: usize = 4 << 10;

/// The number of messages between two checks of the clock.
const MESSAGES_PER_LOOK: u32 = 16;

/// The next action of a step.
#[derive(PartialEq)]
enum NextStep {
    /// Decode more messages, but in the next step.
    Messages,
    /// Pass more bytes to the decoder.
    Bytes,
    /// Stop, because the rest is unreadable.
    End,
}

/// The reason of a refused message: the value of the label `reason`, and a message for people.
type Fault = (&'static str, String);

impl BodyInput for IngestRequest {
    const INPUT: Input = Input::named("ingest");
    /// A repeated message is added again.
    const IS_REPEATABLE: bool = false;

    fn new(inputs: &Inputs, request: &Request) -> Result<Self> {
        let Options { format, kind, framing, timers } = Options::from_request(request)?;
        Ok(Self {
            decoder: format.decoder(kind, framing).limit(inputs.shared().options.common.body_bytes),
            arena: Arena::new(),
            timers,
            messages: 0,
            pending_timer: None,
            holds: false,
            has_all: false,
        })
    }

    fn step(&mut self, body: &mut Pieces, context: &mut Context<'_>) -> Result<bool> {
        if !self.holds {
            self.fill(body)?;
        }
        let next = self.take(context);
        self.holds = next == NextStep::Messages;
        Ok(next == NextStep::End || next == NextStep::Bytes && self.has_all)
    }
}

impl IngestRequest {
    /// Passes the next bytes of the body to the decoder.
    fn fill(&mut self, body: &mut Pieces) -> Result<()> {
        let mut buffer = [0; PIECE];
        match body.next(&mut buffer)? {
            Piece::End => {
                self.decoder.end();
                self.has_all = true;
            }
            Piece::Bytes(len) => self.decoder.push(&buffer[..len]),
            Piece::Nothing => {}
        }
        Ok(())
    }

    /// Stores the messages in the decoder, until the time slice of the step is over.
    fn take(&mut self, context: &mut Context<'_>) -> NextStep {
        let Self { decoder, arena, timers, messages, pending_timer, .. } = self;
        let mut intake = context.intake();
        let Context { inputs, outcome, begun } = context;
        if let Some(timer) = pending_timer {
            match timer.step(inputs, &mut intake, timers, *begun) {
                Ok(false) => return NextStep::Messages,
                Ok(true) => outcome.count_taken(1),
                Err(fault) => refuse(outcome, *messages, timer.position, fault),
            }
            *pending_timer = None;
        }
        let mut count = 0;
        loop {
            count += 1;
            if count % MESSAGES_PER_LOOK == 0 && begun.elapsed() >= STEP {
                return NextStep::Messages;
            }
            let position = decoder.position();
            let mut guard = arena.guard();
            let message = match decoder.next(&guard.scope()) {
                Ok(None) => return NextStep::Bytes,
                Ok(Some(message)) => message,
                Err(error) => {
                    *messages += 1;
                    drop(guard);
                    outcome.refuse("malformed", format_args!("message {messages}: {error}"));
                    // If the decoder has advanced, it can find the next message after the error.
                    if decoder.position() > position {
                        continue;
                    }
                    return NextStep::End;
                }
            };
            *messages += 1;
            let taken = match metric(&message) {
                Ok(Message::BatchTimer(timer)) if timer.values.len() > VALUES_PER_LOOK => {
                    *pending_timer = Some(PendingTimer::new(&timer, position));
                    return NextStep::Messages;
                }
                Ok(message) => take(inputs, &mut intake, &message, timers),
                Err(fault) => Err(fault),
            };
            match taken {
                Ok(()) => outcome.count_taken(1),
                Err(fault) => refuse(outcome, *messages, position, fault),
            }
        }
    }
}

fn refuse(outcome: &mut RequestOutcome, message: u64, position: u64, (reason, detail): Fault) {
    outcome.refuse(reason, format_args!("message {message}, at byte {position}: {detail}"));
}

/// Returns the message, if it is a metric.
fn metric<'m>(message: &Message<'m>) -> Result<Message<'m>, Fault> {
    match message {
        Message::MetricUnion(union) => union.to_metric().ok_or_else(|| {
            let detail = "a union needs the type of a metric, and no value of another type";
            ("union", detail.to_owned())
        }),
        metric => Ok(*metric),
    }
}

/// Stores a message. If a value of a timer is not a number, only the values before it are observed.
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
            Message::Counter(counter) => take(InputValue::Counter(counter.value as f64), Mode::Add),
            Message::Gauge(gauge) => take(InputValue::Gauge(gauge.value), Mode::Set),
            Message::BatchTimer(timer) => timer.values.iter().try_for_each(|value| {
                take(InputValue::Observation { value: *value, weight: 1.0 }, Mode::Add)
            }),
            Message::MetricUnion(_) => Ok(()),
        }
    });
    let taken = taken.map_err(|detail| wrong_id(message.id(), detail))?;
    taken.map_err(|refused| (refused.reason(), intake.explain(refused).to_string()))
}

fn wrong_id(id: &[u8], detail: &str) -> Fault {
    let shown = String::from_utf8_lossy(&id[..id.len().min(100)]);
    ("id", format!("{detail}: {:?}", cut(&shown, 100)))
}
