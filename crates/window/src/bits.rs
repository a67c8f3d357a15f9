//! Bits in 64-bit words, lowest first.

/// Bits that are appended.
#[derive(Debug, Default)]
pub(crate) struct Bits {
    words: Vec<u64>,
    count: usize,
}

impl Bits {
    /// Room for `bits` bits.
    pub(crate) fn with_capacity(bits: usize) -> Self {
        Self { words: Vec::with_capacity(bits.div_ceil(64)), count: 0 }
    }

    /// Appends the lowest `count` bits of `value`, whose other bits are zero; `count` is 1 to 64.
    #[inline]
    pub(crate) fn put(&mut self, value: u64, count: u32) {
        debug_assert!((1..=64).contains(&count) && (count == 64 || value >> count == 0));
        let used = (self.count % 64) as u32;
        if used == 0 {
            self.words.push(value);
        } else {
            if let Some(last) = self.words.last_mut() {
                *last |= value << used;
            }
            if used + count > 64 {
                self.words.push(value >> (64 - used));
            }
        }
        self.count += count as usize;
    }

    /// All that was appended.
    pub(crate) fn words(&self) -> &[u64] {
        &self.words
    }

    /// The memory in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.words.capacity() * 8
    }

    /// Forgets all, and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.words.clear();
        self.count = 0;
    }
}

/// The 64 bits from bit `at` on; zeros behind the end.
#[inline]
pub(crate) fn peek(words: &[u64], at: usize) -> u64 {
    let (word, used) = (at / 64, at % 64);
    let low = words.get(word).copied().unwrap_or(0);
    if used == 0 {
        return low;
    }
    let high = words.get(word + 1).copied().unwrap_or(0);
    low >> used | high << (64 - used)
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
            assert_eq!(peek(bits.words(), at + 64), 0);
            bits.clear();
            assert!(bits.words().is_empty() && bits.bytes() > 0);
        }
    }
}
