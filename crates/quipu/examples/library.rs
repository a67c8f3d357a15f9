//! A library with its own metrics: the program chooses the registry, a prefix, and constant labels.

use std::error::Error;

use quipu::{Counter, IntGauge, Metrics, Registry, Scope};

/// The metrics of the library.
#[derive(Metrics)]
struct PoolMetrics {
    /// Connections made.
    connections: Counter,
    /// Connections in use.
    in_use: IntGauge,
}

/// A connection pool, as an example of a library.
struct Pool {
    metrics: PoolMetrics,
}

impl Pool {
    fn new(scope: &Scope) -> Result<Self, quipu::Error> {
        Ok(Self { metrics: scope.metrics()? })
    }

    fn use_one(&self, work: impl FnOnce()) {
        self.metrics.connections.inc();
        let _in_use = self.metrics.in_use.in_progress();
        work();
    }
}

#[allow(clippy::print_stdout, reason = "an example shows its result")]
fn main() -> Result<(), Box<dyn Error>> {
    let registry = Registry::new();
    let pool = Pool::new(&registry.prefix("orders_db").label("shard", "1"))?;
    pool.use_one(|| print!("{}", registry.text()));
    Ok(())
}
