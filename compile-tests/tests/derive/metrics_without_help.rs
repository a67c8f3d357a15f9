use quipu::{Counter, Metrics};

#[derive(Metrics)]
struct Service {
    requests: Counter,
}

fn main() {}
