//! Windows and accuracies in nanoseconds, validated once so that no later step can fail.

use std::time::Duration;

use crate::error::{Error, ErrorKind, LONGEST, MAX_BUCKETS};

/// A window that is a whole number of buckets of one width.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Shape {
    /// The width of a bucket in nanoseconds, at least 1.
    pub(crate) accuracy: u64,
    /// The window in buckets, at least 1 and at most [`MAX_BUCKETS`].
    pub(crate) ticks: u64,
}

impl Shape {
    pub(crate) fn new(window: Duration, accuracy: Duration) -> Result<Self, Error> {
        let wide = nanoseconds("window", window)?;
        let narrow = nanoseconds("accuracy", accuracy)?;
        if wide < narrow || !wide.is_multiple_of(narrow) {
            return Err(ErrorKind::NotMultiple { window, accuracy }.into());
        }
        let ticks = wide / narrow;
        if ticks > MAX_BUCKETS {
            return Err(ErrorKind::TooManyBuckets { window, accuracy }.into());
        }
        Ok(Self { accuracy: narrow, ticks })
    }

    /// Returns the shape of a window, and the shape of the longest window of its counter, the span.
    pub(crate) fn with_span(
        window: Duration,
        accuracy: Duration,
        span: Duration,
    ) -> Result<(Self, Self), Error> {
        let (shape, longest) = (Self::new(window, accuracy)?, Self::new(span, accuracy)?);
        if shape.ticks > longest.ticks {
            return Err(ErrorKind::OverSpan { window, span }.into());
        }
        Ok((shape, longest))
    }

    pub(crate) fn window(self) -> Duration {
        Duration::from_nanos(self.accuracy * self.ticks)
    }

    pub(crate) fn accuracy(self) -> Duration {
        Duration::from_nanos(self.accuracy)
    }
}

/// Returns the nanoseconds of a window or an accuracy, at least 1 and at most `i64::MAX`.
pub(crate) fn nanoseconds(name: &'static str, value: Duration) -> Result<u64, Error> {
    if value.is_zero() {
        return Err(ErrorKind::ZeroDuration(name).into());
    }
    if value > LONGEST {
        return Err(ErrorKind::TooLong(name, value).into());
    }
    // At most LONGEST, so it fits.
    Ok(value.as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(window: Duration, accuracy: Duration) -> String {
        Shape::new(window, accuracy).unwrap_err().to_string()
    }

    #[test]
    fn windows_have_any_unit_from_nanoseconds_up() {
        let (ns, day) = (Duration::from_nanos(1), Duration::from_secs(86_400));
        assert_eq!(Shape::new(ns, ns).unwrap(), Shape { accuracy: 1, ticks: 1 });
        let shape = Shape::new(day * 365, day).unwrap();
        assert_eq!((shape.ticks, shape.window(), shape.accuracy()), (365, day * 365, day));
        let shape = Shape::new(LONGEST, LONGEST).unwrap();
        assert_eq!(shape.window(), LONGEST);
    }

    #[test]
    fn senseless_values_are_errors_that_name_the_remedy() {
        let (ms, s) = (Duration::from_millis(1), Duration::from_secs(1));
        assert!(message(Duration::ZERO, ms).contains("the window is zero"));
        assert!(message(s, Duration::ZERO).contains("the accuracy is zero"));
        assert!(message(Duration::MAX, ms).contains("too long; give at most"));
        assert!(message(LONGEST + ms, ms).contains("too long"));
        assert!(message(s, ms * 300).contains("take 900ms or 1.2s"));
        assert!(message(ms, s).contains("take 1s, or a finer accuracy"));
        assert!(message(s * 3600, Duration::from_nanos(1)).contains("a coarser accuracy"));
    }
}
