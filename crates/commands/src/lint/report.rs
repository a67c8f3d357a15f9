//! Writes the findings of the linter, as text or as JSON.

use std::io::{self, Write};

use quipu_segment::printable;
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use super::findings::{Finding, Findings, Unreadable};
use crate::output::OutputFormat;
use quipu_process::json;

pub(super) fn write(
    findings: &Findings,
    format: OutputFormat,
    out: &mut impl Write,
) -> io::Result<()> {
    match format {
        OutputFormat::Text => text(findings, out),
        OutputFormat::Json => json(findings, out),
    }
}

fn text(findings: &Findings, out: &mut impl Write) -> io::Result<()> {
    for Unreadable { message, .. } in findings.lines() {
        writeln!(out, "{}", printable(&message))?;
    }
    for Finding { metric, rule, message, line, count } in findings.all() {
        if let Some(line) = line {
            write!(out, "line {line}: ")?;
        }
        if !metric.is_empty() {
            write!(out, "{}: ", printable(&metric))?;
        }
        let times = if count > 1 { format!(", {count} times") } else { String::new() };
        writeln!(out, "{} ({}{times})", printable(&message), rule.name())?;
    }
    if findings.more > 0 {
        writeln!(out, "and {} more", findings.more)?;
    }
    let (families, series) = (findings.families, findings.series);
    write!(out, "families: {families}, series: {series}, ")?;
    if findings.unchecked > 0 {
        write!(out, "lines that were not checked: {}, ", findings.unchecked)?;
    }
    match (findings.lines().len(), findings.all().len()) {
        (0, 0) => writeln!(out, "nothing found"),
        (lines, found) => writeln!(out, "lines that cannot be read: {lines}, findings: {found}"),
    }
}

fn json(findings: &Findings, out: &mut impl Write) -> io::Result<()> {
    json::write(&Document(findings), out)?;
    writeln!(out)
}

/// The whole object.
struct Document<'f>(&'f Findings);

impl Serialize for Document<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(findings) = self;
        let mut object = serializer.serialize_struct("Findings", 6)?;
        object.serialize_field("families", &findings.families)?;
        object.serialize_field("series", &findings.series)?;
        object.serialize_field("unreadable", &findings.lines())?;
        object.serialize_field("unchecked", &findings.unchecked)?;
        object.serialize_field("findings", &Vec::from_iter(findings.all()))?;
        object.serialize_field("more", &findings.more)?;
        object.end()
    }
}
