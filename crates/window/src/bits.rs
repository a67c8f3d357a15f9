//! A bit string in 64-bit words, lowest bit first.
//!
//! One spare word follows the last word in use, so that the 64 bits from any used bit on can be
//! read from two existing words.

/// A bit string that grows at its end.
#[derive(Debug)]
pub(crate) struct Bits {
    words: Vec<u64>,
    count: usize,
}

impl Bits {
    /// Makes an empty string with room for `bits` bits.
    pub(crate) fn with_capacity(bits: usize) -> Self {
        let mut words = Vec::with_capacity(bits.div_ceil(64) + 2);
        words.extend([0, 0]);
        Self { words, count: 0 }
    }

    /// Appends the lowest `count` bits of `value`, whose other bits are zero; `count` is 1 to 64.
    #[inline]
    pub(crate) fn put(&mut self, value: u64, count: u32) {
        debug_assert!((1..=64).contains(&count) && (count == 64 || value >> count == 0));
        let (word, used) = (self.count / 64, (self.count % 64) as u32);
        if let [low, high] = &mut self.words[word..word + 2] {
            *low |= value << used;
            *high = value >> 1 >> (63 - used);
        }
        self.count += count as usize;
        if self.count / 64 > word {
            self.words.push(0);
        }
    }

    /// The words, for [`peek`].
    pub(crate) fn words(&self) -> &[u64] {
        &self.words
    }

    /// The allocated memory in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.words.capacity() * 8
    }

    /// Removes all bits, and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.words.clear();
        self.words.extend([0, 0]);
        self.count = 0;
    }
}

/// The 64 bits from bit `at` on, padded with zeros after the last bit. `at` must be a bit in use.
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
    fn what_is_put_is_peeked() {
        let values = [(5, 3), (0, 1), (u64::MAX, 64), (1, 1), (0x1234_5678_9abc, 48), (7, 64)];
        for start in 1..=64 {
            let mut bits = Bits::with_capacity(64);
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
