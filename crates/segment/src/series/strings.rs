//! A fixed set of texts, each of which has an index: the label values that are known when a family
//! is made.
//!
//! The hash uses a text's length and its first and last bytes, with a multiplier that is chosen
//! once so that few texts collide. A lookup is mostly one load of a slot and one comparison.

/// Texts with their indices.
#[derive(Debug, Clone)]
pub struct StringSet {
    /// All texts, concatenated.
    all: Box<str>,
    /// The start of each text, and the end of the last one.
    starts: Box<[u32]>,
    multiplier: u64,
    shift: u32,
    /// Collisions go to the next slot.
    slots: Box<[Slot]>,
}

/// A slot of the table: a text, or none if the number is 0.
#[derive(Debug, Clone, Copy, Default)]
struct Slot {
    start: u32,
    length: u32,
    /// The text's index plus one.
    number: u32,
}

impl StringSet {
    /// Makes a set.
    ///
    /// # Errors
    /// The first text that occurs twice.
    pub fn new<'t>(texts: &[&'t str]) -> Result<Self, &'t str> {
        let mut seen = std::collections::HashSet::new();
        if let Some(twice) = texts.iter().find(|text| !seen.insert(**text)) {
            return Err(twice);
        }
        let bits = (4 * texts.len().max(1)).next_power_of_two().trailing_zeros();
        let shift = u64::BITS - bits;
        let crowding = |multiplier: u64| {
            let mut counts = vec![0_u32; 1 << bits];
            for text in texts {
                counts[(digest(text.as_bytes()).wrapping_mul(multiplier) >> shift) as usize] += 1;
            }
            counts.iter().map(|&count| count.saturating_sub(1)).sum::<u32>()
        };
        // A handful of tries finds a multiplier without any collision for sets of a few dozen
        // texts.
        let multiplier = (0..TRIES)
            .map(|i| GOLDEN.wrapping_mul(2 * i + 1))
            .min_by_key(|&multiplier| crowding(multiplier))
            .unwrap_or(GOLDEN);
        let mut slots = vec![Slot::default(); 1 << bits].into_boxed_slice();
        let mut all = String::new();
        let mut starts = vec![0];
        for (number, text) in (1..).zip(texts) {
            // A family's description is smaller than 4 GiB, and contains the texts.
            let (start, length) = (all.len() as u32, text.len() as u32);
            all.push_str(text);
            starts.push(all.len() as u32);
            let mut at = (digest(text.as_bytes()).wrapping_mul(multiplier) >> shift) as usize;
            while slots[at].number != 0 {
                at = (at + 1) & (slots.len() - 1);
            }
            slots[at] = Slot { start, length, number };
        }
        Ok(Self { all: all.into(), starts: starts.into(), multiplier, shift, slots })
    }

    /// The index of a text.
    #[inline(never)]
    pub fn find(&self, text: &str) -> Option<u32> {
        let mut at = (digest(text.as_bytes()).wrapping_mul(self.multiplier) >> self.shift) as usize;
        // The table has at least four slots per text, so there is an empty one.
        loop {
            let slot = self.slots.get(at)?;
            let index = slot.number.checked_sub(1)?;
            if slot.length as usize == text.len() {
                // Not `slot.length`, so that the compiler knows that both are of one length.
                let found = self.all.as_bytes().get(slot.start as usize..)?.get(..text.len())?;
                if same(found, text.as_bytes()) {
                    return Some(index);
                }
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }

    /// The text with that index.
    pub fn text(&self, index: u32) -> Option<&str> {
        let (start, end) = (self.starts.get(index as usize)?, self.starts.get(index as usize + 1)?);
        self.all.get(*start as usize..*end as usize)
    }

    /// The number of texts.
    #[inline]
    pub fn len(&self) -> u32 {
        // `new` numbered them with u32s.
        self.starts.len() as u32 - 1
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A digest of the length and the first and last bytes, each a load or two.
#[inline]
fn digest(text: &[u8]) -> u64 {
    let length = text.len() as u64;
    if let (Some(first), Some(last)) = (text.first_chunk::<8>(), text.last_chunk::<8>()) {
        let mixed = u64::from_le_bytes(*first) ^ u64::from_le_bytes(*last).rotate_left(23);
        return mixed.wrapping_add(length.wrapping_mul(GOLDEN));
    }
    if let (Some(first), Some(last)) = (text.first_chunk::<4>(), text.last_chunk::<4>()) {
        let first = u64::from(u32::from_le_bytes(*first));
        let both = first << 32 | u64::from(u32::from_le_bytes(*last));
        return both.wrapping_add(length.wrapping_mul(GOLDEN));
    }
    let byte = |at: usize| u64::from(text.get(at).copied().unwrap_or(0));
    byte(0) | byte(1) << 8 | byte(2) << 16 | length << 24
}

/// Compares two texts of the same length by overlapping loads: for texts as short as labels, a call
/// of the library's comparison costs more than the comparison, and makes the caller save registers.
#[inline]
fn same(one: &[u8], other: &[u8]) -> bool {
    if let (Some(a), Some(b)) = (one.last_chunk::<16>(), other.last_chunk::<16>()) {
        let mut chunks = one.as_chunks::<16>().0.iter().zip(other.as_chunks::<16>().0);
        return a == b && chunks.all(|(a, b)| a == b);
    }
    if let (Some(a), Some(b)) = (one.last_chunk::<8>(), other.last_chunk::<8>()) {
        return a == b && one.first_chunk::<8>() == other.first_chunk::<8>();
    }
    if let (Some(a), Some(b)) = (one.last_chunk::<4>(), other.last_chunk::<4>()) {
        return a == b && one.first_chunk::<4>() == other.first_chunk::<4>();
    }
    one.iter().zip(other).all(|(a, b)| a == b)
}

/// 2^64 divided by the golden ratio, for Fibonacci hashing (Knuth, vol. 3, 6.4).
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
const TRIES: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_is_found_and_no_other() {
        let texts: Vec<String> = (0..if cfg!(miri) { 20 } else { 300 })
            .map(|i| "x".repeat(i % 40) + &i.to_string())
            .chain([
                "".into(),
                "a".into(),
                "ab".into(),
                "abc".into(),
                "abcd".into(),
                "\u{e9}".into(),
            ])
            .collect();
        let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
        let set = StringSet::new(&texts).unwrap();
        for (i, text) in texts.iter().enumerate() {
            assert_eq!(set.find(text), Some(i as u32), "{text:?}");
            assert_eq!(set.text(i as u32), Some(*text));
        }
        for other in ["b", "abcde", "xxxxxxxxxxxxxxxxxxxxxxxxxxxx", "\0", "ba"] {
            assert_eq!(set.find(other), None, "{other:?}");
        }
    }

    #[test]
    fn a_text_that_is_there_twice_is_named() {
        assert_eq!(StringSet::new(&["a", "b", "a"]).unwrap_err(), "a");
        assert_eq!(StringSet::new(&[]).unwrap().find(""), None);
    }
}
