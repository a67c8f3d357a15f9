//! The log: one line per event on standard error, as text or as JSON.
//!
//! A line that cannot be written, because the disk is full or the reader has gone, is dropped: the
//! daemon counts with or without a log.

use std::io::{self, Write};

use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::time::SystemTime;

use crate::config::{LogFormat, LogLevel};

/// Starts the log of this process. Later calls have no effect.
pub fn start(format: LogFormat, level: LogLevel) {
    let level = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let log = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_timer(SystemTime)
        .with_target(false)
        .with_ansi(false)
        .log_internal_errors(false)
        .with_writer(|| Unfailing);
    // An error means that a log is installed already, which is fine.
    let _ = match format {
        LogFormat::Text => log.try_init(),
        LogFormat::Json => log.json().flatten_event(true).try_init(),
    };
}

/// Standard error, as a writer that never fails.
struct Unfailing;

impl Write for Unfailing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = io::stderr().write_all(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
