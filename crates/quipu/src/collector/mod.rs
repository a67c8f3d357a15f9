//! Collectors: what is asked for its values at every scrape.

mod arena;
mod callback;
#[cfg(target_os = "linux")]
mod process;
#[cfg(feature = "tokio")]
mod tokio;

pub use arena::{Arenas, Asked};
pub(crate) use callback::Callback;
#[cfg(target_os = "linux")]
pub use process::Process;
#[cfg(feature = "tokio")]
pub use tokio::Tokio;

use crate::snapshot::Sink;

/// Something that knows its families only when it is asked, such as what the system says of this
/// process.
pub trait Collector: Send + Sync {
    /// The names of its families, so that none is registered twice.
    fn names(&self) -> Vec<String>;

    /// Gives its families, each with its series, to the sink. It is called at every scrape, by one
    /// thread or several, and should take no more than a few milliseconds.
    fn collect(&self, sink: &mut dyn Sink);

    /// Begins anew, where it counts by itself: [`Registry::reset`](crate::Registry::reset) calls it.
    fn reset(&self) {}
}
