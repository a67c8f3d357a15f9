//! The symbol table of a remote write 2.0 request.

use alloc::vec::Vec;

use hashbrown::HashTable;

use crate::error::Fault;
use crate::hash::Secrets;
use crate::pieces::{Byte, Bytes, Varint, append};

/// Texts, each once, and their numbers. Number 0 is the empty text.
#[derive(Debug, Default)]
pub(super) struct Symbols {
    /// The concatenated texts.
    texts: Vec<u8>,
    /// Where each ends, from number 1 on.
    ends: Vec<usize>,
    numbers: HashTable<u32>,
    secrets: Secrets,
}

impl Symbols {
    /// Returns the number of a text, and adds the text to the table if it is new. It may be that
    /// of `guess`, which then saves the look into the table; this is the guess for the next text.
    pub(super) fn number(&mut self, text: &str, guess: &mut u32) -> Result<u32, Fault> {
        if text.is_empty() {
            return Ok(0);
        }
        if !self.is(*guess, text) {
            *guess = self.find_or_add(text)?;
        }
        Ok(*guess)
    }

    /// Whether this is the number of the text.
    fn is(&self, number: u32, text: &str) -> bool {
        let is_used = number != 0 && number as usize <= self.ends.len();
        is_used && text_of(&self.texts, &self.ends, number) == text.as_bytes()
    }

    fn find_or_add(&mut self, text: &str) -> Result<u32, Fault> {
        let Symbols { texts, ends, numbers, secrets } = self;
        let hash = secrets.hash(text.as_bytes());
        let same = |number: &u32| text_of(texts, ends, *number) == text.as_bytes();
        if let Some(number) = numbers.find(hash, same) {
            return Ok(*number);
        }
        let number = u32::try_from(ends.len() + 1)
            .map_err(|_| Fault::unwritable("a request must have less than 2^32 texts"))?;
        texts.extend_from_slice(text.as_bytes());
        ends.push(texts.len());
        numbers.insert_unique(hash, number, |number| secrets.hash(text_of(texts, ends, *number)));
        Ok(number)
    }

    /// Approximately how many bytes they take in a request.
    pub(super) fn len(&self) -> usize {
        2 + self.texts.len() + 2 * self.ends.len()
    }

    /// Appends the table as fields of a request.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        append(out, (Byte(0x22), Byte(0)));
        for number in 1..=self.ends.len() as u32 {
            let text = text_of(&self.texts, &self.ends, number);
            append(out, (Byte(0x22), Varint(text.len() as u64), Bytes(text)));
        }
    }

    pub(super) fn clear(&mut self) {
        self.texts.clear();
        self.ends.clear();
        self.numbers.clear();
    }
}

/// The text with this number, from 1 on.
fn text_of<'t>(texts: &'t [u8], ends: &[usize], number: u32) -> &'t [u8] {
    let index = number as usize - 1;
    let start = if index == 0 { 0 } else { ends[index - 1] };
    &texts[start..ends[index]]
}
