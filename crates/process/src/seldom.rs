//! Limits the rate of log lines that clients can cause.

use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Limits a log line that clients can cause to one a minute.
#[derive(Debug, Default)]
pub struct Seldom(Mutex<Option<Instant>>);

impl Seldom {
    /// Creates a limit without a logged line.
    pub const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// Returns whether you can log the line at this time. If so, the line counts as logged.
    pub fn is_due(&self, now: Instant) -> bool {
        // A thread that finds the lock taken need not wait, because another one logs the line.
        let Ok(mut last) = self.0.try_lock() else { return false };
        let is_due = last.is_none_or(|last| now.saturating_duration_since(last) >= PAUSE);
        if is_due {
            *last = Some(now);
        }
        is_due
    }
}

/// The shortest time between two such lines.
const PAUSE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_clients_cause_is_logged_once_a_minute() {
        let (seldom, start) = (Seldom::new(), Instant::now());
        let due = |seconds| seldom.is_due(start + Duration::from_secs(seconds));
        assert_eq!([0, 1, 59, 60, 61, 200].map(due), [true, false, false, true, false, true]);
    }
}
