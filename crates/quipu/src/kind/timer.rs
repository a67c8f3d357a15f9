//! Timers: guards that observe how long something took, in a histogram or a summary.

use std::borrow::Cow;
use std::time::{Duration, Instant};

use super::histogram::Histogram;
use super::summary::Summary;

/// Observes the seconds since its start when you drop it.
///
/// ```
/// use quipu::{Description, Histogram, HistogramFamily, Registry};
///
/// let registry = Registry::new();
/// let latency: Histogram = registry.register(Description::new("latency_seconds", "Latency."))?;
/// {
///     let _timer = latency.start_timer();
///     // The work.
/// }
/// let product = latency.time(|| 6 * 7);
/// assert_eq!((product, latency.count()), (42, 2));
///
/// // The timer of a family, and an owned one, can move to another task or thread.
/// let queries = Description::new("query_seconds", "Duration of queries.").labels(["table"]);
/// let queries: HistogramFamily<[&str; 1]> = registry.register(queries)?;
/// let timer = queries.start_timer(&["users"]);
/// std::thread::spawn(move || timer.stop()).join().unwrap();
/// assert_eq!(queries.count(&["users"]), Some(1));
/// # Ok::<(), quipu::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "if unused, the timer stops at once"]
pub struct Timer<'h> {
    observer: Observer<'h>,
    start: Instant,
    discarded: bool,
}

/// The instrument that observes the seconds.
#[derive(Debug)]
pub(super) enum Observer<'h> {
    Histogram(Cow<'h, Histogram>),
    Summary(Cow<'h, Summary>),
}

impl<'h> Timer<'h> {
    pub(super) fn start(observer: Observer<'h>) -> Self {
        Self { observer, start: Instant::now(), discarded: false }
    }

    /// Observes the seconds since the start, and returns this duration.
    #[doc(alias = "stop_and_record")]
    pub fn stop(mut self) -> Duration {
        self.discarded = true;
        self.observe()
    }

    /// Ends the timer without an observation.
    pub fn discard(mut self) {
        self.discarded = true;
    }

    fn observe(&self) -> Duration {
        let elapsed = self.start.elapsed();
        let seconds = elapsed.as_secs_f64();
        match &self.observer {
            Observer::Histogram(histogram) => histogram.observe(seconds),
            Observer::Summary(summary) => summary.observe(seconds),
        }
        elapsed
    }
}

impl Drop for Timer<'_> {
    fn drop(&mut self) {
        if !self.discarded {
            self.observe();
        }
    }
}

/// Methods that measure durations, the same for histograms and summaries.
macro_rules! timers {
    ($instrument:ident) => {
        impl $instrument {
            /// Observes a duration, in seconds.
            #[inline]
            pub fn observe_duration(&self, duration: std::time::Duration) {
                self.observe(duration.as_secs_f64());
            }

            /// Starts a timer that observes the seconds until it is dropped. The timer borrows this
            /// handle: to move a timer to another task or thread, use `start_timer_owned`.
            pub fn start_timer(&self) -> Timer<'_> {
                Timer::start(Observer::$instrument(Cow::Borrowed(self)))
            }

            /// Like `start_timer`, with a timer that can move to another task or thread.
            pub fn start_timer_owned(&self) -> Timer<'static> {
                Timer::start(Observer::$instrument(Cow::Owned(self.clone())))
            }

            /// Calls `work`, and observes the seconds that it takes.
            pub fn time<T>(&self, work: impl FnOnce() -> T) -> T {
                let _timer = self.start_timer();
                work()
            }

            /// Awaits `work`, and observes the seconds from the first poll until it is ready, or
            /// until the returned future is dropped.
            pub async fn time_future<T>(&self, work: impl Future<Output = T>) -> T {
                let _timer = self.start_timer();
                work.await
            }
        }

        impl<L: LabelGroup> Family<$instrument, L> {
            /// Observes a duration in the series of these labels, in seconds.
            #[inline]
            pub fn observe_duration<K: LabelGroup<Identity = L::Identity>>(
                &self,
                labels: &K,
                duration: std::time::Duration,
            ) {
                self.observe(labels, duration.as_secs_f64());
            }

            /// Starts a timer that observes the seconds until it is dropped in the series of these
            /// labels. It creates the series.
            pub fn start_timer<K: LabelGroup<Identity = L::Identity>>(
                &self,
                labels: &K,
            ) -> Timer<'static> {
                Timer::start(Observer::$instrument(Cow::Owned(self.bind(labels))))
            }

            /// Calls `work`, and observes the seconds that it takes in the series of these labels.
            pub fn time<K: LabelGroup<Identity = L::Identity>, T>(
                &self,
                labels: &K,
                work: impl FnOnce() -> T,
            ) -> T {
                let _timer = self.start_timer(labels);
                work()
            }

            /// Awaits `work`, and observes the seconds from the first poll until it is ready, or
            /// until the returned future is dropped, in the series of these labels.
            pub async fn time_future<K: LabelGroup<Identity = L::Identity>, T>(
                &self,
                labels: &K,
                work: impl Future<Output = T>,
            ) -> T {
                let _timer = self.start_timer(labels);
                work.await
            }
        }
    };
}
pub(super) use timers;
