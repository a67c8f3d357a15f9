//! The quipu daemon and commands. The daemon counts requests over sliding windows, and loses no
//! request that it has answered.
//!
//! `quipu serve` runs straight through, see [`serve`]: parse, open the state, listen, serve, and
//! stop in reverse order. [`convert`] and [`compare`] work on messages, [`scrape`] on metrics files
//! of other programs. The program is the product: this library only names its parts, and its API is
//! not stable.

pub mod address;
pub mod agent;
pub mod background;
pub mod checkpoint;
pub mod compare;
pub mod config;
pub mod convert;
pub mod count;
pub(crate) mod decoders;
pub mod diff;
pub mod exposing;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
pub mod http;
pub mod inputs;
pub mod inspect;
mod json;
pub mod lint;
pub mod live;
pub(crate) mod local_socket;
pub mod logs;
mod look;
mod memory;
pub mod metrics;
pub mod omitted;
pub mod output;
pub mod outputs;
pub mod record;
pub mod recording;
pub mod routes;
mod routing;
pub mod scrape;
pub mod seldom;
pub mod serve;
pub mod signals;
pub mod snapshot;
pub mod source;
pub mod state;
mod temporary;
mod text;
pub mod time;
pub mod top;
pub mod wire;
