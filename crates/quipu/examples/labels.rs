//! Counts requests by three labels through bound handles, because an update through a bound handle
//! need not search for the series. You can run it with `cargo run --example labels --features
//! http`.

use http::{Method, StatusCode};
use quipu::{Registry, counter};

#[allow(clippy::print_stdout, reason = "an example shows its result")]
fn main() {
    let outcomes = [(Method::GET, StatusCode::OK), (Method::PUT, StatusCode::FORBIDDEN)];
    let [read, refused] = outcomes.map(|(method, status)| {
        counter!("requests", "Requests.", "method" => method, "path" => "/", "status" => status)
            .bind()
    });
    (0..1000).for_each(|_| read.inc());
    refused.inc();
    print!("{}", Registry::global().text());
}
