use quipu::{Counter, Metrics};

#[derive(Metrics)]
struct Service {
    /// Requests.
    #[metrics(prefix = "http")]
    requests: Counter,
}

fn main() {}
