//! Two processes count in one file. The counts outlive both of them, and each of them can show the
//! counts of all. To see this, run `cargo run --example two_processes` several times.

use std::error::Error;
use std::process::Command;

use quipu::Registry;

#[allow(clippy::print_stdout, reason = "an example shows its result")]
fn main() -> Result<(), Box<dyn Error>> {
    let registry = Registry::open(std::env::temp_dir().join("two_processes.quipu"))?;
    registry.counter("jobs", "Completed jobs, of all processes.")?.inc();
    if std::env::args().len() == 1 {
        Command::new(std::env::current_exe()?).arg("child").status()?;
        print!("{}", registry.text());
    }
    Ok(())
}
