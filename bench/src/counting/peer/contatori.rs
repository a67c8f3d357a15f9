//! [`contatori`](https://docs.rs/contatori): a counter of 64 padded cells, without dynamic labels.

use contatori::counters::monotone::Monotone;

use crate::counting::contender::{Contender, Handle};
use crate::counting::version;

/// contatori.
pub struct Contatori;

impl Contender for Contatori {
    const KEY: &'static str = "contatori";

    fn subject() -> String {
        version::of("contatori")
    }

    fn handle() -> Option<impl Handle> {
        Some(Monotone::new().with_name("http_request_errors_total"))
    }
}

impl Handle for Monotone {
    fn inc(&self) {
        self.add(1);
    }
}
