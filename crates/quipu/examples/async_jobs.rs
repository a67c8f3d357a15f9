//! Measures async jobs: how long they take, and how many are running. A job that is dropped before
//! it ends is measured as well. `cargo run --example async_jobs`.

use quipu::{Registry, int_gauge, timed};

#[timed("job_duration_seconds", "Duration of a job.", "queue" => queue)]
async fn job(queue: &str) {
    let _running = int_gauge!("jobs_running", "Running jobs.", "queue" => queue).in_progress();
    tokio::task::yield_now().await;
}

#[allow(clippy::print_stdout, reason = "an example shows its result")]
#[tokio::main(flavor = "current_thread")]
async fn main() {
    tokio::join!(job("mail"), job("mail"), job("print"));
    print!("{}", Registry::global().text());
}
