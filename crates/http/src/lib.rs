//! The HTTP/1.1 transport of the daemon: sockets, limits, deadlines and shutdown around `hyper`.
//!
//! [`Server::bind`] opens the listeners, and [`Server::serve`] runs them until a shutdown future
//! ends. Each thread owns one current-thread runtime, its own listeners and its own [`Handler`].
//! Threads only share the number of open connections. A handler is synchronous and sees whole
//! requests. This is enough because the daemon responds from memory, in [`Steps`] if a response
//! takes long. Connections take turns, see `wire`.
//!
//! Costs: a request on a kept-alive connection is one `recv` and one `send` (plus its share of an
//! `epoll_wait`). A connection with a single request is `accept4`, `recv`, `send`, `close`, because
//! a socket only joins the reactor when it must wait (see `wire`). A request needs no timer and no
//! box; one coarse sweep per thread enforces the deadlines (see `worker`).

mod access;
mod body;
mod budget;
mod connection;
mod connections;
mod error;
mod handler;
mod host;
mod limits;
mod listener;
pub mod local_socket;
mod query;
mod refusal;
pub mod routing;
mod server;
mod service;
mod settings;
mod silent;
mod wire;
mod worker;

pub use access::Access;
pub use error::Error;
pub use handler::{CloseReason, Event, Handler, Reply, Request, Response, Steps, text};
pub use limits::Limits;
pub use listener::Options;
pub use query::Query;
pub use refusal::Refusal;
pub use server::{Server, ShutdownReport};
pub use settings::HttpFlags;
