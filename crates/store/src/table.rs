//! The metrics of a store, by name.

use std::collections::HashMap;
use std::sync::Arc;

use quipu::Registry;

use crate::error::Error;
use crate::interface::{Metric, Spec};
use crate::lock::Locked;

/// The metrics of a store by their names, each made once in a process.
pub(crate) struct Table<M> {
    metrics: Locked<HashMap<String, Arc<M>>>,
}

impl<M> Default for Table<M> {
    fn default() -> Self {
        Self { metrics: Locked::default() }
    }
}

impl<M: Metric> Table<M> {
    /// The metric of that name, which `make` makes where there is none.
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
                    Some(what) => {
                        let what = format!("{what}; use the metric that is there, or rename one");
                        Err(Error::new(format!("metric {:?}", spec.name), what))
                    }
                };
            }
            let metric = Arc::new(make()?);
            metrics.insert(spec.name.clone(), Arc::clone(&metric));
            Ok(metric)
        });
        let again =
            || Error::new(&spec.name, "it was asked for while another metric is made; ask again");
        found.unwrap_or_else(|| Err(again()))
    }
}

/// Registers what `once` does, for a store that the process of that generation made.
pub(crate) fn register<T>(
    registry: &Registry,
    generation: u32,
    once: impl Fn(&Registry) -> Result<T, quipu::Error>,
) -> Result<T, quipu::Error> {
    match once(registry) {
        // The parent's, from the moment of the fork; this process does not know it any more. What is
        // made in the segment is in every registry on it.
        Err(error) if error.is_duplicate() && generation != quipu_segment::generation() => {
            once(&Registry::on(registry.segment().clone()))
        }
        result => result,
    }
}
