//! Counts and serves, in five lines. Run `cargo run --example serve --features serve`, then
//! `curl http://127.0.0.1:9184/metrics`.

use std::error::Error;
use std::time::Duration;

fn main() -> Result<(), Box<dyn Error>> {
    let registry = quipu::Registry::new();
    let turns = registry.counter("turns", "Iterations of this loop.")?;
    let _server = quipu::http::serve("127.0.0.1:9184", &registry)?;
    loop {
        turns.inc();
        std::thread::sleep(Duration::from_millis(100));
    }
}
