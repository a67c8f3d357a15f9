//! A batch job that ends before it can be scraped, so it pushes its metrics to a Pushgateway. You
//! can run it with `cargo run --example batch --features push -- http://localhost:9091`. Without
//! the URL, it prints them.

use std::error::Error;

use quipu::{Description, Gauge, Registry, Summary};

#[allow(clippy::print_stdout, reason = "an example shows its result")]
fn main() -> Result<(), Box<dyn Error>> {
    let registry = Registry::new();
    let rows = registry.counter("rows", "Rows read.")?;
    let size: Summary =
        registry.register(Description::new("row_size", "Size of a row.").unit("bytes"))?;
    let done: Gauge = registry
        .register(Description::new("last_success_timestamp", "End of the job.").unit("seconds"))?;
    for row in 0..1000_u32 {
        rows.inc();
        size.observe(f64::from(row % 100));
    }
    done.set_to_current_time();
    match std::env::args().nth(1) {
        Some(gateway) => quipu::http::Push::new(&gateway, "batch").replace(&registry)?,
        None => print!("{}", registry.text()),
    }
    Ok(())
}
