//! Limits the rate of log lines that clients can cause.

use std::sync::Mutex;
use std::time::{Duration, Instant};

/// A limit on a log line that clients can cause: once per minute.
#[derive(Debug, Default)]
pub struct LogLimiter(Mutex<Option<Instant>>);

impl LogLimiter {
    /// Creates a limit for a line that was never logged.
    pub const fn new() -> Self {
        Self(Mutex::new(None))
    }

    /// Returns whether to log the line at this time. If so, the line counts as logged.
    pub fn is_due(&self, now: Instant) -> bool {
        // Another thread holds the lock and logs the line, so there is no need to wait.
        let Ok(mut last) = self.0.try_lock() else { return false };
        let is_due = last.is_none_or(|last| now.saturating_duration_since(last) >= PAUSE);
        if is_due {
            *last = Some(now);
        }
        is_due
    }
}

/// The minimum time between two such lines.
const PAUSE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_clients_cause_is_logged_once_a_minute() {
        let (limiter, start) = (LogLimiter::new(), Instant::now());
        let due = |seconds| limiter.is_due(start + Duration::from_secs(seconds));
        assert_eq!([0, 1, 59, 60, 61, 200].map(due), [true, false, false, true, false, true]);
    }
}
