//! The output for people: a line for each changed family and series.

use std::io::{self, Write};

use quipu_segment::printable;

use super::changes::{ChangeKind, Changes, FamilyChange, SeriesChange};
use crate::inspect::names::{exact, number};
use crate::look::{Points, Value, series_name};

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

fn write_family(
    family: &FamilyChange<'_>,
    seconds: Option<f64>,
    out: &mut impl Write,
) -> io::Result<()> {
    let FamilyChange { name, kind, change, series, growth, .. } = family;
    let (mark, kind) = (mark(*change), kind.name());
    write!(out, "{mark} {}  {kind}, {} series", printable(*name), series.len())?;
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
    let SeriesChange { labels, change, before, after, growth } = series;
    write!(out, "    {} {}  ", mark(*change), printable(&series_name(name, labels)))?;
    match (before, after) {
        (Some(before), Some(after)) => write!(out, "{} -> {}", text(before), text(after))?,
        (Some(one), None) | (None, Some(one)) => write!(out, "{}", text(one))?,
        (None, None) => {}
    }
    if let (ChangeKind::Changed | ChangeKind::Reset, Some(growth)) = (change, growth) {
        write!(out, "  {}", grown(*growth, seconds))?;
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
