//! Detects loops between daemons. A daemon refuses its own samples if they return, because it would
//! otherwise send them again and again.
//!
//! Each daemon generates a random number at its start. Its requests contain this number in the
//! header field [`FIELD`], together with the numbers of all daemons whose samples it accepted in
//! the last minutes. All of these are necessary because a daemon does not know which senders
//! contributed to a request.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use hyper::header::{HeaderMap, HeaderName};

/// The header field: hexadecimal numbers, separated by commas.
pub const FIELD: HeaderName = HeaderName::from_static("quipu-via");

/// The daemon's own number, and the numbers that it received.
#[derive(Debug)]
pub struct Via {
    own: String,
    /// The received numbers, each with the time when it was last received.
    others: Mutex<Vec<(String, Instant)>>,
}

/// The numbers in the head of a request or a response.
#[derive(Debug, Default)]
pub struct ViaIds(Vec<String>);

/// The error for samples that returned to this daemon.
#[derive(Debug, PartialEq, Eq)]
pub struct Loop;

/// The maximum number of stored numbers. A new number replaces the oldest one.
const MOST: usize = 64;
/// The time for which a number is forwarded after it was last received.
const KEPT: Duration = Duration::from_secs(600);
/// The number of hexadecimal digits of a number.
const DIGITS: usize = 16;
/// The error message for a client that returns the daemon's own samples.
pub const LOOP: &str = "these samples come from this daemon itself, which would send them again \
                        for ever: the --remote-write or --otlp flags of the daemons on their way \
                        make a loop; remove one of them";

impl Default for Via {
    fn default() -> Self {
        // A random number, because each state uses random keys.
        let own = format!("{:016x}", RandomState::new().hash_one(0));
        Self { own, others: Mutex::new(Vec::new()) }
    }
}

impl Via {
    /// Parses the numbers in the head of a request or a response. Call [`note`](Self::note) after
    /// you have accepted some of its contents. Don't call it for invalid contents, because their
    /// numbers are meaningless.
    ///
    /// # Errors
    /// Returns [`Loop`] if the numbers include this daemon.
    pub fn check(&self, headers: &HeaderMap) -> Result<ViaIds, Loop> {
        let fields = headers.get_all(FIELD).iter().filter_map(|field| field.to_str().ok());
        let mut ids = ViaIds::default();
        let mut is_loop = false;
        for number in fields.flat_map(|field| field.split(',')).map(str::trim) {
            if number == self.own {
                is_loop = true;
            } else if ids.0.len() < MOST && is_number(number) {
                ids.0.push(number.to_owned());
            }
        }
        if is_loop {
            // We store the numbers of a loop as well, because the samples would otherwise pass
            // through the loop once more.
            self.note(&mut ids);
            return Err(Loop);
        }
        Ok(ids)
    }

    /// Stores the numbers of accepted contents. Later calls have no effect.
    pub fn note(&self, ids: &mut ViaIds) {
        if !ids.0.is_empty() {
            self.note_at(ids, Instant::now());
        }
    }

    /// Returns the number of this daemon.
    pub fn own(&self) -> &str {
        &self.own
    }

    /// Returns the value of the header field: this daemon, and the daemons before it.
    pub fn field(&self) -> String {
        self.field_at(Instant::now())
    }

    fn note_at(&self, ids: &mut ViaIds, now: Instant) {
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        for number in ids.0.drain(..) {
            others.retain(|(other, _)| *other != number);
            if others.len() >= MOST {
                others.remove(0);
            }
            others.push((number, now));
        }
    }

    fn field_at(&self, now: Instant) -> String {
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        others.retain(|(_, since)| now.saturating_duration_since(*since) < KEPT);
        let numbers = others.iter().map(|(number, _)| number.as_str());
        [self.own.as_str()].into_iter().chain(numbers).collect::<Vec<_>>().join(",")
    }
}

fn is_number(text: &str) -> bool {
    text.len() == DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Via {
        fn checked(&self, field: &str) -> Result<ViaIds, Loop> {
            let mut headers = HeaderMap::new();
            headers.insert(FIELD, field.parse().unwrap());
            self.check(&headers)
        }

        fn took(&self, field: &str) -> Result<(), Loop> {
            self.checked(field).map(|mut ids| self.note(&mut ids))
        }
    }

    #[test]
    fn returning_samples_are_detected_in_any_loop() {
        let [a, b, c] = [(); 3].map(|()| Via::default());
        assert_eq!(a.took(&a.field()), Err(Loop));
        assert_eq!(b.took(&a.field()), Ok(()));
        assert_eq!(c.took(&b.field()), Ok(()));
        assert_eq!(a.took(&c.field()), Err(Loop));
        assert_eq!(b.took(&c.field()), Err(Loop));
        assert_eq!(a.took(b.own()), Ok(()));
    }

    #[test]
    fn received_ids_are_bounded_and_expire() {
        let (via, now) = (Via::default(), Instant::now());
        via.took("x, 12, zzzzzzzzzzzzzzzz").unwrap();
        assert_eq!(via.field_at(now), via.own);
        for n in 0..100 {
            via.note_at(&mut via.checked(&format!("{n:016x}")).unwrap(), now);
        }
        let field = via.field_at(now);
        assert_eq!(field.split(',').count(), 1 + MOST);
        assert!(field.len() < 2000 && field.ends_with("0000000000000063"), "{field}");
        assert_eq!(via.field_at(now + KEPT), via.own);
        let many: Vec<_> = (0..100).map(|n| format!("{n:016x}")).collect();
        assert_eq!(via.checked(&many.join(",")).unwrap().0.len(), MOST);
    }

    #[test]
    fn only_what_was_taken_or_comes_back_is_noted() {
        let (via, other) = (Via::default(), Via::default());
        let mut ids = via.checked(other.own()).unwrap();
        assert_eq!(via.field(), via.own);
        via.note(&mut ids);
        assert_eq!(via.field(), [via.own(), other.own()].join(","));
        let via = Via::default();
        assert_eq!(via.took(&[other.own(), via.own()].join(",")), Err(Loop));
        assert_eq!(via.field(), [via.own(), other.own()].join(","));
    }
}
