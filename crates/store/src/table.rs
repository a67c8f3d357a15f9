//! The metrics of a store by name, and their registration in a segment's registry.

use std::collections::HashMap;
use std::sync::Arc;

use quipu::Registry;

use crate::error::Error;
use crate::interface::{Metric, Spec};
use crate::lock::LockedValue;

/// The metrics of a store by name; a process creates each once. Clones share the metrics.
pub(crate) struct Table<M> {
    metrics: Arc<LockedValue<HashMap<String, Arc<M>>>>,
}

impl<M> Clone for Table<M> {
    fn clone(&self) -> Self {
        Self { metrics: Arc::clone(&self.metrics) }
    }
}

impl<M> Default for Table<M> {
    fn default() -> Self {
        Self { metrics: Arc::default() }
    }
}

impl<M: Metric> Table<M> {
    /// Returns the metric of this name; `make` creates it if it does not exist.
    pub(crate) fn get_or_make(
        &self,
        spec: &Spec,
        make: impl FnOnce() -> Result<M, Error>,
    ) -> Result<Arc<M>, Error> {
        spec.check()?;
        let found = self.metrics.with(|metrics| {
            if let Some(metric) = metrics.get(&spec.name) {
                return match metric.spec().contradiction(spec) {
                    None => Ok(Arc::clone(metric)),
                    Some(difference) => {
                        let reason =
                            format!("{difference}; use the existing metric, or rename one");
                        Err(Error::new(format!("metric {:?}", spec.name), reason))
                    }
                };
            }
            let metric = Arc::new(make()?);
            metrics.insert(spec.name.clone(), Arc::clone(&metric));
            Ok(metric)
        });
        let again = || {
            Error::new(
                &spec.name,
                "this thread is already creating another metric; try again after that",
            )
        };
        found.unwrap_or_else(|| Err(again()))
    }
}

/// Calls `once` to register a metric. `generation` belongs to the process that created the store.
pub(crate) fn register<T>(
    registry: &Registry,
    generation: u32,
    once: impl Fn(&Registry) -> Result<T, quipu::Error>,
) -> Result<T, quipu::Error> {
    match once(registry) {
        // The parent registered it around the time of the fork, and this process cannot get a
        // handle to it. A new registry on the same segment contains everything in the segment.
        Err(error) if error.is_duplicate() && generation != quipu_segment::generation() => {
            once(&Registry::from_segment(registry.segment().clone()))
        }
        result => result,
    }
}
