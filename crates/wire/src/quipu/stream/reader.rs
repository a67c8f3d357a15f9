//! The reader of a stream, which checks that no block is missing.

use alloc::boxed::Box;

use quipu_arena::{Scope, ScopeGuard};

use super::block::Block;
use super::dictionary::Dictionary;
use super::header::{HEADER, Header, MAGIC};
use crate::error::Fault;
use crate::message::{Kind, Message};
use crate::reader::Reader;

/// The state of a [`Decoder<Quipu>`](crate::Decoder), which reads a stream in quipu's own format.
///
/// If you lost blocks, or join a stream in its middle, call [`find_start`](Self::find_start) and
/// continue there with a new decoder.
#[derive(Debug)]
pub struct StreamReader {
    dictionary: Dictionary,
    block: Box<Block>,
    /// The next block's sequence number, if known.
    sequence: Option<u32>,
    /// A fault that [`read_usual`](Self::read_usual) found, and its offset in the block.
    fault: Option<(Fault, usize)>,
    /// Whether messages are being passed to a function. This stays set if the function panics.
    is_passing: bool,
}

impl Default for StreamReader {
    fn default() -> StreamReader {
        StreamReader {
            dictionary: Dictionary::default(),
            block: Block::empty(),
            sequence: None,
            fault: None,
            is_passing: false,
        }
    }
}

impl StreamReader {
    /// Finds the place to start if you join a stream in its middle: the beginning of the first
    /// complete and undamaged block that restarts the dictionary. Returns `None` if you need to
    /// wait for such a block.
    ///
    /// Bytes that only look like blocks cost time too. For this reason, the search gives up and
    /// returns `None` once it has computed checksums over 16 times the length of the stream.
    pub fn find_start(stream: &[u8]) -> Option<usize> {
        let mut left = stream.len().saturating_mul(16);
        let mut from = 0;
        while let Some(found) = stream[from..].windows(3).position(|bytes| bytes == MAGIC) {
            let at = from + found;
            if let Some(len) = Header::restart_len(&stream[at..]) {
                left = left.checked_sub(len)?;
                if Header::read(&mut Reader::new(&stream[at..])).is_ok() {
                    return Some(at);
                }
            }
            from = at + 1;
        }
        None
    }

    /// Returns the next message. A block is checked completely before its first message is
    /// returned, so you never get a message from a damaged or malformed block.
    #[inline(always)]
    pub(in crate::quipu) fn read<'m>(
        &'m mut self,
        kind: Kind,
        input: &mut Reader<'m>,
        scope: &Scope<'m>,
    ) -> Result<Option<Message<'m>>, Fault> {
        if self.block.left() == 0 {
            if input.is_empty() {
                return Ok(None);
            }
            input.apart(|input| self.begin(kind, input, scope))?;
        }
        Ok(self.block.next(&mut self.dictionary, kind))
    }

    /// Passes the messages of all complete blocks to a function, up to a faulty block. Returns the
    /// number of bytes read.
    #[inline(always)]
    pub(in crate::quipu) fn read_usual(
        &mut self,
        kind: Kind,
        input: &[u8],
        guard: &mut ScopeGuard<'_>,
        take: &mut impl FnMut(Message<'_>),
    ) -> usize {
        let mut read = 0;
        if self.is_passing {
            return read;
        }
        loop {
            self.is_passing = true;
            self.block.for_each(&mut self.dictionary, kind, take);
            self.is_passing = false;
            let rest = &input[read..];
            if rest.is_empty() || self.fault.is_some() {
                return read;
            }
            let mut block = Reader::new(rest);
            let begun = self.begin(kind, &mut block, &guard.scope());
            guard.reset();
            match begun {
                Ok(()) => read += block.position(),
                Err(fault) => {
                    if !fault.is_incomplete() {
                        self.fault = Some((fault, block.position()));
                    }
                    return read;
                }
            }
        }
    }

    /// Reads a block, if it is complete. Otherwise the input is unchanged.
    #[inline(never)]
    fn begin(
        &mut self,
        kind: Kind,
        input: &mut Reader<'_>,
        scope: &Scope<'_>,
    ) -> Result<(), Fault> {
        if let Some((fault, at)) = self.fault {
            input.advance(at);
            return Err(fault);
        }
        if self.is_passing {
            return Err(Fault::malformed("a new decoder: a function panicked with the stream"));
        }
        let before = *input;
        let (header, body) = Header::read(input)?;
        let fault = self.follow(&header);
        *input = before;
        if let Some(fault) = fault {
            return Err(fault);
        }
        input.advance(HEADER);
        if header.restarts {
            self.dictionary.clear();
        }
        self.sequence = Some(header.sequence.wrapping_add(1));
        let mut copy = Reader::new(body);
        let read = self.block.read(&header, &mut self.dictionary, kind, &mut copy, scope);
        input.advance(copy.position());
        read.map_err(|fault| {
            self.block.clear();
            if fault.is_incomplete() {
                Fault::malformed("a message within its block")
            } else {
                fault
            }
        })
    }

    /// Returns a fault if the block does not continue the previous one.
    fn follow(&self, header: &Header) -> Option<Fault> {
        let begins = header.restarts && header.sequence == 0;
        match self.sequence {
            None if !header.restarts => Some(Fault::malformed(
                "a block that begins the dictionary: the stream was joined in its middle",
            )),
            Some(sequence) if sequence != header.sequence && !begins => {
                Some(Fault::malformed("the next block: one or more blocks were lost"))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use quipu_arena::Arena;

    use super::super::StreamWriter;
    use super::super::header::seal;
    use super::*;
    use crate::message::{BatchTimer, Counter, Gauge, MetricUnion};

    /// Returns a block with messages of all kinds and forms.
    fn block() -> Vec<u8> {
        let (mut writer, mut out) = (StreamWriter::default(), Vec::new());
        let mut append = |message: Message<'_>| writer.append(&message, &mut out).unwrap();
        for number in 0..40 {
            let id = &[b'a' + number % 3];
            append(Counter { id, value: i64::from(number).pow(5) }.into());
            append(Gauge { id, value: f64::from(number) / 8.0 }.into());
            let values = [f64::from(number) / 1000.0; 9];
            append(BatchTimer { id, values: &values[..usize::from(number) % 10] }.into());
        }
        append(Gauge { id: b"a", value: f64::NAN }.into());
        append(MetricUnion { id: b"u", gauge: 1.0, timer: &[-0.0], ..MetricUnion::ZERO }.into());
        writer.flush(&mut out);
        out
    }

    /// Reads a block with both functions. Returns the number of its messages, or the offset of the
    /// fault.
    fn read(block: &[u8]) -> Result<usize, usize> {
        let mut arena = Arena::new();
        let mut reader = StreamReader::default();
        let (mut at, mut count) = (0, 0);
        let next = loop {
            let mut guard = arena.guard();
            let mut input = Reader::new(&block[at..]);
            let read = reader.read(Kind::MetricUnion, &mut input, &guard.scope());
            at += input.position();
            match read {
                Ok(Some(_)) => count += 1,
                Ok(None) => break Ok(count),
                Err(_) => break Err(at),
            }
        };
        let (mut reader, mut guard) = (StreamReader::default(), arena.guard());
        let mut count = 0;
        reader.read_usual(Kind::MetricUnion, block, &mut guard, &mut |_| count += 1);
        let each = reader.fault.map_or(Ok(count), |(_, at)| Err(at));
        assert!(next == each, "{next:?}, {each:?}");
        next
    }

    #[test]
    fn a_block_whose_checksum_is_right_is_read_or_refused_with_its_place() {
        let block = block();
        assert_eq!(read(&block), Ok(122));
        let mut refused = 0;
        for at in (8..block.len()).step_by(if cfg!(miri) { 11 } else { 1 }) {
            let bytes = if cfg!(miri) { &[0xff][..] } else { &[0, 1, 8, 0x3f, 0x80, 0xff] };
            for byte in bytes {
                let mut changed = block.clone();
                changed[at] = *byte;
                seal(&mut changed);
                if let Err(position) = read(&changed) {
                    assert!(position <= block.len(), "{at}: {position}");
                    refused += 1;
                }
            }
        }
        assert!(refused > 10);
        // A body that is shorter or longer than its header claims.
        for len in (HEADER..block.len()).step_by(if cfg!(miri) { 31 } else { 1 }) {
            let mut short = block[..len].to_vec();
            seal(&mut short);
            read(&short).unwrap_err();
        }
        let mut long = [&block[..], &[0]].concat();
        seal(&mut long);
        assert_eq!(read(&long), Err(block.len()));
    }
}
