//! A row in the [list](LIST) of inputs: a name, and routes if the input has HTTP.

use super::requests::{self, BodyInput};
use super::{Inputs, LIST, Shared};
use quipu_http::routing::Path;
use quipu_http::{Reply, Request};

/// An input.
#[derive(Debug)]
pub struct Row {
    /// Its name, as the value of a label.
    pub name: &'static str,
    /// Its routes; none for an input with listeners.
    pub routes: &'static [Route],
}

/// A route of an input.
#[derive(Debug)]
pub struct Route {
    /// Its path.
    pub path: Path,
    /// Whether its requests bring metrics in their bodies.
    pub has_body: bool,
    /// Whether the settings have it.
    pub is_on: fn(&Shared) -> bool,
    /// Handles a request.
    pub respond: fn(&Inputs, &Request) -> Reply,
}

impl Route {
    /// `POST` to a path without parameters, whatever the settings.
    pub(super) const fn post<I: BodyInput>(path: &'static str) -> Self {
        let path = Path::new(path, "", "POST");
        Self { path, has_body: true, is_on: |_| true, respond: requests::respond::<I> }
    }
}

/// An input, by the number of its row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Input(usize);

impl Input {
    /// The input of this name. If there is none, the program does not compile.
    pub const fn named(name: &str) -> Self {
        let (mut number, name) = (0, name.as_bytes());
        while !is_same(LIST[number].name.as_bytes(), name) {
            number += 1;
        }
        Self(number)
    }

    /// Its number.
    pub fn number(self) -> usize {
        self.0
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        LIST[self.0].name
    }
}

const fn is_same(one: &[u8], other: &[u8]) -> bool {
    match (one, other) {
        ([first, one @ ..], [second, other @ ..]) => *first == *second && is_same(one, other),
        _ => one.is_empty() && other.is_empty(),
    }
}
