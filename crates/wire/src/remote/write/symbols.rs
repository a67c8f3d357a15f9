//! The symbol table of a remote write 2.0 request.

use alloc::vec::Vec;

use hashbrown::HashTable;

use crate::error::Fault;
use crate::hash::Secrets;
use crate::pieces::{Byte, Bytes, Varint, append};

/// Strings, stored once each, and their numbers. Number 0 is the empty string.
///
/// Most series differ from the previous series in few labels, and the values of these labels often
/// repeat in the same order, for example in the same metric of another program. So a string is
/// first compared to the string at the same place in the previous series, then to the string that
/// last followed that one. Only if both differ, it is looked up.
///
/// The comparison to followers helps if two of five labels change from series to series in the same
/// order in each family: a series takes 1211 instructions instead of 1291. If no value repeats, it
/// takes 1447 instead of 1426.
#[derive(Debug, Default)]
pub(super) struct Symbols {
    /// The concatenated strings.
    texts: Vec<u8>,
    /// The end of each string, from number 1 on.
    ends: Vec<usize>,
    /// For each string, the number of the string that last followed it at its place, or 0.
    followers: Vec<u32>,
    numbers: HashTable<u32>,
    secrets: Secrets,
}

impl Symbols {
    /// Returns the number of a string, and adds the string to the table if it is new. `guess` is
    /// the number of the previous string at the same place, and is set to the returned number.
    #[inline]
    pub(super) fn number(&mut self, text: &str, guess: &mut u32) -> Result<u32, Fault> {
        if text.is_empty() {
            return Ok(0);
        }
        if !self.is(*guess, text) {
            *guess = self.after(*guess, text)?;
        }
        Ok(*guess)
    }

    /// Returns whether this is the number of the string.
    #[inline]
    pub(super) fn is(&self, number: u32, text: &str) -> bool {
        let is_used = number != 0 && number as usize <= self.ends.len();
        is_used && is_same(text_of(&self.texts, &self.ends, number), text.as_bytes())
    }

    /// Returns the number of a string that follows string `before`.
    fn after(&mut self, before: u32, text: &str) -> Result<u32, Fault> {
        let before = (before as usize).wrapping_sub(1);
        if let Some(next) = self.followers.get(before)
            && self.is(*next, text)
        {
            return Ok(*next);
        }
        let number = self.find_or_add(text)?;
        if let Some(next) = self.followers.get_mut(before) {
            *next = number;
        }
        Ok(number)
    }

    fn find_or_add(&mut self, text: &str) -> Result<u32, Fault> {
        let Symbols { texts, ends, followers, numbers, secrets } = self;
        let hash = secrets.hash(text.as_bytes());
        let same = |number: &u32| text_of(texts, ends, *number) == text.as_bytes();
        if let Some(number) = numbers.find(hash, same) {
            return Ok(*number);
        }
        let number = u32::try_from(ends.len() + 1)
            .map_err(|_| Fault::unwritable("a request must have less than 2^32 texts"))?;
        texts.extend_from_slice(text.as_bytes());
        ends.push(texts.len());
        followers.push(0);
        numbers.insert_unique(hash, number, |number| secrets.hash(text_of(texts, ends, *number)));
        Ok(number)
    }

    /// Returns the approximate length of the table in a request.
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
        self.followers.clear();
        self.numbers.clear();
    }
}

/// Returns the string with this number, from 1 on.
fn text_of<'t>(texts: &'t [u8], ends: &[usize], number: u32) -> &'t [u8] {
    let index = number as usize - 1;
    let start = if index == 0 { 0 } else { ends[index - 1] };
    &texts[start..ends[index]]
}

/// Compares strings inline, because most are too short for a call.
#[inline]
fn is_same(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    match one.len() {
        17.. => one == other,
        8.. => {
            one.first_chunk::<8>() == other.first_chunk()
                && one.last_chunk::<8>() == other.last_chunk()
        }
        4.. => {
            one.first_chunk::<4>() == other.first_chunk()
                && one.last_chunk::<4>() == other.last_chunk()
        }
        _ => one.iter().zip(other).all(|(one, other)| one == other),
    }
}

#[cfg(test)]
mod tests {
    use std::format;
    use std::string::String;

    use super::*;

    #[test]
    fn texts_have_one_number_each_in_any_order() {
        let mut symbols = Symbols::default();
        for _ in 0..2 {
            let mut known: Vec<String> = Vec::new();
            let mut guess = [0; 2];
            // First repeat the order, then change it. The previous strings can be from an earlier
            // request.
            for n in [0, 1, 2, 0, 1, 2, 2, 1, 0, 3, 0, 2, 300, 3, 0, 1] {
                for (text, guess) in [format!("v{n}"), "x".repeat(n)].iter().zip(&mut guess) {
                    let number = symbols.number(text, guess).unwrap() as usize;
                    let place = known.iter().position(|known| known == text);
                    let expected = match place {
                        _ if text.is_empty() => 0,
                        Some(place) => place + 1,
                        None => {
                            known.push(text.clone());
                            known.len()
                        }
                    };
                    assert_eq!(number, expected, "{text}");
                }
            }
            symbols.clear();
        }
    }

    #[test]
    fn texts_of_any_length_are_compared() {
        for len in 0..40 {
            let text: Vec<u8> = (0..len).collect();
            assert!(is_same(&text, &text.clone()));
            assert!(!is_same(&text, &[&text[..], &[0]].concat()));
            for at in 0..text.len() {
                let mut other = text.clone();
                other[at] ^= 1;
                assert!(!is_same(&text, &other), "{at} of {len}");
            }
        }
    }
}
