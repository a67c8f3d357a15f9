//! A fixed set of strings, each of which has an index: the label values that are known when a
//! family is created.
//!
//! The set is a hash table. The hash covers only the length and the first and last bytes of a
//! string, its [ends](Ends). The multiplier of the hash is chosen when the set is created, so that
//! few strings collide. A slot is one cache line, which holds all bytes of a string of up to 32
//! bytes, so a lookup of such a string usually reads one line.

/// A fixed set of strings with their indexes.
#[derive(Debug, Clone)]
pub struct StringSet {
    /// The table. Collisions go to the next slot.
    slots: Box<[StringSlot]>,
    multiplier: u64,
    shift: u32,
    count: u32,
    /// All strings, concatenated.
    all: Box<str>,
    /// The start of each string, and the end of the last.
    starts: Box<[u32]>,
}

/// A slot of the table, on a separate cache line.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
struct StringSlot {
    ends: Ends,
    /// The bytes between the ends of a string of 17 to 32 bytes, as two words that may overlap.
    middle: [u64; 2],
    /// The length; `EMPTY` for no string, and `LONG` for a string of more than 32 bytes.
    length: u64,
    index: u32,
}

/// The first and the last bytes of a string. Together with the length, they determine a string of
/// up to 16 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ends(u64, u64);

/// Marks an empty slot, because no string can be this long.
const EMPTY: u64 = u64::MAX;
/// Marks a slot of a string that is longer than `MOST`, which is compared in `all`.
const LONG: u64 = u64::MAX - 1;
/// The maximum length of a string that fits into a slot, in bytes.
const MOST: usize = 32;

impl StringSet {
    /// Creates a set.
    ///
    /// # Errors
    /// The first string that occurs twice.
    pub fn new<'t>(texts: &[&'t str]) -> Result<Self, &'t str> {
        let bits = (2 * texts.len().max(1)).next_power_of_two().trailing_zeros();
        let shift = u64::BITS - bits;
        let digests: Vec<u64> =
            texts.iter().map(|text| Ends::load(text.as_bytes()).digest(text.len())).collect();
        let multiplier = choose_multiplier(&digests, shift);
        let empty = StringSlot { ends: Ends(0, 0), middle: [0; 2], length: EMPTY, index: 0 };
        let mut slots = vec![empty; 1 << bits].into_boxed_slice();
        let mut all = String::with_capacity(texts.iter().map(|text| text.len()).sum());
        let mut starts = Vec::with_capacity(texts.len() + 1);
        starts.push(0);
        for (index, (text, digest)) in (0..).zip(texts.iter().zip(digests)) {
            all.push_str(text);
            starts.push(all.len() as u32);
            let bytes = text.as_bytes();
            let (ends, middle) = (Ends::load(bytes), middle(bytes).unwrap_or_default());
            let length = if text.len() > MOST { LONG } else { text.len() as u64 };
            let mut at = (digest.wrapping_mul(multiplier) >> shift) as usize;
            while slots[at].length != EMPTY {
                let other = &slots[at];
                if (other.ends, other.length) == (ends, length)
                    && texts[other.index as usize] == *text
                {
                    return Err(text);
                }
                at = (at + 1) & (slots.len() - 1);
            }
            slots[at] = StringSlot { ends, middle, length, index };
        }
        let count = texts.len() as u32;
        Ok(Self { slots, multiplier, shift, count, all: all.into(), starts: starts.into() })
    }

    /// Returns the index of a string.
    #[inline(never)]
    pub fn find(&self, text: &str) -> Option<u32> {
        let bytes = text.as_bytes();
        let ends = Ends::load(bytes);
        let digest = ends.digest(bytes.len());
        let home = (digest.wrapping_mul(self.multiplier) >> self.shift) as usize;
        let slot = self.slots.get(home)?;
        if slot.ends == ends
            && slot.length == bytes.len() as u64
            && (bytes.len() <= 16 || middle(bytes) == Some(slot.middle))
        {
            return Some(slot.index);
        }
        self.find_from(home, text)
    }

    /// Returns the index of a string that is long, or not in its home slot. Out of line, so `find`
    /// need not spill registers.
    #[inline(never)]
    fn find_from(&self, home: usize, text: &str) -> Option<u32> {
        // The table contains at least two slots per string, so there is an empty slot.
        let (before, from) = self.slots.split_at_checked(home)?;
        from.iter()
            .chain(before)
            .take_while(|slot| slot.length != EMPTY)
            .find(|slot| self.text(slot.index) == Some(text))
            .map(|slot| slot.index)
    }

    /// Returns the string with this index.
    pub fn text(&self, index: u32) -> Option<&str> {
        let (start, end) = (self.starts.get(index as usize)?, self.starts.get(index as usize + 1)?);
        self.all.get(*start as usize..*end as usize)
    }

    /// Returns the number of strings.
    #[inline]
    pub fn len(&self) -> u32 {
        self.count
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Ends {
    /// Loads the ends with two loads of equal size. In a short string, they overlap, because no
    /// load may go beyond the string.
    #[inline]
    fn load(text: &[u8]) -> Self {
        if let (Some(first), Some(last)) = (text.first_chunk(), text.last_chunk()) {
            return Self(u64::from_le_bytes(*first), u64::from_le_bytes(*last));
        }
        if let (Some(first), Some(last)) = (text.first_chunk(), text.last_chunk()) {
            return Self(u32::from_le_bytes(*first).into(), u32::from_le_bytes(*last).into());
        }
        match *text {
            [] => Self(0, 0),
            [first, ..] => Self(
                first.into(),
                u64::from(text[text.len() / 2]) << 8 | u64::from(text[text.len() - 1]),
            ),
        }
    }

    #[inline]
    fn digest(self, length: usize) -> u64 {
        (self.0 ^ self.1.rotate_left(23)).wrapping_add(length as u64)
    }
}

/// Returns the bytes between the ends of a string of 17 to 32 bytes.
#[inline]
pub(super) fn middle(text: &[u8]) -> Option<[u64; 2]> {
    let (first, last) = (text.first_chunk::<16>()?, text.last_chunk::<16>()?);
    let (first, last) = (first.last_chunk()?, last.first_chunk()?);
    Some([u64::from_le_bytes(*first), u64::from_le_bytes(*last)])
}

/// Chooses a multiplier that sends few of the digests to the slot of another digest.
///
/// For a set of up to a dozen strings, one of the first tries avoids all collisions. For a larger
/// set, the best of all tries leaves few.
fn choose_multiplier(digests: &[u64], shift: u32) -> u64 {
    let mut taken = vec![0_u64; (1_usize << (u64::BITS - shift)).div_ceil(64)];
    let mut collisions = |multiplier: u64| {
        taken.fill(0);
        digests.iter().fold(0_u32, |collisions, digest| {
            let slot = digest.wrapping_mul(multiplier) >> shift;
            let (word, bit) = (&mut taken[slot as usize / 64], 1 << (slot % 64));
            let is_taken = *word & bit != 0;
            *word |= bit;
            collisions + u32::from(is_taken)
        })
    };
    let (mut best, mut least) = (GOLDEN, u32::MAX);
    for i in 0..TRIES {
        let multiplier = GOLDEN.wrapping_mul(2 * i + 1);
        let collisions = collisions(multiplier);
        if collisions < least {
            (best, least) = (multiplier, collisions);
        }
        if least == 0 {
            break;
        }
    }
    best
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
            .map(|i| "x".repeat(i % 40) + &i.to_string() + &"y".repeat(i % 17))
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
        // A string that differs in one byte is not in the set.
        for text in &texts {
            for at in (0..text.len()).filter(|_| text.is_ascii()) {
                let other = [&text[..at], "-", &text[at + 1..]].concat();
                assert_eq!(set.find(&other), None, "{other:?}");
            }
        }
    }

    #[test]
    fn a_text_that_is_there_twice_is_named() {
        assert_eq!(StringSet::new(&["a", "b", "a"]).unwrap_err(), "a");
        let long = "x".repeat(100);
        assert_eq!(StringSet::new(&[&long, &long[1..], &long]).unwrap_err(), long);
        assert_eq!(StringSet::new(&[]).unwrap().find(""), None);
    }
}
