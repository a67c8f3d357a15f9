//! Which daemons samples have gone through, so that a daemon that gets its own samples back refuses
//! them: it would send them again, and again.
//!
//! A daemon has a random number for as long as it runs. What it sends has the header field
//! [`FIELD`], with that number and those of the daemons whose samples it has taken in the last
//! minutes: it does not know which of them have a part in a request.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use hyper::header::{HeaderMap, HeaderName};

/// The header field: numbers in hex digits, separated by commas.
pub const FIELD: HeaderName = HeaderName::from_static("quipu-via");

/// The daemon's number, and those that came in.
#[derive(Debug)]
pub struct Via {
    own: String,
    /// With the time at which each came in last.
    others: Mutex<Vec<(String, Instant)>>,
}

/// Samples of this daemon came back.
#[derive(Debug, PartialEq, Eq)]
pub struct Loop;

/// The most numbers that are kept; the oldest gives way to a new one.
const MOST: usize = 64;
/// How long a number is sent after it came in last.
const KEPT: Duration = Duration::from_secs(600);
const DIGITS: usize = 16;
/// The response to the daemon's own samples.
pub const LOOP: &str = "these samples come from this daemon itself, which would send them again for \
                        ever: the --remote-write or --otlp flags of the daemons on their way make a \
                        loop; remove one of them";

impl Default for Via {
    fn default() -> Self {
        // Each state has its own random keys.
        let own = format!("{:016x}", RandomState::new().hash_one(0));
        Self { own, others: Mutex::new(Vec::new()) }
    }
}

impl Via {
    /// Notes what the head of a request, or of an exposition, says of its way.
    ///
    /// # Errors
    /// [`Loop`], if this daemon is on it.
    pub fn check(&self, headers: &HeaderMap) -> Result<(), Loop> {
        let fields = headers.get_all(FIELD).iter().filter_map(|field| field.to_str().ok());
        fields.map(|field| self.note_at(field, Instant::now())).fold(Ok(()), Result::and)
    }

    /// The number of this daemon alone.
    pub fn own(&self) -> &str {
        &self.own
    }

    /// The value of the field: this daemon, and those before it.
    pub fn field(&self) -> String {
        self.field_at(Instant::now())
    }

    fn note_at(&self, field: &str, now: Instant) -> Result<(), Loop> {
        let is_number =
            |text: &&str| text.len() == DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let numbers = || field.split(',').map(str::trim).filter(is_number).take(MOST + 1);
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        // Those of a loop, too: if they were forgotten, it would go round once more.
        for number in numbers().filter(|number| *number != self.own) {
            others.retain(|(other, _)| other != number);
            if others.len() >= MOST {
                others.remove(0);
            }
            others.push((number.to_owned(), now));
        }
        if numbers().any(|number| number == self.own) { Err(Loop) } else { Ok(()) }
    }

    fn field_at(&self, now: Instant) -> String {
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        others.retain(|(_, since)| now.saturating_duration_since(*since) < KEPT);
        let numbers = others.iter().map(|(number, _)| number.as_str());
        [self.own.as_str()].into_iter().chain(numbers).collect::<Vec<_>>().join(",")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Via {
        fn note(&self, field: &str) -> Result<(), Loop> {
            let mut headers = HeaderMap::new();
            headers.insert(FIELD, field.parse().unwrap());
            self.check(&headers)
        }
    }

    #[test]
    fn what_comes_back_is_known_round_any_ring() {
        let [a, b, c] = [(); 3].map(|()| Via::default());
        assert_eq!(a.note(&a.field()), Err(Loop));
        assert_eq!(b.note(&a.field()), Ok(()));
        assert_eq!(c.note(&b.field()), Ok(()));
        assert_eq!(a.note(&c.field()), Err(Loop));
        assert_eq!(b.note(&c.field()), Err(Loop));
        assert_eq!(a.note(b.own()), Ok(()));
    }

    #[test]
    fn what_came_in_is_bounded_and_forgotten() {
        let (via, now) = (Via::default(), Instant::now());
        assert_eq!(via.note_at("x, 12, zzzzzzzzzzzzzzzz,\u{e9}", now), Ok(()));
        assert_eq!(via.field_at(now), via.own);
        for n in 0..100 {
            assert_eq!(via.note_at(&format!("{n:016x}"), now), Ok(()));
        }
        let field = via.field_at(now);
        assert_eq!(field.split(',').count(), 1 + MOST);
        assert!(field.len() < 2000 && field.ends_with("0000000000000063"), "{field}");
        assert_eq!(via.field_at(now + KEPT), via.own);
    }
}
