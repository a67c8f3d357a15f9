//! The settings of the sliding windows, for example their lengths.

use std::time::Duration;

use quipu_process::flags;
use quipu_process::settings::{Unusable, in_range, set};
use quipu_process::size::Size;
use quipu_process::time::Time;
use quipu_window::{BucketedOptions, BucketedWindow, ErrorKind, KeyedOptions, KeyedWindows};

flags! {
    /// The flags of the daemon's windows.
    #[command(next_help_heading = "Windows and keys")]
    pub struct WindowFlags {
        /// Sliding window of GET / and of each key, a whole number of accuracies [default: 60s]
        #[arg(long, env = "QUIPU_WINDOW", value_name = "TIME")]
        window: Time = Time(Duration::from_secs(60)),

        /// Bucket width of the window of GET / [default: 200ms]
        #[arg(long, env = "QUIPU_ACCURACY", value_name = "TIME")]
        accuracy: Time = Time(Duration::from_millis(200)),

        /// Longest window that GET /rate?window= accepts, a whole number of accuracies [default:
        /// 1h; more if the window is longer, less if 1h takes over 2^18 buckets]
        #[arg(long, env = "QUIPU_SPAN", value_name = "TIME")]
        span: Time,

        /// Maximum number of keys of POST /hit/{key}, 1 to 2^28; the least recently hit are evicted
        /// first [default: 10000]
        #[arg(long, env = "QUIPU_KEYS", value_name = "COUNT")]
        keys: Size<usize> = Size(10_000),

        /// Bucket width of each key's window [default: 1/60 of the window, or the accuracy]
        #[arg(long, env = "QUIPU_KEY_ACCURACY", value_name = "TIME")]
        key_accuracy: Time,

        /// Maximum length of a key in bytes, 1 to 4096 [default: 128]
        #[arg(long, env = "QUIPU_KEY_BYTES", value_name = "BYTES")]
        key_bytes: Size<usize> = Size(128),
    }
}

impl WindowFlags {
    /// Returns the options of the window of all requests, and of the windows of keys. Sets the
    /// defaults that depend on other settings.
    ///
    /// # Errors
    /// Fails for durations that conflict, and for a number out of its bounds.
    pub fn resolve(&mut self) -> Result<(BucketedOptions, KeyedOptions), Unusable> {
        let window = set(self.window).0;
        let accuracy = set(self.accuracy).0;
        let span = self.span.get_or_insert(Time(longest(window, accuracy))).0;
        let key_accuracy = window / 60;
        let key_accuracy = if key_accuracy * 60 == window && key_accuracy >= accuracy {
            key_accuracy
        } else {
            accuracy
        };
        let key_accuracy = self.key_accuracy.get_or_insert(Time(key_accuracy)).0;

        let value = |name| move |error: quipu_window::Error| Unusable::new(name, error.to_string());
        let bucketed = BucketedWindow::options(window, accuracy).tickets();
        bucketed.bytes().map_err(|error| match error.kind() {
            ErrorKind::ZeroDuration("accuracy") => value("accuracy")(error),
            _ => value("window")(error),
        })?;
        if span < window {
            let window = Time(window);
            let message = format!("it is shorter than the window; give at least {window}");
            return Err(Unusable::new("span", message));
        }
        let bucketed = bucketed.span(span);
        bucketed.bytes().map_err(value("span"))?;
        let key_bytes = in_range("key-bytes", self.key_bytes, 1, 4096)?;
        let keyed =
            KeyedWindows::options(window, key_accuracy, set(self.keys).0).max_key_bytes(key_bytes);
        keyed.bytes().map_err(|error| match error.kind() {
            ErrorKind::NoCapacity => value("keys")(error),
            ErrorKind::NotMultiple { window, accuracy } => {
                let message = format!(
                    "the window of {window:?} is not a whole number of buckets of {accuracy:?}; \
                     give one that divides it"
                );
                Unusable::new("key-accuracy", message)
            }
            _ => value("key-accuracy")(error),
        })?;
        Ok((bucketed, keyed))
    }
}

/// Returns the default span: an hour, or less if an hour exceeds [`MAX_BUCKETS`], but at least the
/// window.
fn longest(window: Duration, accuracy: Duration) -> Duration {
    // We only prevent a panic for invalid durations, because `resolve` reports them.
    let buckets = HOUR.as_nanos() / accuracy.as_nanos().max(1);
    let buckets = u32::try_from(buckets).unwrap_or(u32::MAX).min(MAX_BUCKETS);
    accuracy.checked_mul(buckets).unwrap_or(window).max(window)
}

const HOUR: Duration = Duration::from_secs(3600);
/// The maximum number of buckets of a default span, which takes 2 MiB.
const MAX_BUCKETS: u32 = 1 << 18;
