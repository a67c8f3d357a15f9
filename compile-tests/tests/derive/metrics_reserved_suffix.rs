use quipu::{Counter, Metrics};

#[derive(Metrics)]
struct Service {
    /// Requests.
    requests_total: Counter,
}

fn main() {}
