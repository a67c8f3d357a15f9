//! The type of a row in the [list](LIST) of inputs: the name of an input, its routes, and its
//! listeners.

use quipu::Registry;
use quipu::intake::Intake;

use super::listeners::{self, Listeners, Protocol, RunningListeners};
use super::requests::{self, BodyInput};
use super::{Inputs, LIST, Options, Shared};
use quipu_http::routing::Path;
use quipu_http::{Reply, Request};

/// An input in the list of all inputs: its name, and how it receives data.
#[derive(Debug)]
pub struct Row {
    /// The name, which is also the value of the label `input`.
    pub name: &'static str,
    /// The routes of the input.
    pub routes: &'static [Route],
    /// The listeners, if the input reads lines from sockets.
    pub lines: Option<LineInput>,
}

impl Row {
    /// Creates the row of an input with routes.
    pub(super) const fn http(name: &'static str, routes: &'static [Route]) -> Self {
        Self { name, routes, lines: None }
    }

    /// Creates the row of an input that receives lines from sockets.
    pub(super) const fn lines(name: &'static str, lines: LineInput) -> Self {
        Self { name, routes: &[], lines: Some(lines) }
    }
}

/// An input that reads lines from sockets.
#[derive(Debug)]
pub struct LineInput {
    /// The protocol of the lines.
    pub protocol: Protocol,
    /// Selects the options of this input.
    pub options: fn(&Options) -> &listeners::Options,
    /// Starts a thread for each bound socket.
    pub start: fn(
        Listeners,
        &Intake,
        &'static Shared,
        &Registry,
    ) -> std::result::Result<RunningListeners, listeners::Error>,
}

/// A route of an input.
#[derive(Debug)]
pub struct Route {
    /// The path of the route.
    pub path: Path,
    /// Whether the requests carry metrics in a body.
    pub has_body: bool,
    /// Returns whether the settings enable the route.
    pub is_on: fn(&Shared) -> bool,
    /// Handles a request.
    pub respond: fn(&Inputs, &Request) -> Reply,
}

impl Route {
    /// Creates a `POST` route for a path without parameters, which is always enabled.
    pub(super) const fn post<I: BodyInput>(path: &'static str) -> Self {
        let path = Path::new(path, "", "POST");
        Self { path, has_body: true, is_on: |_| true, respond: requests::respond::<I> }
    }
}

/// An input: the index of its row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Input(usize);

impl Input {
    /// Returns the input with this name. An unknown name does not compile, because callers use this
    /// function in constants.
    pub const fn named(name: &str) -> Self {
        let (mut number, name) = (0, name.as_bytes());
        while !is_same(LIST[number].name.as_bytes(), name) {
            number += 1;
        }
        Self(number)
    }

    /// Returns the index of the row.
    pub fn number(self) -> usize {
        self.0
    }

    /// Returns the name of the input.
    pub fn name(self) -> &'static str {
        LIST[self.0].name
    }
}

const fn is_same(left: &[u8], right: &[u8]) -> bool {
    match (left, right) {
        ([first, left @ ..], [second, right @ ..]) => *first == *second && is_same(left, right),
        _ => left.is_empty() && right.is_empty(),
    }
}
