//! A library with metrics of its own: the program says where they go, and under which names.

use std::error::Error;

use quipu::{Counter, IntGauge, Metrics, Registry, Scope};

/// What the library counts.
#[derive(Metrics)]
struct PoolMetrics {
    /// Connections that were made.
    connections: Counter,
    /// Connections that are in use.
    in_use: IntGauge,
}

/// A pool of connections, as some library has it.
struct Pool {
    metrics: PoolMetrics,
}

impl Pool {
    fn new(scope: &Scope<'_>) -> Result<Self, quipu::Error> {
        Ok(Self { metrics: scope.metrics()? })
    }

    fn use_one(&self, work: impl FnOnce()) {
        self.metrics.connections.inc();
        let _in_use = self.metrics.in_use.in_progress();
        work();
    }
}

#[allow(clippy::print_stdout, reason = "an example shows what it does")]
fn main() -> Result<(), Box<dyn Error>> {
    let registry = Registry::new();
    let pool = Pool::new(&registry.prefix("orders_db").label("shard", "1"))?;
    pool.use_one(|| print!("{}", registry.text()));
    Ok(())
}
