//! Writes the findings.

use std::io::{self, Write};

use quipu_segment::printable;
use serde_json::{Value as Json, json};

use super::findings::{Finding, Findings, Unreadable};
use crate::output::OutputFormat;
use quipu_process::json::escaped;

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
    let lines = findings.lines().iter().map(
        |Unreadable { line, offset, message }| json!({"line": line, "offset": offset, "what": message}),
    );
    let found = findings.all().map(|Finding { metric, rule, message, line, count }| {
        json!({
            "metric": metric,
            "rule": rule.name(),
            "what": message,
            "line": line,
            "count": count,
        })
    });
    let object = json!({
        "families": findings.families,
        "series": findings.series,
        "unreadable": Json::from_iter(lines),
        "unchecked": findings.unchecked,
        "findings": Json::from_iter(found),
        "more": findings.more,
    });
    writeln!(out, "{}", escaped(&object))
}
