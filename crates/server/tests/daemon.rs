//! The daemon as users get it: the real binary, started anew for each test, over real sockets.
//!
//! Nothing here reaches into the library. What a test says of the daemon, it has read from an
//! answer, the log, the state file, or an exit code.

#![allow(clippy::unwrap_used, reason = "functions of tests may fail by panicking")]

mod common;

#[path = "daemon/contract.rs"]
mod contract;
#[path = "daemon/crash.rs"]
mod crash;
#[path = "daemon/expiry.rs"]
mod expiry;
#[path = "daemon/keys.rs"]
mod keys;
#[path = "daemon/logs.rs"]
mod logs;
#[path = "daemon/metrics.rs"]
mod metrics;
#[path = "daemon/refusals.rs"]
mod refusals;
#[path = "daemon/settings.rs"]
mod settings;
#[path = "daemon/shutdown.rs"]
mod shutdown;
#[path = "daemon/starts.rs"]
mod starts;
#[path = "daemon/state_file.rs"]
mod state_file;
#[path = "../../quipu/tests/judges/textparse.rs"]
mod textparse;
