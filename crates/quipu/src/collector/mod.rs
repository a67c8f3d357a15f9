//! Collectors: sources of families that every scrape calls for their values.

#[cfg(feature = "arena")]
mod arena;
mod callback;
#[cfg(target_os = "linux")]
mod process;
#[cfg(feature = "tokio")]
mod tokio;

#[cfg(feature = "arena")]
pub use arena::{Arenas, MeasuredArena};
pub(crate) use callback::Callback;
#[cfg(target_os = "linux")]
pub use process::Process;
#[cfg(feature = "tokio")]
pub use tokio::Tokio;

use std::sync::Arc;

use crate::snapshot::Sink;

/// A source of families whose values are obtained at every scrape, such as the system's statistics
/// of this process.
///
/// ```
/// use std::sync::Mutex;
///
/// use quipu::collector::Collector;
/// use quipu::snapshot::Sink;
///
/// /// The names of queues, and their jobs.
/// static QUEUES: Mutex<Vec<(&str, usize)>> = Mutex::new(vec![]);
///
/// struct QueueLengths;
///
/// impl Collector for QueueLengths {
///     fn names(&self) -> Vec<String> {
///         vec!["queue_length".into()]
///     }
///
///     fn collect(&self, sink: &mut dyn Sink) {
///         let mut lengths = sink.gauge("queue_length", "Jobs in the queue.", ["queue"]);
///         for (queue, jobs) in QUEUES.lock().unwrap().iter() {
///             lengths.sample([queue], *jobs);
///         }
///     }
/// }
///
/// let registry = quipu::Registry::new();
/// registry.register_collector(QueueLengths)?;
/// QUEUES.lock().unwrap().push(("mail", 7));
/// assert_eq!(registry.value("queue_length", &[("queue", "mail")]), Some(7.0));
/// # Ok::<(), quipu::Error>(())
/// ```
pub trait Collector: Send + Sync {
    /// Returns the names of its families. Registration checks them for duplicates.
    fn names(&self) -> Vec<String>;

    /// Passes its families, each with its series, to the sink. Every scrape calls this, possibly
    /// from several threads at once; it should take at most a few milliseconds.
    ///
    /// This returns no error, because one failing collector must not hide the other metrics, and a
    /// page cannot contain an error. If a value cannot be obtained, omit its series or family, and
    /// show the failure as a metric, such as the gauge `queue_up`.
    fn collect(&self, sink: &mut dyn Sink);

    /// Resets the collector's own counts, if any. [`Registry::reset`](crate::Registry::reset) calls
    /// this.
    fn reset(&self) {}
}

macro_rules! forward {
    ($($pointer:ident),+) => {$(
        impl<C: Collector + ?Sized> Collector for $pointer<C> {
            fn names(&self) -> Vec<String> {
                (**self).names()
            }

            fn collect(&self, sink: &mut dyn Sink) {
                (**self).collect(sink);
            }

            fn reset(&self) {
                (**self).reset();
            }
        }
    )+};
}

forward!(Arc, Box);
