//! The values of a batch timer in quipu's own format. All values of a list share one form, the
//! shortest one that is exact.
//!
//! The first byte contains the form in its three high bits and the number of values in its five low
//! bits. 31 means that the number follows as a varint.
//!
//! ```text
//! 0  one byte each                    whole numbers to 255
//! 1  two bytes each                   whole numbers to 65535
//! 2  four bytes each                  whole numbers to 2^32 - 1
//! 3  a byte of places and width,      decimals of 1 to 4 places
//!    then width bits each
//! 4  numbers                          any values, each in its own shortest form
//! 5  8 bytes each                     any values
//! 6  -                                for later versions
//! 7  as 3                             decimals of 5 to 8 places
//! ```
//!
//! Bytes and bits are ordered from least to most significant. The byte for places and width
//! contains the places in its two high bits, less 1 in form 3 and less 5 in form 7, and the width
//! in bits in the other six. Unused bits of the last byte are zero.

use core::cell::Cell;
use core::mem::MaybeUninit;

use quipu_arena::Scope;

use super::number::{
    CompactDouble, EXACT, POWERS, decimal, double_len, known_mantissa, mantissa, read_double, round,
};
use crate::error::Fault;
use crate::pieces::{Byte, Each, FixedPiece, Le16, Le32, Le64, LeDoubles, Piece, Varint};
use crate::reader::Reader;
use crate::values;

/// A list of values, and the decimal places of the previous list; 0 if unknown.
#[derive(Clone, Copy)]
pub(super) struct Values<'a> {
    values: &'a [f64],
    places: Option<&'a Cell<u8>>,
}

/// The shortest form of a list.
#[derive(Clone, Copy)]
enum Form {
    /// Whole numbers, and the union of their bits.
    Whole(u64),
    Decimals {
        places: usize,
        width: usize,
    },
    Numbers,
    Raw,
}

const BYTES: u8 = 0;
const WORDS: u8 = 1;
const LONG_WORDS: u8 = 2;
const DECIMALS: u8 = 3;
const NUMBERS: u8 = 4;
const RAW: u8 = 5;
const FINE_DECIMALS: u8 = 7;

/// The maximum number of values that are packed. This is limited because a reader allocates 8 bytes
/// for each value, which can be one bit of input.
const MAX_PACKED: usize = 1 << 22;

/// Lists of up to this length are read without a branch on their length.
const FEW: usize = 8;

/// The maximum width of a packed value in bits.
const MAX_WIDTH: usize = 51;

/// The maximum number of places of [`DECIMALS`]. [`FINE_DECIMALS`] supports more.
const COARSE: usize = 4;

impl<'a> Values<'a> {
    #[inline(always)]
    pub(super) fn new(values: &'a [f64]) -> Values<'a> {
        Values { values, places: None }
    }

    /// Like `new`, but tries the places of the previous list first and stores the places of this
    /// one.
    #[inline(always)]
    pub(super) fn with_hint(values: &'a [f64], places: &'a mut u8) -> Values<'a> {
        Values { values, places: Some(Cell::from_mut(places)) }
    }
}

// SAFETY: A form takes at most 10 bytes for each value, like numbers. The number of values takes at
// most 11, places and width one, and 8 are written where bits end.
unsafe impl Piece for Values<'_> {
    #[inline(always)]
    fn bound(&self) -> usize {
        // A slice contains at most `isize::MAX` bytes, so the product does not overflow.
        (self.values.len() * CompactDouble::BOUND).saturating_add(20)
    }

    #[inline(always)]
    unsafe fn put(&self, start: *mut u8) -> *mut u8 {
        let values = self.values;
        // SAFETY: `start` is valid for the bound.
        unsafe {
            let mut places = self.places.map_or(0, Cell::get);
            if let Some(width) = same_places(values, places) {
                return put_decimals(values, usize::from(places), width, start);
            }
            // Assumes that all values are whole numbers of one byte. If not, they are written
            // again.
            if let Some(end) = put_bytes(values, put_count(BYTES, values, start)) {
                return end;
            }
            let end = put_others(values, &mut places, start);
            if let Some(hint) = self.places {
                hint.set(places);
            }
            end
        }
    }
}

/// Writes the lowest byte of each value. Returns the end if all values are whole numbers up to 255.
///
/// # Safety
///
/// `at` is valid for one byte for each value.
#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
#[inline]
#[target_feature(enable = "sse2")]
unsafe fn put_bytes(values: &[f64], mut at: *mut u8) -> Option<*mut u8> {
    use core::arch::x86_64::{
        __m128d, _mm_castpd_si128, _mm_cvtepi32_pd, _mm_cvtsi128_si32, _mm_cvtsi128_si64,
        _mm_cvttpd_epi32, _mm_or_pd, _mm_or_si128, _mm_packs_epi32, _mm_packus_epi16, _mm_set_pd,
        _mm_set_sd, _mm_setzero_pd, _mm_setzero_si128, _mm_unpackhi_epi64, _mm_xor_pd,
    };
    let (mut numbers, mut rest) = (_mm_setzero_si128(), _mm_setzero_pd());
    // Any other value becomes a number that differs from it.
    let mut bytes = |values: __m128d| {
        let whole = _mm_cvttpd_epi32(values);
        numbers = _mm_or_si128(numbers, whole);
        rest = _mm_or_pd(rest, _mm_xor_pd(_mm_cvtepi32_pd(whole), values));
        let words = _mm_packs_epi32(whole, whole);
        _mm_cvtsi128_si32(_mm_packus_epi16(words, words))
    };
    let (pairs, last) = values.as_chunks::<2>();
    for [first, second] in pairs {
        // SAFETY: `at` is valid for two bytes.
        at = unsafe { Le16(bytes(_mm_set_pd(*second, *first)) as u16).put(at) };
    }
    for value in last {
        // SAFETY: `at` is valid for one byte.
        at = unsafe { Byte(bytes(_mm_set_sd(*value)) as u8).put(at) };
    }
    let rest = _mm_castpd_si128(rest);
    let rest = _mm_cvtsi128_si64(_mm_or_si128(rest, _mm_unpackhi_epi64(rest, rest)));
    let above = _mm_cvtsi128_si64(numbers) as u64 & !0xff_0000_00ff;
    (rest == 0 && above == 0).then_some(at)
}

#[cfg(not(all(target_arch = "x86_64", target_feature = "sse2")))]
#[inline(always)]
unsafe fn put_bytes(values: &[f64], mut at: *mut u8) -> Option<*mut u8> {
    let (mut bits, mut rest) = (0, 0);
    for value in values {
        let (number, back) = round(*value, 0);
        bits |= number as u64;
        rest |= back.to_bits() ^ value.to_bits();
        // SAFETY: `at` is valid for one byte for each value.
        at = unsafe { Byte(number as u8).put(at) };
    }
    (rest == 0 && bits < 0x100).then_some(at)
}

/// # Safety
///
/// `at` is valid for the bound of the values.
#[inline(never)]
unsafe fn put_others(values: &[f64], places: &mut u8, at: *mut u8) -> *mut u8 {
    let (bits, rest) = all_mantissas(values, 0);
    let form = match bits {
        0..0x1_0000_0000 if rest == 0 => Form::Whole(bits),
        _ => other_form(values, places),
    };
    // SAFETY: The caller's obligation.
    unsafe {
        match form {
            Form::Whole(..0x1_0000) => {
                let at = put_count(WORDS, values, at);
                Each(values, |value| Le16(known_mantissa(value, 0) as u16)).put(at)
            }
            Form::Whole(_) => {
                let at = put_count(LONG_WORDS, values, at);
                Each(values, |value| Le32(known_mantissa(value, 0) as u32)).put(at)
            }
            Form::Decimals { places, width } => put_decimals(values, places, width, at),
            Form::Numbers => Each(values, CompactDouble).put(put_count(NUMBERS, values, at)),
            Form::Raw => LeDoubles(values).put(put_count(RAW, values, at)),
        }
    }
}

/// # Safety
///
/// `at` is valid for 11 bytes.
#[inline(always)]
unsafe fn put_count(form: u8, values: &[f64], at: *mut u8) -> *mut u8 {
    let count = values.len();
    // SAFETY: The caller's obligation.
    unsafe {
        if count < 31 {
            Byte(form << 5 | count as u8).put(at)
        } else {
            (Byte(form << 5 | 31), Varint(count as u64)).put(at)
        }
    }
}

/// Returns the width of the values with the places of the previous list, if this is their shortest
/// form.
#[inline(always)]
fn same_places(values: &[f64], places: u8) -> Option<usize> {
    if places == 0 || values.len() > MAX_PACKED {
        return None;
    }
    let (bits, rest) = all_mantissas(values, usize::from(places));
    // If all numbers are even, they may be multiples of ten, and fewer places may be enough. This
    // includes values that are whole numbers.
    (rest == 0 && bits < EXACT && bits & 1 == 1).then(|| width(bits))
}

#[inline(always)]
fn other_form(values: &[f64], hint: &mut u8) -> Form {
    let decimals = decimals(values);
    *hint = decimals.map_or(0, |(places, _)| places as u8);
    let (form, len) = match decimals {
        Some((places, bits)) if values.len() <= MAX_PACKED => {
            let width = width(bits);
            (Form::Decimals { places, width }, 1 + (values.len() * width).div_ceil(8))
        }
        _ => (Form::Raw, 8 * values.len()),
    };
    // Packed values of up to 4 bytes are hardly longer than numbers, and much faster.
    if len > 4 * values.len() {
        let numbers: usize = values.iter().map(|value| double_len(*value)).sum();
        if numbers < len {
            return Form::Numbers;
        }
    }
    if len < 8 * values.len() { form } else { Form::Raw }
}

/// Returns how many bits a number takes, at least 1.
#[inline(always)]
fn width(bits: u64) -> usize {
    (64 - (bits | 1).leading_zeros()) as usize
}

/// Returns the smallest number of places that makes all values decimals, and the union of their
/// bits. Returns `None` if a value is negative or not a decimal.
fn decimals(values: &[f64]) -> Option<(usize, u64)> {
    let mut places = match mantissa(*values.first()?, 0) {
        Some(_) => 1,
        None => decimal(values[0])?.0,
    };
    loop {
        let (bits, rest) = all_mantissas(values, places);
        if rest == 0 && bits < EXACT {
            return Some((places, bits));
        }
        // The places needed for the first value that is not exact yet.
        let other = values.iter().find(|value| mantissa(**value, places).is_none())?;
        let (needed, _) = decimal(*other)?;
        if needed <= places {
            return None;
        }
        places = needed;
    }
}

/// Returns the union of the bits of all whole numbers with these places, and a word that is zero if
/// all values are exact. A negative value or NaN adds bits beyond 2^51. The loop contains no
/// branch, because the compiler can then vectorize it.
#[inline(always)]
fn all_mantissas(values: &[f64], places: usize) -> (u64, u64) {
    let mut bits = 0;
    let mut rest = 0;
    for value in values {
        let (number, back) = round(*value, places);
        bits |= number as u64;
        rest |= back.to_bits() ^ value.to_bits();
    }
    (bits, rest)
}

/// # Safety
///
/// `at` is valid for the bound of the values, which are decimals of these places and this width.
#[inline(always)]
unsafe fn put_decimals(values: &[f64], places: usize, width: usize, at: *mut u8) -> *mut u8 {
    let (form, above) = if places <= COARSE { (DECIMALS, 1) } else { (FINE_DECIMALS, 1 + COARSE) };
    // SAFETY: The caller's obligation. A value takes at most 51 bits, so a 64-bit word can hold it
    // together with 7 remaining bits. Each value takes less than 7 bytes, and the last store of 8
    // bytes is within the bound.
    unsafe {
        let at = put_count(form, values, at);
        let mut at = Byte(((places - above) << 6 | width) as u8).put(at);
        let mut bits = 0;
        let mut count = 0;
        for value in values {
            bits |= (known_mantissa(*value, places) as u64) << count;
            count += width;
            Le64(bits).put(at);
            at = at.add(count / 8);
            bits >>= count & !7;
            count %= 8;
        }
        // The last byte was written with the value that begins in it, or is begun here.
        Byte(bits as u8).put(at);
        at.add(count.div_ceil(8))
    }
}

const EXPECTED: &str = "the announced number of values";

/// Reads a list of values.
#[inline(always)]
pub(super) fn read<'m>(input: &mut Reader<'m>, scope: &Scope<'m>) -> Result<&'m [f64], Fault> {
    read_most(input, u64::MAX, scope)
}

/// Reads a list. A list of more than 8 values is refused if it contains more than `most`.
#[inline(always)]
pub(super) fn read_most<'m>(
    input: &mut Reader<'m>,
    most: u64,
    scope: &Scope<'m>,
) -> Result<&'m [f64], Fault> {
    match input.peek() {
        Some(count @ 1..=8) => {
            input.advance(1);
            few_bytes(input, usize::from(count), scope)
        }
        _ => input.apart(|input| read_any(input, most, scope)),
    }
}

#[inline(never)]
fn read_any<'m>(input: &mut Reader<'m>, most: u64, scope: &Scope<'m>) -> Result<&'m [f64], Fault> {
    let before = *input;
    let head = input.byte("the values of a batch timer")?;
    let (form, mut count) = (head >> 5, u64::from(head & 31));
    if form == DECIMALS
        && let Some(values) = few_decimals(input, count as usize, scope)
    {
        return values;
    }
    if count == 31 {
        count = input.varint("the number of values")?;
    }
    if count > most {
        *input = before;
        return Err(Fault::too_large("lists of at most 2^22 values together in a block"));
    }
    let read = read_others(input, form, count, scope);
    if read.is_err_and(|fault| form != BYTES && !fault.is_incomplete()) {
        *input = before;
    }
    read
}

#[inline(always)]
fn read_others<'m>(
    input: &mut Reader<'m>,
    form: u8,
    count: u64,
    scope: &Scope<'m>,
) -> Result<&'m [f64], Fault> {
    let smallest = match form {
        BYTES => {
            let bytes = input.take_long(count, EXPECTED)?;
            return each(bytes, scope, |byte: [u8; 1]| f64::from(byte[0]));
        }
        WORDS => 2,
        LONG_WORDS => 4,
        RAW => 8,
        NUMBERS => 1,
        DECIMALS | FINE_DECIMALS => return read_decimals(input, form, count, scope),
        _ => return Err(Fault::malformed("values in a form of this version")),
    };
    let count = input.count(count, smallest, EXPECTED)?;
    if form == NUMBERS {
        return values::fill(count, scope, || read_double(input, "a value"));
    }
    let bytes = input.take(count * smallest, EXPECTED)?;
    match form {
        WORDS => each(bytes, scope, |bytes| f64::from(u16::from_le_bytes(bytes))),
        LONG_WORDS => each(bytes, scope, |bytes| f64::from(u32::from_le_bytes(bytes))),
        _ => each(bytes, scope, f64::from_le_bytes),
    }
}

/// Reads 1 to 8 values of a byte each, without a branch on their number, because most lists are
/// short.
#[inline(always)]
fn few_bytes<'m>(
    input: &mut Reader<'m>,
    count: usize,
    scope: &Scope<'m>,
) -> Result<&'m [f64], Fault> {
    let word = input.word(count, EXPECTED)?;
    let room = values::room(8, scope)?;
    let Some(places) = room.first_chunk_mut::<8>() else { return Err(Fault::memory()) };
    // SAFETY: The target has SSE2 where this needs it. All 8 places were written.
    let all = unsafe {
        spread(word, places);
        values::assume_init(room)
    };
    Ok(all.get(..count).unwrap_or_default())
}

/// Stores each byte of a word as a double, two doubles per store. A caller that loads two at a time
/// would otherwise wait 4 ns for single stores to reach the cache.
#[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
#[inline]
#[target_feature(enable = "sse2")]
fn spread(word: u64, places: &mut [MaybeUninit<f64>; 8]) {
    use core::arch::x86_64::{
        _mm_cvtepi32_pd, _mm_cvtsi64_si128, _mm_setzero_si128, _mm_storeu_pd, _mm_unpackhi_epi16,
        _mm_unpackhi_epi64, _mm_unpacklo_epi8, _mm_unpacklo_epi16,
    };
    let zero = _mm_setzero_si128();
    let bytes = _mm_unpacklo_epi8(_mm_cvtsi64_si128(word as i64), zero);
    let (low, high) = (_mm_unpacklo_epi16(bytes, zero), _mm_unpackhi_epi16(bytes, zero));
    let pairs = [low, _mm_unpackhi_epi64(low, low), high, _mm_unpackhi_epi64(high, high)];
    for (places, pair) in places.as_chunks_mut::<2>().0.iter_mut().zip(pairs) {
        // SAFETY: There are two places.
        unsafe { _mm_storeu_pd(places.as_mut_ptr().cast(), _mm_cvtepi32_pd(pair)) };
    }
}

/// `spread` for other processors. This is unsafe only because the version above is.
#[cfg(not(all(target_arch = "x86_64", target_feature = "sse2")))]
#[inline(always)]
unsafe fn spread(word: u64, places: &mut [MaybeUninit<f64>; 8]) {
    for (place, byte) in places.iter_mut().zip(word.to_le_bytes()) {
        place.write(f64::from(byte));
    }
}

#[inline(always)]
fn each<'m, const N: usize>(
    bytes: &[u8],
    scope: &Scope<'m>,
    value: impl Fn([u8; N]) -> f64,
) -> Result<&'m [f64], Fault> {
    let (items, _) = bytes.as_chunks::<N>();
    let room = values::room(items.len(), scope)?;
    for (place, item) in room.iter_mut().zip(items) {
        place.write(value(*item));
    }
    // SAFETY: There is one place for each item, and all were written.
    Ok(unsafe { values::assume_init(room) })
}

/// Reads up to 8 decimals, without a branch on their number. Returns `None` without reading any
/// bytes if they are malformed or too close to the end of the input.
#[inline(always)]
fn few_decimals<'m>(
    input: &mut Reader<'m>,
    count: usize,
    scope: &Scope<'m>,
) -> Option<Result<&'m [f64], Fault>> {
    // The places and the width, 8 values, and the rest of the word in which the last begins.
    const MOST: usize = 1 + (FEW - 1) * MAX_WIDTH / 8 + 8;
    let &[head, ref bytes @ ..] = input.rest().first_chunk::<MOST>()?;
    let width = usize::from(head & 63);
    if count > FEW || !(1..=MAX_WIDTH).contains(&width) {
        return None;
    }
    let end = count * width;
    // Computed without a branch on whether there are unused bits.
    let unused = u32::from(*bytes.get(end / 8)?) >> (end % 8);
    if (unused != 0) & !end.is_multiple_of(8) {
        return None;
    }
    let power = POWERS[usize::from(head >> 6) + 1];
    let mask = (1 << width) - 1;
    let mut numbers = [0; FEW];
    for (index, number) in numbers.iter_mut().enumerate() {
        let bit = index * width;
        let word = bytes.get(bit / 8..)?.first_chunk()?;
        *number = u64::from_le_bytes(*word) >> (bit % 8) & mask;
    }
    let room = match values::room(FEW, scope) {
        Ok(room) => room,
        Err(fault) => return Some(Err(fault)),
    };
    for (place, number) in room.iter_mut().zip(numbers) {
        place.write(number as i64 as f64 / power);
    }
    input.advance(1 + end.div_ceil(8));
    // SAFETY: All 8 places were written.
    let all = unsafe { values::assume_init(room) };
    Some(Ok(all.get(..count).unwrap_or_default()))
}

fn read_decimals<'m>(
    input: &mut Reader<'m>,
    form: u8,
    count: u64,
    scope: &Scope<'m>,
) -> Result<&'m [f64], Fault> {
    let head = input.byte("places and width")?;
    let width = usize::from(head & 63);
    if !(1..=MAX_WIDTH).contains(&width) {
        return Err(Fault::malformed("decimals of 1 to 51 bits"));
    }
    let above = if form == DECIMALS { 1 } else { 1 + COARSE };
    let power = POWERS[usize::from(head >> 6) + above];
    if count > MAX_PACKED as u64 {
        return Err(Fault::too_large("at most 2^22 packed values"));
    }
    // A byte contains at most 8 values. The number of bits is a `u64`, because it can exceed a
    // `usize`.
    let count = match usize::try_from(count) {
        Ok(count) if count / 8 <= input.len() => count,
        _ => return Err(Fault::incomplete(EXPECTED)),
    };
    let bits = count as u64 * width as u64;
    let bytes = input.take_long(bits.div_ceil(8), EXPECTED)?;
    let behind = bits % 8;
    if behind > 0 && bytes.last().is_some_and(|last| last >> behind != 0) {
        return Err(Fault::malformed("zeros after the last value"));
    }
    let mask = (1 << width) - 1;
    let mut bit = 0u64;
    values::fill(count, scope, || {
        let mut packed = Reader::new(bytes);
        packed.advance((bit / 8) as usize);
        let bits = packed.word(1, EXPECTED)?;
        let number = bits >> (bit % 8) & mask;
        bit += width as u64;
        Ok(number as i64 as f64 / power)
    })
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use quipu_arena::Arena;

    use super::*;
    use crate::pieces::append;

    fn round_trip(list: &[f64]) -> Vec<u8> {
        let mut out = Vec::new();
        append(&mut out, Values::new(list));
        let mut arena = Arena::new();
        let scope = arena.as_scope();
        let mut input = Reader::new(&out);
        let read = read(&mut input, &scope).unwrap();
        assert!(input.is_empty());
        let bits = |list: &[f64]| list.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(read), bits(list), "{list:?}");
        for len in 0..out.len() {
            let mut input = Reader::new(&out[..len]);
            assert!(super::read(&mut input, &scope).unwrap_err().is_incomplete(), "{list:?}");
        }
        out
    }

    #[test]
    fn all_in_the_shortest_form() {
        assert_eq!(round_trip(&[]), [0]);
        assert_eq!(round_trip(&[1.0, 2.0, 3.0, 4.0, 5.0]), [5, 1, 2, 3, 4, 5]);
        assert_eq!(round_trip(&[256.0, 1.0])[0], 1 << 5 | 2);
        assert_eq!(round_trip(&[65536.0])[0], 2 << 5 | 1);
        assert_eq!(round_trip(&[0.5, 1.5]), [3 << 5 | 2, 4, 0xf5]);
        assert_eq!(round_trip(&[12.345, 6.789, 50.1]).len(), 2 + 6);
        assert_eq!(round_trip(&[0.000_012, 0.000_345])[0] >> 5, 7);
        assert_eq!(round_trip(&[core::f64::consts::PI; 5])[0] >> 5, 5);
        assert_eq!(round_trip(&[-1.0, 2.0])[0] >> 5, 4);
        round_trip(&[-0.0, 0.0, f64::NAN, f64::INFINITY, 5e-324]);
        round_trip(&[4_294_967_296.0, 1.0]);
        round_trip(&[0.1; 1000]);
        round_trip(&[7.0; 31]);
        round_trip(&[1e7 + 0.125, 1e-8]);
    }

    #[test]
    fn decimals_of_any_width() {
        let widths = if cfg!(miri) { 47..=50 } else { 1..=50 };
        for power in &POWERS[1..] {
            for width in widths.clone() {
                let last = ((1u64 << width) - 1) as f64 / power;
                for len in (1..20).step_by(if cfg!(miri) { 6 } else { 1 }) {
                    let mut list = Vec::new();
                    list.resize(len, 1.0 / power);
                    list.push(last);
                    round_trip(&list);
                }
            }
        }
    }

    #[test]
    fn invalid_encodings_are_refused() {
        let mut arena = Arena::new();
        let scope = arena.as_scope();
        for bytes in [&[6 << 5][..], &[3 << 5 | 1, 0, 0], &[3 << 5 | 1, 52, 0], &[4 << 5 | 1, 0xd9]]
        {
            let mut input = Reader::new(bytes);
            assert!(!read(&mut input, &scope).unwrap_err().is_incomplete(), "{bytes:?}");
        }
        let long = [31, 255, 255, 255, 255, 255, 255, 255, 255, 127];
        for form in 0..8 {
            let mut bytes = long;
            bytes[0] |= form << 5;
            assert!(read(&mut Reader::new(&bytes), &scope).is_err());
        }
    }
}
