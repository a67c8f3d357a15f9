//! The log: one line per event on standard error, as text or as JSON.
//!
//! A line that cannot be written, for example because the disk is full or the reader is gone, is
//! dropped, because the daemon must count with or without a log.
//!
//! Fields can contain strings from clients, and people read logs on a terminal. Each line is
//! therefore escaped as a whole when it is written.

use std::io::{self, Write};

use clap::ValueEnum;
use clap::builder::styling::{AnsiColor, Style};
use quipu_commands::output::{Stream, is_colored};
use quipu_segment::printable;
use serde::{Deserialize, Serialize};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::time::SystemTime;

use quipu_process::{flags, json};

flags! {
    /// The settings of the log.
    #[command(next_help_heading = "Log")]
    pub struct LogFlags {
        /// Format of the log [default: text]
        #[arg(long, env = "QUIPU_LOG_FORMAT", value_name = "FORM")]
        log_format: LogFormat = LogFormat::Text,

        /// Lowest severity that is logged; each one includes the severities before it [default:
        /// info]
        #[arg(long, env = "QUIPU_LOG_LEVEL", value_name = "LEVEL")]
        log_level: LogLevel = LogLevel::Info,
    }
}

/// Format of a log line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// Plain text, for people.
    Text,
    /// One JSON object per line, for programs.
    Json,
}

/// The lowest severity that is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Failures.
    Error,
    /// Conditions that may lead to failures.
    Warn,
    /// Events of normal operation.
    Info,
    /// Each connection that opens or closes, each refused request with the reason, and each sync.
    Debug,
    /// Each response.
    Trace,
}

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
        .with_writer(move || Lines(format));
    // We ignore the error, because it only means that a log is already installed.
    let _ = match format {
        LogFormat::Text => log.try_init(),
        LogFormat::Json => log.json().flatten_event(true).try_init(),
    };
}

/// A writer of whole lines to standard error, which never fails.
struct Lines(LogFormat);

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut text = escaped(self.0, line);
        if self.0 == LogFormat::Text
            && is_colored(Stream::Error)
            && let Some(colored) = colored(&text)
        {
            text = colored;
        }
        let _ = io::stderr().write_all(text.as_bytes());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Colors the level of a line, which is its second word.
fn colored(line: &str) -> Option<String> {
    let (time, rest) = line.split_once(' ')?;
    let (level, message) = rest.trim_start().split_once(' ')?;
    let color = match level {
        "ERROR" => AnsiColor::Red,
        "WARN" => AnsiColor::Yellow,
        "INFO" => AnsiColor::Green,
        "DEBUG" | "TRACE" => AnsiColor::Blue,
        _ => return None,
    };
    let (dim, style) = (Style::new().dimmed(), color.on_default().bold());
    Some(format!("{dim}{time}{dim:#} {style}{level:>5}{style:#} {message}"))
}

/// Escapes a line that ends in a line feed.
fn escaped(format: LogFormat, line: &[u8]) -> String {
    let line = String::from_utf8_lossy(line);
    let text = line.strip_suffix('\n').unwrap_or(&line);
    match format {
        LogFormat::Text => format!("{}\n", printable(text)),
        LogFormat::Json => format!("{}\n", json::escaped(text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_level_of_a_line_is_colored() {
        let line = "2026-11-28T10:00:00Z  WARN slow: it waits\n";
        let expected = "\u{1b}[2m2026-11-28T10:00:00Z\u{1b}[0m \u{1b}[1m\u{1b}[33m WARN\u{1b}[0m \
                        slow: it waits\n";
        assert_eq!(colored(line).as_deref(), Some(expected));
        assert_eq!(colored("a b c"), None);
    }

    #[test]
    fn a_line_stays_one_line_and_commands_no_terminal() {
        let line = "INFO a push from=\u{202e}txt\u{9b}2J\nERROR forged\n".as_bytes();
        let expected = "INFO a push from=\\u{202e}txt\\u{9b}2J\\nERROR forged\n";
        assert_eq!(escaped(LogFormat::Text, line), expected);
        let line = "{\"from\":\"\u{202e}\u{85}\\n\u{7f}\"}\n".as_bytes();
        let expected = "{\"from\":\"\\u202e\\u0085\\n\\u007f\"}\n";
        assert_eq!(escaped(LogFormat::Json, line), expected);
    }
}
