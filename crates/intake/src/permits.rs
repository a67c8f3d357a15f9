//! Places for requests that take much memory: those with large or compressed bodies.
//!
//! What a body expands to, and what is read of it, can be many times as large as the body. Few such
//! requests are taken at a time, by all threads; the others wait with their bodies as they came.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The places that all ways in share.
#[derive(Debug, Default)]
pub struct Places {
    taken: AtomicUsize,
}

/// The number of places.
const MOST: usize = 2;

/// The largest body that needs no place.
pub const SMALL: usize = 64 << 10;

/// A request's place, if it needs one. Dropping it frees it.
#[derive(Debug)]
pub struct Place {
    places: &'static Places,
    is_needed: bool,
    is_taken: bool,
}

impl Place {
    /// Of a request that may need a place.
    pub fn new(places: &'static Places, is_needed: bool) -> Self {
        Self { places, is_needed, is_taken: false }
    }

    /// Takes the place, unless that has been done. Returns false if the request has to wait for it.
    pub fn take(&mut self) -> bool {
        if self.is_needed && !self.is_taken {
            let next = |taken| (taken < MOST).then_some(taken + 1);
            // Relaxed: nothing but the number itself is shared.
            let taken = self.places.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
            self.is_taken = taken.is_ok();
        }
        !self.is_waiting()
    }

    /// Whether the request has to wait for it.
    pub fn is_waiting(&self) -> bool {
        self.is_needed && !self.is_taken
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.is_taken {
            self.places.taken.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_wait_for_one_of_the_places() {
        let places: &Places = Box::leak(Box::default());
        let mut large: Vec<_> = (0..=MOST).map(|_| Place::new(places, true)).collect();
        for _ in 0..2 {
            let has_place: Vec<_> = large.iter_mut().map(Place::take).collect();
            assert_eq!(has_place, [true, true, false]);
        }
        assert!(Place::new(places, false).take());
        drop(large.remove(0));
        assert!(large.iter_mut().all(Place::take));
        drop(large);
        assert_eq!(places.taken.load(Ordering::Relaxed), 0);
    }
}
