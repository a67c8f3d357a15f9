//! The quipu daemon: counts requests over sliding windows, and loses none that it answered.
//!
//! `quipu serve` is a straight line, see [`serve`]: parse, open the state, listen, answer, and
//! stop in reverse. [`convert`] and [`compare`] are the commands for messages, [`scrape`] is the one
//! for files of other programs. The program is the product; this library is how its parts are named,
//! and makes no promise to stay as it is.

pub mod checkpoint;
pub mod compare;
pub mod config;
pub mod convert;
pub mod http;
pub mod logs;
pub mod metrics;
pub mod routes;
pub mod scrape;
pub mod serve;
pub mod signals;
pub mod state;
pub mod top;
pub mod wire;
