use quipu::{Counter, Metrics};

#[derive(Metrics)]
struct Service {
    /// Requests.
    requests: Counter,
    /// Requests again.
    #[metric(rename = "requests")]
    more: Counter,
}

fn main() {}
