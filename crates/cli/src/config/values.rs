//! The settings that have a few named values.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// What to do with a truncated or damaged state file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Damaged {
    /// Refuse to start, and leave the file untouched.
    Refuse,
    /// Rename the file, and start with a new one.
    SetAside,
}

/// Whether something is done. A settings file may also have `true` or `false`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Switch {
    /// Yes; also written as true.
    #[value(alias = "true")]
    On,
    /// No; also written as false.
    #[value(alias = "false")]
    Off,
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
    /// Details of those events.
    Debug,
    /// Everything.
    Trace,
}
