//! A bit string in 64-bit words, lowest bit first.
//!
//! One spare word follows the last word in use, because this lets us read the 64 bits from any used
//! bit on out of two existing words. Bits after the last one in use are undefined.

/// A bit string that grows at its end. It allocates at its first bit.
#[derive(Debug, Default)]
pub(crate) struct Bits {
    /// All words that are allocated. Bits of the current word that are not in use are 0.
    words: Vec<u64>,
    count: usize,
}

/// The number of words that are allocated first: enough for 2048 codes of 8 bits.
const FIRST_WORDS: usize = 256 + 2;

impl Bits {
    /// Appends the lowest `count` bits of `value`, whose other bits are zero; `count` is 1 to 64.
    #[inline]
    pub(crate) fn put(&mut self, value: u64, count: u32) {
        while !self.try_put(value, count) {
            self.grow();
        }
    }

    /// Like [`Bits::put`], but returns false, without a change, if this needs more memory.
    #[inline]
    pub(crate) fn try_put(&mut self, value: u64, count: u32) -> bool {
        debug_assert!((1..=64).contains(&count) && (count == 64 || value >> count == 0));
        let (word, used) = (self.count / 64, (self.count % 64) as u32);
        let Some([low, high]) = self.words.get_mut(word..word + 2) else { return false };
        *low |= value << used;
        *high = value >> 1 >> (63 - used);
        self.count += count as usize;
        true
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        let words = (self.words.len() * 2).max(FIRST_WORDS);
        self.words.resize(words, 0);
    }

    /// Returns the words, for [`peek`].
    pub(crate) fn words(&self) -> &[u64] {
        self.words.get(..self.count / 64 + 2).unwrap_or(&self.words)
    }

    /// Returns the allocated memory in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.words.capacity() * 8
    }

    /// Removes all bits, and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.count = 0;
        if let Some(first) = self.words.first_mut() {
            *first = 0;
        }
    }
}

/// Returns the 64 bits from bit `at` on, which must be a bit in use.
#[inline]
pub(crate) fn peek(words: &[u64], at: usize) -> u64 {
    let (word, used) = (at / 64, (at % 64) as u32);
    match words[word..word + 2] {
        [low, high] => low >> used | high << 1 << (63 - used),
        _ => unreachable!("a slice of two words has two"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_peeked_as_they_were_put() {
        let values = [(5, 3), (0, 1), (u64::MAX, 64), (1, 1), (0x1234_5678_9abc, 48), (7, 64)];
        for start in 1..=64 {
            let mut bits = Bits::default();
            bits.put(0, start);
            for (value, count) in values {
                bits.put(value, count);
            }
            let mut at = start as usize;
            for (value, count) in values {
                let mask = u64::MAX >> (64 - count);
                assert_eq!(peek(bits.words(), at) & mask, value);
                at += count as usize;
            }
            bits.clear();
            bits.put(3, 2);
            assert_eq!(peek(bits.words(), 0), 3);
            assert!(bits.bytes() >= 16);
        }
    }
}
