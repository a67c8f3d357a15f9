//! The result of a comparison, as a table and as JSON.

use std::io::{self, Write};

use clap::ValueEnum;
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use super::measure::{Entry, FormatRefusal};
use super::sample::Sample;
use crate::wire::{count, messages};
use quipu_process::json;

/// The result of a comparison, as the command prints it.
#[derive(Serialize)]
pub(super) struct Comparison {
    pub(super) file: String,
    pub(super) format: &'static str,
    /// The kind of every message.
    pub(super) message: String,
    pub(super) messages: u64,
    /// The size of the messages in the file, in bytes.
    pub(super) bytes: u64,
    /// Whether the messages are the whole file.
    pub(super) whole_file: bool,
    /// The formats that carry the messages, smallest first.
    pub(super) formats: Vec<FormatRow>,
    pub(super) refused: Vec<RefusalRow>,
}

/// A format that carries the messages. Bytes and nanoseconds are per message.
#[derive(Serialize)]
pub(super) struct FormatRow {
    pub(super) format: &'static str,
    pub(super) stream_bytes: f64,
    pub(super) alone_bytes: f64,
    pub(super) write_ns: f64,
    pub(super) read_ns: f64,
    /// Whether no other format is both smaller and faster.
    pub(super) best: bool,
    pub(super) changed_messages: u64,
    pub(super) first_changed: Option<u64>,
}

impl FormatRow {
    pub(super) fn both_ns(&self) -> f64 {
        self.write_ns + self.read_ns
    }
}

/// A format that cannot carry one of the messages.
#[derive(Serialize)]
pub(super) struct RefusalRow {
    pub(super) format: &'static str,
    pub(super) message: u64,
    pub(super) reason: String,
}

impl Comparison {
    pub(super) fn new(
        sample: &Sample<'_>,
        entries: &[Entry],
        refusals: &[FormatRefusal],
    ) -> Comparison {
        let messages = sample.messages.len() as u64;
        let average = |bytes: u64| bytes as f64 / messages as f64;
        let kind = sample.kind.to_possible_value();
        Comparison {
            file: sample.name.clone(),
            format: sample.format.as_str(),
            message: kind.map_or_else(String::new, |kind| kind.get_name().into()),
            messages,
            bytes: sample.bytes,
            whole_file: sample.is_all,
            formats: entries
                .iter()
                .map(|entry| FormatRow {
                    format: entry.format.as_str(),
                    stream_bytes: average(entry.stream),
                    alone_bytes: average(entry.alone),
                    write_ns: entry.write,
                    read_ns: entry.read,
                    best: entry.is_best,
                    changed_messages: entry.changed.map_or(0, |(_, count)| count),
                    first_changed: entry.changed.map(|(first, _)| first),
                })
                .collect(),
            refused: refusals
                .iter()
                .map(|refusal| RefusalRow {
                    format: refusal.format.as_str(),
                    message: refusal.message,
                    reason: refusal.reason.expected().into(),
                })
                .collect(),
        }
    }

    /// Returns a line that describes the compared messages.
    pub(super) fn title(&self) -> String {
        let Comparison { file, format, message, .. } = self;
        let bytes = count(self.bytes, "byte", "bytes");
        let messages = messages(self.messages);
        let part = if self.whole_file { "" } else { "the first " };
        format!("{file}: {part}{messages} ({message}), {bytes} of {format}")
    }

    pub(super) fn write_json(&self, out: &mut impl Write) -> io::Result<()> {
        json::write(self, out)?;
        writeln!(out)
    }

    pub(super) fn to_text(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_header([
            "",
            "format",
            "bytes in a stream",
            "alone",
            "ns to write",
            "to read",
            "both",
        ]);
        for row in &self.formats {
            table.add_row([
                if row.best { "*" } else { "" },
                row.format,
                &format!("{:.2}", row.stream_bytes),
                &format!("{:.2}", row.alone_bytes),
                &format!("{:.1}", row.write_ns),
                &format!("{:.1}", row.read_ns),
                &format!("{:.1}", row.both_ns()),
            ]);
        }
        for column in table.column_iter_mut().skip(2) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        let mut text = format!("{}\n\n", self.title());
        if !self.formats.is_empty() {
            text.push_str(&format!("{}\n\n", table.trim_fmt()));
            text.push_str("*: no other is both smaller and faster.\n");
        }
        for row in &self.formats {
            if let Some(first) = row.first_changed {
                let changed = messages(row.changed_messages);
                let come = if row.changed_messages == 1 { "comes" } else { "come" };
                let format = row.format;
                text.push_str(&format!(
                    "{format}: {changed} {come} back changed, the first is message {first}.\n"
                ));
            }
        }
        for RefusalRow { format, message, reason } in &self.refused {
            text.push_str(&format!("{format}: cannot write message {message}: {reason}.\n"));
        }
        text
    }
}
