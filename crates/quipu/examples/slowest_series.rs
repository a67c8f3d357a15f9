//! Measures which operations wait for the disk. `slowest_series DIRECTORY [SERIES]` creates a file
//! in the directory, and prints how long it takes to register a counter, to create the slowest of
//! SERIES (by default, a million) new series, and to open the file again.

use std::time::{Duration, Instant};

use quipu::label::Values;
use quipu::{Counter, CounterFamily, Description, Registry};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let directory = arguments.next().ok_or("name a directory")?;
    let series = arguments.next().and_then(|count| count.to_str()?.parse().ok());
    let path = std::path::Path::new(&directory).join("slowest_series.quipu");
    let options = Registry::options().max_bytes(1 << 30);
    let registry = options.open(&path)?;
    let begun = Instant::now();
    for i in 0..100 {
        let _: Counter = registry.counter(&format!("counter_{i}"), "")?;
    }
    let registering = begun.elapsed() / 100;
    let description = Description::new("requests", "").labels(["user"]);
    let family: CounterFamily<Values<'static>> = registry.register(description)?;
    let mut slowest = Duration::ZERO;
    let mut slow = 0;
    for i in 0..series.unwrap_or(1_000_000_u32) {
        let user = i.to_string();
        let begun = Instant::now();
        family.inc(&Values(&[&user]));
        let took = begun.elapsed();
        slowest = slowest.max(took);
        slow += u32::from(took > Duration::from_millis(1));
    }
    drop((family, registry));
    let begun = Instant::now();
    drop(options.open(&path)?);
    let opening = begun.elapsed();
    let size = std::fs::metadata(&path)?.len();
    std::fs::remove_file(&path)?;
    let mut out = std::io::stdout().lock();
    use std::io::Write;
    writeln!(out, "registering a counter    {registering:?}")?;
    writeln!(out, "the slowest new series   {slowest:?}; {slow} took more than 1 ms")?;
    writeln!(out, "opening {size} bytes again   {opening:?}")?;
    Ok(())
}
