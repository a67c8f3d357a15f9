//! Lines that are written without a check for each part: the room for a whole line is reserved
//! first, and rendered strings are copied in blocks of a fixed size.

/// The number of bytes that are copied at once.
const BLOCK: usize = 32;
/// The maximum number of bytes that are copied without a call.
const MAX_INLINE: usize = 256;

/// The start and end of a rendered string in [`RenderedTexts`].
pub(super) type Range = (u32, u32);
/// No string.
pub(super) const NOT_YET: Range = (u32::MAX, 0);

/// Strings that are rendered once and written often. A block of zeros follows the last one, so this
/// buffer contains a whole block after any byte of a string.
#[derive(Debug, Default)]
pub(super) struct RenderedTexts(Vec<u8>);

/// A rendered string, and the block of other bytes after it.
#[derive(Clone, Copy)]
pub(super) struct PaddedText<'r>(&'r [u8]);

impl RenderedTexts {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Returns the memory in bytes.
    pub(super) fn size(&self) -> usize {
        self.0.capacity()
    }

    /// Renders a string after the others. `put` appends the string, and does not change the earlier
    /// ones.
    pub(super) fn render(&mut self, put: impl FnOnce(&mut Vec<u8>)) -> Range {
        self.0.truncate(self.0.len().saturating_sub(BLOCK));
        let start = self.0.len();
        put(&mut self.0);
        let end = self.0.len();
        self.0.extend_from_slice(&[0; BLOCK]);
        // The names and labels of a family take less than 4 GiB.
        (start as u32, end as u32)
    }

    /// Returns the string at a range; `None` for [`NOT_YET`].
    #[inline(always)]
    pub(super) fn padded(&self, (start, end): Range) -> Option<PaddedText<'_>> {
        self.0.get(start as usize..end as usize + BLOCK).map(PaddedText)
    }

    /// Like [`RenderedTexts::padded`], without the block; empty for [`NOT_YET`].
    pub(super) fn text(&self, range: Range) -> &[u8] {
        self.padded(range).map_or(&[], PaddedText::text)
    }
}

impl<'r> PaddedText<'r> {
    #[inline(always)]
    pub(super) fn len(self) -> usize {
        self.0.len() - BLOCK
    }

    /// Returns the string without the block after it.
    pub(super) fn text(self) -> &'r [u8] {
        &self.0[..self.len()]
    }
}

/// A line at the end of a vector with reserved room. This line becomes part of the vector
/// when it ends.
pub(super) struct Line<'o> {
    out: &'o mut Vec<u8>,
    /// The position of the next part.
    to: *mut u8,
}

impl<'o> Line<'o> {
    /// Begins a line of at most `room` bytes.
    #[inline(always)]
    pub(super) fn begin(out: &'o mut Vec<u8>, room: usize) -> Self {
        // The last part may be written in blocks.
        out.reserve(room + BLOCK);
        // SAFETY: the length is within the allocation.
        let to = unsafe { out.as_mut_ptr().add(out.len()) };
        Self { out, to }
    }

    /// # Safety
    /// The remaining room of the line is enough for the string.
    #[inline(always)]
    pub(super) unsafe fn put_padded(&mut self, text: PaddedText<'_>) {
        let (from, count) = (text.0.as_ptr(), text.len());
        let mut at = 0;
        // SAFETY: each block begins within the first `count` bytes, or at 0, and so ends at most a
        // block after them. The slice contains this block, and `begin` reserved one after the line.
        unsafe {
            loop {
                self.to.add(at).copy_from_nonoverlapping(from.add(at), BLOCK);
                at += BLOCK;
                if at >= count {
                    break;
                }
            }
            self.to = self.to.add(count);
        }
    }

    /// Copies short strings in overlapping pieces, because a call costs more than the copy (49 ns
    /// per line with calls, 38 without).
    ///
    /// # Safety
    /// The obligation of [`Line::put_padded`].
    #[inline(always)]
    pub(super) unsafe fn put(&mut self, bytes: &[u8]) {
        let (from, to, count) = (bytes.as_ptr(), self.to, bytes.len());
        // SAFETY: the caller reserved `count` bytes. They cannot overlap `bytes`, because the
        // vector is borrowed mutably. By its condition on `count`, each branch stays within both,
        // and writes all `count` bytes.
        unsafe {
            if count > MAX_INLINE {
                to.copy_from_nonoverlapping(from, count);
            } else if count >= BLOCK {
                let mut at = 0;
                while at < count - BLOCK {
                    to.add(at).copy_from_nonoverlapping(from.add(at), BLOCK);
                    at += BLOCK;
                }
                let last = count - BLOCK;
                to.add(last).copy_from_nonoverlapping(from.add(last), BLOCK);
            } else if count >= 16 {
                ends::<16>(from, to, count);
            } else if count >= 8 {
                ends::<8>(from, to, count);
            } else if count >= 4 {
                ends::<4>(from, to, count);
            } else {
                for i in 0..count {
                    to.add(i).write(from.add(i).read());
                }
            }
            self.to = to.add(count);
        }
    }

    /// # Safety
    /// The obligation of [`Line::put_padded`].
    #[inline(always)]
    pub(super) unsafe fn put_array<const N: usize>(&mut self, bytes: [u8; N]) {
        // SAFETY: the caller reserved N bytes.
        unsafe {
            self.to.cast::<[u8; N]>().write(bytes);
            self.to = self.to.add(N);
        }
    }

    /// Makes the line part of the vector.
    #[inline(always)]
    pub(super) fn end(self) {
        // SAFETY: both pointers are in the vector's allocation; all bytes between its length and
        // `to` were written.
        unsafe {
            let length = self.to.offset_from_unsigned(self.out.as_ptr());
            self.out.set_len(length);
        }
    }
}

/// Copies the first N and the last N bytes, which may overlap.
///
/// # Safety
/// Both places contain `count` bytes, at least N, and do not overlap.
#[inline(always)]
unsafe fn ends<const N: usize>(from: *const u8, to: *mut u8, count: usize) {
    // SAFETY: as promised by the caller.
    unsafe {
        let last = from.add(count - N).cast::<[u8; N]>().read();
        to.cast::<[u8; N]>().write(from.cast::<[u8; N]>().read());
        to.add(count - N).cast::<[u8; N]>().write(last);
    }
}

/// Appends bytes.
#[inline]
pub(super) fn append(bytes: &[u8], out: &mut Vec<u8>) {
    join([bytes], out);
}

/// Appends several strings.
#[inline]
pub(super) fn join<const N: usize>(texts: [&[u8]; N], out: &mut Vec<u8>) {
    let mut line = Line::begin(out, texts.iter().map(|text| text.len()).sum());
    for text in texts {
        // SAFETY: the line was begun with the length of all strings.
        unsafe { line.put(text) };
    }
    line.end();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_all_lengths_are_copied() {
        let bytes: Vec<u8> = (0..=255).cycle().take(600).collect();
        let mut rendered = RenderedTexts::default();
        assert!(rendered.padded(NOT_YET).is_none());
        let ranges: Vec<Range> = (0..300)
            .map(|length| rendered.render(|out| out.extend_from_slice(&bytes[length..][..length])))
            .collect();
        for (length, &range) in ranges.iter().enumerate() {
            let text = &bytes[length..][..length];
            assert_eq!(rendered.text(range), text);
            let mut out = b"before".to_vec();
            let padded = rendered.padded(range).expect("it is rendered");
            let mut line = Line::begin(&mut out, 2 * length + 3);
            // SAFETY: the line was begun with room for all parts.
            unsafe {
                line.put_padded(padded);
                line.put_array(*b"and");
                line.put(text);
            }
            line.end();
            append(b"!", &mut out);
            assert_eq!(out, [b"before", text, b"and", text, b"!"].concat());
        }
    }
}
