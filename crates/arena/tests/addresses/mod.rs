//! Compares the address arithmetic with a slow model that computes in 128 bits.

#![allow(unreachable_pub)]

use quipu_arena::arithmetic::{
    Place, StaticFacts, downwards, grown_downwards, grown_upwards, round_up, upwards,
};

/// A request that an arena could make, with arbitrary numbers.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    pub pos: usize,
    pub limit: usize,
    pub size: usize,
    pub align: usize,
    pub min: usize,
}

impl Request {
    /// Turns any numbers into a request that satisfies the invariants of an arena.
    ///
    /// With `low`, addresses are below `isize::MAX`; otherwise anywhere.
    pub fn of(a: usize, b: usize, size: usize, bits: u8, low: bool) -> Request {
        let align = 1usize << (bits % (usize::BITS as u8 - 1));
        let min = 1usize << (bits / 32);
        let header = min.max(32);
        // The chunk does not end after the last address, and a header follows the limit.
        let top = (if low { isize::MAX as usize } else { usize::MAX }) - header - min;
        let clamp = |n: usize| (n % top).max(header) & !(min - 1);
        let (a, b) = (clamp(a).max(min), clamp(b).max(min));
        // The invariant of a layout.
        let size = size % (isize::MAX as usize - (align - 1) + 1);
        Request { pos: a, limit: b, size, align, min }
    }

    /// Checks all functions, in the form for such addresses.
    pub fn check<const LOW: bool>(self) {
        self.check_upwards::<LOW>();
        self.check_downwards::<LOW>();
    }

    fn check_upwards<const LOW: bool>(self) {
        let Request { size, align, min, .. } = self;
        let (pos, limit) = (self.pos.min(self.limit), self.pos.max(self.limit));
        let start = up(pos as u128, align as u128);
        let end = start + up(size as u128, min as u128);
        let expected =
            (end <= limit as u128).then_some(Place { start: start as usize, pos: end as usize });
        assert_eq!(upwards::<LOW>(pos, limit, size, align, min, StaticFacts::Nothing), expected);
        if size.is_multiple_of(align) {
            let known = upwards::<LOW>(pos, limit, size, align, min, StaticFacts::Alignment);
            assert_eq!(known, expected, "{self:?}");
        }
        let grown = pos as u128 + up(size as u128, min as u128);
        let expected = (grown <= limit as u128).then_some(grown as usize);
        assert_eq!(grown_upwards::<LOW>(pos, limit, size, min), expected, "{self:?}");
    }

    fn check_downwards<const LOW: bool>(self) {
        let Request { size, align, min, .. } = self;
        let (pos, limit) = (self.pos.max(self.limit), self.pos.min(self.limit));
        // Rounds negative numbers down, by counting from a large multiple of all alignments.
        const ZERO: u128 = 1 << 100;
        let start = down(ZERO + pos as u128 - size as u128, align.max(min) as u128);
        let expected = (start >= ZERO + limit as u128).then(|| {
            let start = (start - ZERO) as usize;
            Place { start, pos: start }
        });
        assert_eq!(downwards::<LOW>(pos, limit, size, align, min, StaticFacts::Nothing), expected);
        if size.is_multiple_of(align) {
            let known = downwards::<LOW>(pos, limit, size, align, min, StaticFacts::Alignment);
            assert_eq!(known, expected, "{self:?}");
        }
        let grown = grown_downwards::<LOW>(pos, limit, size, align, min);
        assert_eq!(grown, expected.map(|place| place.start), "{self:?}");
        assert_eq!(round_up(size, min) % min, 0);
    }
}

fn up(n: u128, align: u128) -> u128 {
    n.div_ceil(align) * align
}

fn down(n: u128, align: u128) -> u128 {
    n / align * align
}
