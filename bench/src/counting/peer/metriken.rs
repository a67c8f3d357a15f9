//! [`metriken`](https://docs.rs/metriken): counters in statics, without dynamic labels.

use metriken::Counter;

use crate::counting::contender::{Contender, Handle};
use crate::counting::version;

/// metriken.
pub struct Metriken;

impl Contender for Metriken {
    const KEY: &'static str = "metriken";

    fn subject() -> String {
        version::of("metriken")
    }

    fn handle() -> Option<impl Handle> {
        Some(&ERRORS)
    }
}

#[metriken::metric(name = "http_request_errors_total")]
static ERRORS: Counter = Counter::new();

impl Handle for &'static Counter {
    fn inc(&self) {
        self.increment();
    }
}
