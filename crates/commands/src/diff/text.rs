//! The output for people: a line for each changed family and series.

use std::io::{self, Write};

use clap::builder::styling::{AnsiColor, Style};
use quipu_segment::printable;

use super::changes::{ChangeKind, Changes, FamilyChange, SeriesChange};
use crate::inspect::names::{exact, number};
use crate::look::{Points, Value, series_name};
use crate::output::painted;

/// Writes all changes, and a summary.
pub(super) fn write(changes: &Changes<'_>, out: &mut impl Write) -> io::Result<()> {
    for family in &changes.families {
        write_family(family, changes.seconds, out)?;
    }
    let count = |change| changes.families.iter().filter(|family| family.change == change).count();
    let (new, gone, changed) =
        (count(ChangeKind::New), count(ChangeKind::Gone), count(ChangeKind::Changed));
    let all = changes.families.iter().flat_map(|family| &family.series);
    let series = |change| all.clone().filter(|series| series.change == change).count();
    let grown = series(ChangeKind::Changed) + series(ChangeKind::Reset);
    writeln!(
        out,
        "families: {new} new, {gone} gone, {changed} changed, {} the same",
        changes.same_families
    )?;
    writeln!(
        out,
        "series: {} new, {} gone, {grown} changed, {} the same",
        series(ChangeKind::New),
        series(ChangeKind::Gone),
        changes.same_series
    )
}

fn mark(change: ChangeKind) -> char {
    match change {
        ChangeKind::New => '+',
        ChangeKind::Gone => '-',
        ChangeKind::Reset => '!',
        ChangeKind::Changed => ' ',
    }
}

/// Returns the color of a change: green is new, red is gone, yellow began again.
fn color(change: ChangeKind) -> Style {
    match change {
        ChangeKind::New => AnsiColor::Green.on_default(),
        ChangeKind::Gone => AnsiColor::Red.on_default(),
        ChangeKind::Reset => AnsiColor::Yellow.on_default(),
        ChangeKind::Changed => Style::new(),
    }
}

/// The color of differences and rates.
const RATE: Style = AnsiColor::Cyan.on_default();

fn write_family(
    family: &FamilyChange<'_>,
    seconds: Option<f64>,
    out: &mut impl Write,
) -> io::Result<()> {
    let FamilyChange { name, kind, change, series, growth, .. } = family;
    let (mark, kind) = (mark(*change), kind.as_str());
    let heading = format!("{mark} {}", printable(*name));
    write!(out, "{}  {kind}, {} series", painted(color(*change).bold(), heading), series.len())?;
    match growth {
        Some(growth) if *change == ChangeKind::Changed => {
            writeln!(out, "  {}", grown(*growth, seconds))?
        }
        _ => writeln!(out)?,
    }
    for change in series {
        write_series(name, change, seconds, out)?;
    }
    Ok(())
}

fn write_series(
    name: &str,
    series: &SeriesChange<'_>,
    seconds: Option<f64>,
    out: &mut impl Write,
) -> io::Result<()> {
    let SeriesChange { labels, change, before, after, growth, delta } = series;
    let (mark, name) = (mark(*change), printable(&series_name(name, labels)).to_string());
    write!(out, "    {}  ", painted(color(*change), format_args!("{mark} {name}")))?;
    match (before, after) {
        (Some(before), Some(after)) => write!(out, "{} -> {}", text(before), text(after))?,
        (Some(one), None) | (None, Some(one)) => write!(out, "{}", text(one))?,
        (None, None) => {}
    }
    if let (ChangeKind::Changed | ChangeKind::Reset, Some(growth)) = (change, growth) {
        write!(out, "  {}", painted(RATE, grown(*growth, seconds)))?;
    } else if let Some(delta) = delta {
        let sign = if *delta > 0.0 && delta.is_finite() { "+" } else { "" };
        write!(out, "  {}", painted(RATE, format_args!("({sign}{})", rounded(*delta))))?;
    }
    writeln!(out, "{}", if *change == ChangeKind::Reset { ", began again from zero" } else { "" })
}

/// Formats a growth and its rate.
fn grown(growth: f64, seconds: Option<f64>) -> String {
    // An infinite number already shows its sign.
    let sign = if growth.is_infinite() { "" } else { "+" };
    let growth_text = format!("{sign}{}", rounded(growth));
    match seconds {
        Some(seconds) => format!("{growth_text}, {:.3}/s", growth / seconds),
        None => growth_text,
    }
}

/// Rounds a difference to 15 digits, because further digits are errors of the binary form of the
/// two numbers.
fn rounded(n: f64) -> String {
    number(format!("{n:.14e}").parse().unwrap_or(n))
}

fn text(value: &Value<Points<'_>>) -> String {
    match value {
        Value::Number(n) => exact(*n),
        Value::Histogram { count, sum, .. } | Value::Summary { count, sum, .. } => {
            format!("count {} sum {}", number(*count), number(*sum))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_has_the_digits_of_its_numbers() {
        assert_eq!(grown(1027.2 - 695.3354, None), "+331.8646");
        assert_eq!(grown(0.1 + 0.2, Some(2.0)), "+0.3, 0.150/s");
        assert_eq!(grown(9_007_199_254_740_992.0 - 992.0, None), "+9007199254740000");
        assert_eq!(grown(f64::INFINITY, None), "+Inf");
    }
}
