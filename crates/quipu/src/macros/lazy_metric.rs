//! Static handles of metrics that are registered at first use. You get one with each macro.

use std::fmt;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::registration_errors;
use crate::description::Description;
use crate::registry::Registry;
use crate::scope::Register;

/// A metric of the global registry that is registered at first use.
///
/// This type uses no lock, because a child that is forked while another thread registers the metric
/// would wait for the lock forever.
pub struct LazyMetric<M> {
    /// From `Box::into_raw` once the metric is registered.
    metric: AtomicPtr<M>,
}

impl<M: Register + Send + Sync + 'static> LazyMetric<M> {
    /// Creates a handle of an unregistered metric.
    pub const fn unregistered() -> Self {
        Self { metric: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Returns the metric. The first call registers it under this description.
    #[inline]
    pub fn get(&'static self, description: impl FnOnce() -> Description) -> &'static M {
        // Acquire: sees the metric, which another thread stored.
        // SAFETY: the pointer is null or from `Box::into_raw`, and is never dropped or changed.
        match unsafe { self.metric.load(Ordering::Acquire).as_ref() } {
            Some(metric) => metric,
            None => self.register(&description()),
        }
    }

    #[cold]
    fn register(&'static self, description: &Description) -> &'static M {
        let registered = Registry::global().register_or_get(description.clone());
        let (metric, error) = match registered {
            Ok(metric) => (metric, None),
            Err(error) => (unscraped(description), Some(error)),
        };
        let metric = Box::into_raw(Box::new(metric));
        // Release: the metric precedes its pointer, for the loads of other threads. Acquire: sees
        // the metric of the faster thread.
        let (success, failure) = (Ordering::Release, Ordering::Acquire);
        let unset = std::ptr::null_mut();
        match self.metric.compare_exchange(unset, metric, success, failure) {
            Ok(_) => {
                if let Some(error) = error {
                    registration_errors::record(&error, description);
                }
                // SAFETY: the pointer is from above, and is never dropped or changed.
                unsafe { &*metric }
            }
            // Another thread was faster.
            Err(first) => {
                // SAFETY: the pointer is from above, and no other thread can see it.
                drop(unsafe { Box::from_raw(metric) });
                // SAFETY: the pointer is from `Box::into_raw`, and is never dropped or changed.
                unsafe { &*first }
            }
        }
    }
}

/// Creates a metric in a separate registry, which no scrape shows.
fn unscraped<M: Register>(description: &Description) -> M {
    let register = |description| {
        let registry = Registry::options().max_bytes(UNSCRAPED_BYTES).build()?;
        registry.register(description)
    };
    // If the settings are invalid, this registers the metric without them.
    register(description.clone())
        .or_else(|_| register(Description::new("unregistered", "")))
        .unwrap_or_else(|error| panic!("cannot reserve memory for metrics: {error}"))
}

/// The address space of a registry for one metric, in bytes; unused pages take no memory.
const UNSCRAPED_BYTES: u64 = 1 << 20;

impl<M> fmt::Debug for LazyMetric<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LazyMetric").finish_non_exhaustive()
    }
}
