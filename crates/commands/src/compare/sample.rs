//! Reads the sample of `quipu messages compare` into memory: the messages of a file, up to a limit.

use quipu_arena::{Arena, Scope};
use quipu_wire::{AnyFormat, BatchTimer, Counter, Gauge, Message, MetricUnion};

use super::Compare;
use crate::output::Error;
use crate::wire::{CHUNK, FramingName, Head, Input, MessageKind, Reading, messages};

/// The maximum number of messages in a sample.
const MESSAGES: usize = 1_000_000;

/// The maximum memory of the messages, in bytes.
const BYTES: usize = 256 << 20;

/// The messages to compare, and their file.
pub(super) struct Sample<'m> {
    pub(super) messages: Vec<Message<'m>>,
    /// The name of the file in messages to the user.
    pub(super) name: String,
    pub(super) format: AnyFormat,
    pub(super) kind: MessageKind,
    /// The size of the messages in the file, in bytes.
    pub(super) bytes: u64,
    /// Whether the sample contains all messages of the file.
    pub(super) is_all: bool,
}

impl<'m> Sample<'m> {
    /// Reads messages of the input into the scope, up to the limits.
    pub(super) fn read(
        mut input: Input,
        arguments: &Compare,
        scope: &Scope<'m>,
    ) -> Result<Sample<'m>, Error> {
        let Compare { message: kind, from_framing: framing, .. } = *arguments;
        let mut buffer = vec![0; CHUNK];
        let mut head = Head::default();
        // Fill the head, because guessing the format needs all of it, and a slow pipe delivers only
        // a line at first.
        while head.room() > 0 {
            let len = input.read(&mut buffer[..head.room()])?;
            if len == 0 {
                head.end();
                break;
            }
            head.push(&buffer[..len]);
        }
        let format = match arguments.from {
            Some(format) => format,
            None => guess(arguments, &head, &input)?,
        };
        let mut sample = Sample {
            messages: Vec::new(),
            name: input.name().into(),
            format,
            kind,
            bytes: 0,
            is_all: false,
        };
        let mut decoder = format.decoder(kind.kind(), framing.framing());
        let mut arena = Arena::new();
        let mut memory = 0;
        decoder.push(head.bytes());
        let mut ended = head.is_all();
        if ended {
            decoder.end();
        }
        'full: loop {
            loop {
                if sample.messages.len() == MESSAGES || memory >= BYTES {
                    break 'full;
                }
                let mut guard = arena.guard();
                match decoder.next(&guard.scope()) {
                    Ok(Some(message)) => {
                        memory += size_of::<Message>() + size(&message);
                        sample.messages.push(copy(message, scope));
                    }
                    Ok(None) => break,
                    Err(fault) => {
                        let hint = head.hint(Reading { format, kind, framing });
                        let hint = hint.map_or_else(String::new, |hint| format!("; {hint}"));
                        let number = messages(sample.messages.len() as u64);
                        return Err(Error::new(format_args!(
                            "{}: {fault}; {number} could be read before it{hint}",
                            sample.name
                        )));
                    }
                }
            }
            if ended {
                sample.is_all = true;
                break;
            }
            let len = input.read(&mut buffer)?;
            decoder.push(&buffer[..len]);
            if len == 0 {
                ended = true;
                decoder.end();
            }
        }
        sample.bytes = decoder.position();
        match sample.messages.is_empty() {
            true => Err(Error::new(format_args!("{}: no messages to compare", sample.name))),
            false => Ok(sample),
        }
    }
}

/// Returns the format of the file's extension, or else the only format that can read the head.
fn guess(arguments: &Compare, head: &Head, input: &Input) -> Result<AnyFormat, Error> {
    let Compare { file, message: kind, from_framing: framing, .. } = arguments;
    let extension = file.extension().and_then(|extension| extension.to_str());
    if let Some(Ok(format)) = extension.map(str::parse) {
        return Ok(format);
    }
    let name = input.name();
    let possible = head.formats(*kind, *framing);
    match possible[..] {
        [format] => Ok(format),
        [] => {
            let framing = match framing {
                FramingName::Own => "",
                _ => ", with this framing",
            };
            Err(Error::new(format_args!(
                "{name}: no format can read it{framing}; name the format with --from, and see \
                 --from-framing and --message"
            )))
        }
        _ => {
            let names: Vec<_> = possible.iter().map(|format| format.as_str()).collect();
            let names = names.join(", ");
            Err(Error::new(format_args!(
                "{name}: several formats can read it; say which with --from: {names}"
            )))
        }
    }
}

fn copy<'m>(message: Message<'_>, scope: &Scope<'m>) -> Message<'m> {
    let id = &*scope.alloc_slice_copy(message.id());
    match message {
        Message::Counter(Counter { value, .. }) => Counter { id, value }.into(),
        Message::BatchTimer(BatchTimer { values, .. }) => {
            BatchTimer { id, values: scope.alloc_slice_copy(values) }.into()
        }
        Message::Gauge(Gauge { value, .. }) => Gauge { id, value }.into(),
        Message::MetricUnion(MetricUnion { metric_type, counter, timer, gauge, .. }) => {
            let timer = &*scope.alloc_slice_copy(timer);
            MetricUnion { metric_type, id, counter, timer, gauge }.into()
        }
    }
}

/// Returns the memory of a message beyond its struct, in bytes.
pub(super) fn size(message: &Message<'_>) -> usize {
    message.id().len() + size_of_val(message.to_union().timer)
}
