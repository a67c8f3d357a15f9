//! The series known to a reader: their ids and last values.

use alloc::vec::Vec;
use core::ops::Range;

use super::{COUNTER, GAUGE, MAX_IDS, MAX_SERIES, UNION};
use crate::error::Fault;
use crate::quipu::number::{POWERS, read_whole};
use crate::reader::Reader;

/// The series of a stream, by kind and number.
#[derive(Debug, Default)]
pub(super) struct Dictionary {
    pub(super) series: [Vec<KnownSeries>; 4],
    pub(super) ids: Ids,
    /// The range of the last defined id.
    last: Range<usize>,
}

/// The concatenated ids.
#[derive(Debug, Default)]
pub(super) struct Ids(Vec<u8>);

/// The state of a series. Only 16 bytes, because a reader accesses them at random.
#[derive(Debug)]
pub(super) struct KnownSeries {
    /// The last value of a counter, or the last whole number of a gauge.
    last: i64,
    id_start: u32,
    /// The length of the id in the low bits. The bits above contain the places of a gauge or a
    /// batch timer.
    len_and_places: u32,
}

/// An id takes at most 2^26 bytes.
const LEN_BITS: u32 = 27;

impl KnownSeries {
    #[inline(always)]
    pub(super) fn places(&self) -> u8 {
        (self.len_and_places >> LEN_BITS) as u8
    }

    #[inline(always)]
    pub(super) fn set_places(&mut self, places: u8) {
        let len = self.len_and_places & ((1 << LEN_BITS) - 1);
        self.len_and_places = len | u32::from(places) << LEN_BITS;
    }

    /// Sets the base of the next change.
    #[inline(always)]
    pub(super) fn set_last(&mut self, last: i64) {
        self.last = last;
    }

    /// Adds a change and returns the new number.
    #[inline(always)]
    pub(super) fn add(&mut self, change: i64) -> i64 {
        self.last = self.last.wrapping_add(change);
        self.last
    }

    /// Returns a gauge's last value.
    #[inline(always)]
    pub(super) fn decimal(&self) -> f64 {
        // Places are at most 8. The bound saves a check, because the table then always contains the
        // power.
        self.last as f64 / POWERS[usize::from(self.places()).min(POWERS.len() - 1)]
    }

    #[inline(always)]
    fn id(&self) -> Range<usize> {
        let len = self.len_and_places & ((1 << LEN_BITS) - 1);
        self.id_start as usize..self.id_start as usize + len as usize
    }
}

impl Ids {
    /// Returns the id of a series.
    #[inline(always)]
    pub(super) fn id(&self, series: &KnownSeries) -> &[u8] {
        self.0.get(series.id()).unwrap_or_default()
    }

    /// Prefetches both ends of an id. A longer id spans more cache lines, but the processor
    /// predicts their use.
    #[inline(always)]
    pub(super) fn prefetch(&self, series: &KnownSeries) {
        let id = series.id();
        prefetch(self.0.as_ptr().wrapping_add(id.start));
        prefetch(self.0.as_ptr().wrapping_add(id.end));
    }
}

impl Dictionary {
    /// Forgets all series.
    pub(super) fn clear(&mut self) {
        self.series.iter_mut().for_each(Vec::clear);
        self.ids.0.clear();
        self.last = 0..0;
    }

    /// Reads the definition of a series, which gets the next number of its kind.
    pub(super) fn define(&mut self, input: &mut Reader<'_>) -> Result<(), Fault> {
        const KIND: &str = "the kind of a series";
        const SHARED: &str = "how many bytes an id shares with the one before";
        let before = *input;
        let kind = usize::from(input.byte(KIND)?);
        if kind > UNION {
            *input = before;
            return Err(Fault::malformed(KIND));
        }
        let at = *input;
        let shared = usize::from(input.byte(SHARED)?);
        if shared > self.last.len() {
            *input = at;
            return Err(Fault::malformed(SHARED));
        }
        let len = input.varint("the length of an id")?;
        let rest = input.take_long(len, "an id as long as its length says")?;
        let (places, last) = match kind {
            COUNTER => (0, read_whole(input, "a counter's first value")?),
            GAUGE => read_decimal(input, "a gauge's first value")?,
            _ => (0, 0),
        };
        let start = self.ids.0.len();
        let known: usize = self.series.iter().map(Vec::len).sum();
        if known == MAX_SERIES || start + shared + rest.len() > MAX_IDS {
            *input = before;
            return Err(Fault::too_large("a dictionary of 2^20 series and 64 MiB of ids"));
        }
        self.ids.0.extend_from_within(self.last.start..self.last.start + shared);
        self.ids.0.extend_from_slice(rest);
        self.last = start..self.ids.0.len();
        let len_and_places = self.last.len() as u32 | u32::from(places) << LEN_BITS;
        self.series[kind].push(KnownSeries { last, id_start: start as u32, len_and_places });
        Ok(())
    }
}

/// Reads a whole number with optional places before it.
pub(super) fn read_decimal(
    input: &mut Reader<'_>,
    expected: &'static str,
) -> Result<(u8, i64), Fault> {
    let places = match input.peek() {
        Some(lead @ 0xd0..=0xd8) => {
            input.advance(1);
            lead & 15
        }
        _ => 0,
    };
    Ok((places, read_whole(input, expected)?))
}

/// Prefetches a cache line, if the processor supports this.
#[inline(always)]
pub(super) fn prefetch<T>(place: *const T) {
    #[cfg(all(target_arch = "x86_64", target_feature = "sse", not(miri)))]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: In the language's sense, a prefetch does not access memory. Any address is
        // allowed.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(place.cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", target_feature = "sse", not(miri))))]
    let _ = place;
}
