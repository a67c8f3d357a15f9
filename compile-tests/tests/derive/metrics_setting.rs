use quipu::{Counter, Histogram, Metrics};

#[derive(Metrics)]
struct JobMetrics {
    /// Completed jobs.
    #[metric(unit = "jobs", verbatim)]
    jobs: Counter,
    /// Duration of a job.
    #[metric(bucket = [1.0])]
    duration: Histogram,
}

fn main() {}
