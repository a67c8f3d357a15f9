//! Suggests how to read an input that is unreadable with the given arguments.
//!
//! We read the first bytes of the input with every other format, kind and framing. A combination
//! that reads all of them without an error is suggested, because wrong ones fail within a few
//! messages.

use quipu_arena::Arena;
use quipu_wire::{AnyFormat, Framing, Kind};

use super::{FramingName, MessageKind, input};
use clap::ValueEnum;

/// The format, kind and framing for reading an input.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    pub(crate) format: AnyFormat,
    pub(crate) kind: MessageKind,
    pub(crate) framing: FramingName,
}

/// The first bytes of an input.
#[derive(Debug, Default)]
pub(crate) struct Head {
    bytes: Vec<u8>,
    has_more: bool,
    has_ended: bool,
}

impl Head {
    /// Appends the next bytes of the input, up to the limit of the head.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        let taken = bytes.len().min(self.room());
        self.bytes.extend_from_slice(&bytes[..taken]);
        self.has_more |= taken < bytes.len();
    }

    /// Records that the input has ended.
    pub(crate) fn end(&mut self) {
        self.has_ended = true;
    }

    /// Returns the number of bytes that the head can still store.
    pub(crate) fn room(&self) -> usize {
        input::CHUNK - self.bytes.len()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns whether the head contains the whole input.
    pub(crate) fn is_all(&self) -> bool {
        self.has_ended && !self.has_more
    }

    /// Returns the formats that can read the head as messages of this kind, with this framing.
    pub(crate) fn formats(&self, kind: MessageKind, framing: FramingName) -> Vec<AnyFormat> {
        AnyFormat::all()
            .filter(|format| self.can_be_read(Reading { format: *format, kind, framing }))
            .collect()
    }

    /// Returns a question that suggests other arguments, if the head is unreadable with `reading`.
    pub(crate) fn hint(&self, reading: Reading) -> Option<String> {
        if self.can_be_read(reading) {
            // The arguments are right, and the error is further on.
            return None;
        }
        let framings = || FramingName::value_variants().iter().copied();
        let kinds = || MessageKind::value_variants().iter().copied();
        if let Some(framing) =
            framings().find(|f| self.can_be_read(Reading { framing: *f, ..reading }))
        {
            let framing = name(&framing);
            return Some(format!("is the framing {framing}? --from-framing {framing}"));
        }
        if let Some(kind) = kinds().find(|k| self.can_be_read(Reading { kind: *k, ..reading })) {
            let kind = name(&kind);
            return Some(format!("is each message a {kind}? --message {kind}"));
        }
        for framing in framings() {
            let both = |k: &MessageKind| self.can_be_read(Reading { kind: *k, framing, ..reading });
            if let Some(kind) = kinds().find(both) {
                let (kind, framing) = (name(&kind), name(&framing));
                return Some(format!(
                    "is each message a {kind}, and the framing {framing}? --message {kind} \
                     --from-framing {framing}"
                ));
            }
        }
        match self.formats(reading.kind, FramingName::Own)[..] {
            [format] => Some(format!("is the format {0}? --from {0}", format.as_str())),
            _ => None,
        }
    }

    /// Returns another kind that reproduces the first message exactly, if the given kind does not.
    pub(crate) fn other_kind(&self, reading: Reading) -> Option<MessageKind> {
        let exact = |kind: &MessageKind| self.is_exact(Reading { kind: *kind, ..reading });
        if exact(&reading.kind) {
            return None;
        }
        MessageKind::value_variants().iter().copied().find(exact)
    }

    /// Returns whether decoding and encoding reproduces the first message byte for byte.
    fn is_exact(&self, reading: Reading) -> bool {
        let Reading { format, kind, framing } = reading;
        let (kind, framing) = (kind.kind(), framing.framing());
        let mut decoder = format.decoder(kind, framing);
        decoder.push(&self.bytes);
        if self.is_all() {
            decoder.end();
        }
        let mut arena = Arena::new();
        let Ok(Some(message)) = decoder.next(&arena.as_scope()) else { return false };
        let (mut encoder, mut out) = (format.encoder(framing), Vec::new());
        let written = encoder.append(&message, &mut out);
        encoder.flush(&mut out);
        written.is_ok() && self.bytes.starts_with(out.trim_ascii_end())
    }

    fn can_be_read(&self, reading: Reading) -> bool {
        let Reading { format, kind, framing } = reading;
        let (kind, framing) = (kind.kind(), framing.framing());
        if framing == Framing::None && !format.is_delimited() && !self.is_all() {
            return false;
        }
        match self.read(format, kind, framing) {
            // A wrong framing can parse bytes as a large length, and wait for the rest.
            Some((messages, end)) => messages > 0 && end >= self.bytes.len() as u64 / 2,
            None => false,
        }
    }

    /// Returns the number of messages and the position after the last one; `None` if reading fails.
    fn read(&self, format: AnyFormat, kind: Kind, framing: Framing) -> Option<(u64, u64)> {
        let mut decoder = format.decoder(kind, framing);
        let mut arena = Arena::new();
        decoder.push(&self.bytes);
        if self.is_all() {
            decoder.end();
        }
        let mut messages = 0;
        loop {
            let mut guard = arena.guard();
            match decoder.next(&guard.scope()) {
                Ok(Some(_)) => messages += 1,
                Ok(None) => break,
                Err(_) => return None,
            }
        }
        Some((messages, decoder.position()))
    }
}

/// Returns a value as it is written on the command line.
pub(crate) fn name(value: &impl ValueEnum) -> String {
    value.to_possible_value().map_or_else(String::new, |value| value.get_name().into())
}
