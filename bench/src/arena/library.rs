//! A common interface for the arena libraries, each used like its documentation recommends. To add
//! a library, implement [`Library`] and [`Vector`].

use blink_alloc::Blink;
use bump_scope::settings::BumpSettings;
use bump_scope::{Bump, BumpVec};
use quipu_arena::{Arena, ArenaVec, Down, Global, Up};

use super::version;

/// A bump allocator for one thread.
pub(super) trait Library {
    /// The best vector that the library provides.
    type Vector<'a, T: Copy + 'a>: Vector<'a, T>
    where
        Self: 'a;

    /// Returns the name of the subject.
    fn name() -> String;
    /// Creates an arena with the library's default settings.
    fn new() -> Self;
    /// Creates an arena whose first chunk can hold this number of bytes.
    fn with_room(bytes: usize) -> Self;
    /// Allocates a value.
    fn value<T: Copy>(&self, value: T) -> &T;
    /// Allocates a copy of a string.
    fn text(&self, text: &str) -> &str;
    /// Allocates a copy of bytes.
    fn bytes(&self, bytes: &[u8]) -> &[u8];
    /// Allocates the numbers that are encoded in little-endian order.
    fn numbers(&self, encoded: &[[u8; 8]]) -> &[f64];
    /// Returns an empty vector with this capacity, which can be zero.
    fn vector<'a, T: Copy + 'a>(&'a self, capacity: usize) -> Self::Vector<'a, T>;
    /// Frees everything.
    fn reset(&mut self);
}

/// A growing vector in an arena.
pub(super) trait Vector<'a, T> {
    /// Adds a value at the end.
    fn push(&mut self, value: T);
    /// Returns the values, for as long as the arena is borrowed.
    fn finish(self) -> &'a [T];
}

/// An arena of quipu, upwards.
pub(super) type QuipuUp = Arena<Up, Global>;
/// An arena of quipu, downwards.
pub(super) type QuipuDown = Arena<Down, Global>;

macro_rules! quipu {
    ($policy:ty, $name:literal) => {
        impl Library for Arena<$policy, Global> {
            type Vector<'a, T: Copy + 'a>
                = ArenaVec<'a, T, &'a Self>
            where
                Self: 'a;

            fn name() -> String {
                $name.into()
            }

            fn new() -> Self {
                Arena::new_in(Global)
            }

            fn with_room(bytes: usize) -> Self {
                Arena::with_capacity_in(bytes, Global)
            }

            #[inline(always)]
            fn value<T: Copy>(&self, value: T) -> &T {
                self.alloc(value)
            }

            #[inline(always)]
            fn text(&self, text: &str) -> &str {
                self.alloc_str(text)
            }

            #[inline(always)]
            fn bytes(&self, bytes: &[u8]) -> &[u8] {
                self.alloc_slice_copy(bytes)
            }

            #[inline(always)]
            fn numbers(&self, encoded: &[[u8; 8]]) -> &[f64] {
                self.alloc_slice_with(encoded.len(), |index| f64::from_le_bytes(encoded[index]))
            }

            #[inline(always)]
            fn vector<'a, T: Copy + 'a>(&'a self, capacity: usize) -> Self::Vector<'a, T> {
                if capacity == 0 {
                    ArenaVec::new_in(self)
                } else {
                    ArenaVec::with_capacity_in(capacity, self)
                }
            }

            #[inline(always)]
            fn reset(&mut self) {
                Arena::reset(self);
            }
        }

        impl<'a, T: Copy> Vector<'a, T> for ArenaVec<'a, T, &'a Arena<$policy, Global>> {
            #[inline(always)]
            fn push(&mut self, value: T) {
                ArenaVec::push(self, value);
            }

            #[inline(always)]
            fn finish(self) -> &'a [T] {
                self.into_slice()
            }
        }
    };
}

quipu!(Up, "quipu");
quipu!(Down, "quipu (down)");

/// bump-scope, upwards.
pub(super) type BumpScopeUp = BumpScope<true>;
/// bump-scope, downwards.
pub(super) type BumpScopeDown = BumpScope<false>;

type BumpScope<const UP: bool> = Bump<bump_scope::alloc::Global, BumpSettings<1, UP>>;

macro_rules! bump_scope {
    ($up:literal, $variant:literal) => {
        impl Library for BumpScope<$up> {
            type Vector<'a, T: Copy + 'a>
                = BumpVec<T, &'a Self>
            where
                Self: 'a;

            fn name() -> String {
                version::of("bump-scope") + $variant
            }

            fn new() -> Self {
                Bump::new()
            }

            fn with_room(bytes: usize) -> Self {
                Bump::with_size(bytes)
            }

            #[inline(always)]
            fn value<T: Copy>(&self, value: T) -> &T {
                self.alloc(value).into_ref()
            }

            #[inline(always)]
            fn text(&self, text: &str) -> &str {
                self.alloc_str(text).into_ref()
            }

            #[inline(always)]
            fn bytes(&self, bytes: &[u8]) -> &[u8] {
                self.alloc_slice_copy(bytes).into_ref()
            }

            #[inline(always)]
            fn numbers(&self, encoded: &[[u8; 8]]) -> &[f64] {
                self.alloc_iter_exact(encoded.iter().map(|bytes| f64::from_le_bytes(*bytes)))
                    .into_ref()
            }

            #[inline(always)]
            fn vector<'a, T: Copy + 'a>(&'a self, capacity: usize) -> Self::Vector<'a, T> {
                if capacity == 0 {
                    BumpVec::new_in(self)
                } else {
                    BumpVec::with_capacity_in(capacity, self)
                }
            }

            #[inline(always)]
            fn reset(&mut self) {
                Bump::reset(self);
            }
        }

        impl<'a, T: Copy> Vector<'a, T> for BumpVec<T, &'a BumpScope<$up>> {
            #[inline(always)]
            fn push(&mut self, value: T) {
                BumpVec::push(self, value);
            }

            #[inline(always)]
            fn finish(self) -> &'a [T] {
                self.into_slice()
            }
        }
    };
}

bump_scope!(true, "");
bump_scope!(false, " (down)");

/// bumpalo.
pub(super) type Bumpalo = bumpalo::Bump;

impl Library for Bumpalo {
    type Vector<'a, T: Copy + 'a> = bumpalo::collections::Vec<'a, T>;

    fn name() -> String {
        version::of("bumpalo")
    }

    fn new() -> Self {
        bumpalo::Bump::new()
    }

    fn with_room(bytes: usize) -> Self {
        bumpalo::Bump::with_capacity(bytes)
    }

    #[inline(always)]
    fn value<T: Copy>(&self, value: T) -> &T {
        self.alloc(value)
    }

    #[inline(always)]
    fn text(&self, text: &str) -> &str {
        self.alloc_str(text)
    }

    #[inline(always)]
    fn bytes(&self, bytes: &[u8]) -> &[u8] {
        self.alloc_slice_copy(bytes)
    }

    #[inline(always)]
    fn numbers(&self, encoded: &[[u8; 8]]) -> &[f64] {
        self.alloc_slice_fill_with(encoded.len(), |index| f64::from_le_bytes(encoded[index]))
    }

    #[inline(always)]
    fn vector<'a, T: Copy + 'a>(&'a self, capacity: usize) -> Self::Vector<'a, T> {
        bumpalo::collections::Vec::with_capacity_in(capacity, self)
    }

    #[inline(always)]
    fn reset(&mut self) {
        bumpalo::Bump::reset(self);
    }
}

impl<'a, T: Copy> Vector<'a, T> for bumpalo::collections::Vec<'a, T> {
    #[inline(always)]
    fn push(&mut self, value: T) {
        bumpalo::collections::Vec::push(self, value);
    }

    #[inline(always)]
    fn finish(self) -> &'a [T] {
        self.into_bump_slice()
    }
}

/// blink-alloc. It provides no vector; its documentation uses the vector of allocator-api2.
pub(super) type BlinkAlloc = Blink;

impl Library for BlinkAlloc {
    type Vector<'a, T: Copy + 'a> = allocator_api2::vec::Vec<T, &'a blink_alloc::BlinkAlloc>;

    fn name() -> String {
        version::of("blink-alloc")
    }

    fn new() -> Self {
        Blink::new()
    }

    fn with_room(bytes: usize) -> Self {
        Blink::with_chunk_size(bytes)
    }

    #[inline(always)]
    fn value<T: Copy>(&self, value: T) -> &T {
        self.put_no_drop(value)
    }

    #[inline(always)]
    fn text(&self, text: &str) -> &str {
        self.copy_str(text)
    }

    #[inline(always)]
    fn bytes(&self, bytes: &[u8]) -> &[u8] {
        self.copy_slice(bytes)
    }

    #[inline(always)]
    fn numbers(&self, encoded: &[[u8; 8]]) -> &[f64] {
        let numbers = encoded.iter().map(|bytes| f64::from_le_bytes(*bytes));
        self.emplace_no_drop().from_iter(numbers)
    }

    #[inline(always)]
    fn vector<'a, T: Copy + 'a>(&'a self, capacity: usize) -> Self::Vector<'a, T> {
        allocator_api2::vec::Vec::with_capacity_in(capacity, self.allocator())
    }

    #[inline(always)]
    fn reset(&mut self) {
        Blink::reset(self);
    }
}

impl<'a, T: Copy> Vector<'a, T> for allocator_api2::vec::Vec<T, &'a blink_alloc::BlinkAlloc> {
    #[inline(always)]
    fn push(&mut self, value: T) {
        allocator_api2::vec::Vec::push(self, value);
    }

    #[inline(always)]
    fn finish(self) -> &'a [T] {
        self.leak()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::iter::repeat_with;

    fn keeps_what_it_is_given<L: Library>() {
        let mut arena = L::new();
        for round in 0..3 {
            let values: Vec<&u32> = (0..1000).map(|n| arena.value(n + round)).collect();
            let texts: Vec<&str> = repeat_with(|| arena.text("pikachu")).take(100).collect();
            let mut vector = arena.vector(round as usize);
            for n in 0..1000u64 {
                vector.push(n);
                arena.bytes(b"between");
            }
            let vector = vector.finish();
            let encoded = [1.5f64.to_le_bytes(), 2.5f64.to_le_bytes()];
            assert_eq!(arena.numbers(&encoded), [1.5, 2.5], "{}", L::name());
            assert!(values.iter().zip(round..).all(|(value, n)| **value == n), "{}", L::name());
            assert!(texts.iter().all(|text| *text == "pikachu"), "{}", L::name());
            assert!(vector.iter().copied().eq(0..1000), "{}", L::name());
            arena.reset();
        }
    }

    #[test]
    fn every_library_keeps_what_it_is_given() {
        keeps_what_it_is_given::<QuipuUp>();
        keeps_what_it_is_given::<QuipuDown>();
        keeps_what_it_is_given::<BumpScopeUp>();
        keeps_what_it_is_given::<BumpScopeDown>();
        keeps_what_it_is_given::<Bumpalo>();
        keeps_what_it_is_given::<BlinkAlloc>();
    }
}
