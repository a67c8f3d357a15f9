//! The output for people: the ticks, the gaps, and a sparkline for each value.

use std::io::{self, Write};
use std::path::Path;

use quipu_segment::printable;

use super::{Curve, History, short};
use crate::inspect::text::{columns, date, duration, shown, title};
use crate::top::trend::Levels;

/// The maximum number of characters in a sparkline.
const WIDTH: usize = 60;
/// The maximum number of listed gaps.
const GAPS: usize = 10;

pub(super) fn write(history: &History, file: &Path, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "{}: the history", printable(file))?;
    about(history, out)?;
    let gaps: Vec<_> = history.gaps().collect();
    if !gaps.is_empty() {
        title("gaps", out)?;
        let rows = gaps.iter().take(GAPS).map(|(from, to)| {
            vec![date(from.unix), "to".into(), date(to.unix), duration(to.time - from.time)]
        });
        columns(&rows.collect::<Vec<_>>(), out)?;
        if gaps.len() > GAPS {
            writeln!(out, "  and {} more", gaps.len() - GAPS)?;
        }
    }
    let curves = history.curves();
    if !curves.is_empty() {
        title("values", out)?;
        let head = ["", "least", "most", "last", "from the first tick to the last"];
        let rows = curves.iter().map(row);
        let rows = [head.map(str::to_owned).to_vec()].into_iter().chain(rows);
        columns(&rows.collect::<Vec<_>>(), out)?;
    }
    for (i, (at, message)) in history.recording.damage().enumerate() {
        if i == 0 {
            title("damage", out)?;
        }
        writeln!(out, "  byte {at}: {}", shown(message))?;
    }
    Ok(())
}

fn about(history: &History, out: &mut impl Write) -> io::Result<()> {
    let info = history.recording.info();
    let mut rows = vec![
        ("held", format!("{} in {} ticks", duration(history.held()), info.ticks)),
        ("interval", duration(info.interval)),
    ];
    if let (Some(first), Some(last)) = (history.shown().first(), history.shown().last()) {
        let (count, from, to) = (history.shown().len(), date(first.unix), date(last.unix));
        rows.push(("shown", format!("{count} ticks, {from} to {to}")));
    }
    let writer = match (info.owner, history.is_alive()) {
        // An external recorder ends when no program keeps the file open, no matter how the programs
        // ended.
        (0, _) => "ended in good order; if from outside, maybe after its programs died".to_owned(),
        (token, Some(true)) => format!("token {token}, a running process"),
        (token, Some(false)) => format!("token {token}, a process that died"),
        (token, None) => format!("token {token}, an unknown process"),
    };
    rows.push(("writer", writer));
    if info.dropped > 0 {
        let text = format!("{} series, beyond the recorder's limits", info.dropped);
        rows.push(("omitted", text));
    }
    if info.overwritten > 0 {
        let text = format!("{} of its chunks were overwritten meanwhile", info.overwritten);
        rows.push(("missed", text));
    }
    title("recorder", out)?;
    let rows: Vec<_> = rows.into_iter().map(|(name, text)| vec![name.to_owned(), text]).collect();
    columns(&rows, out)
}

fn row(curve: &Curve<'_>) -> Vec<String> {
    let there = || curve.points.iter().copied().filter(|n| !n.is_nan());
    let (least, most) = there().fold((f64::NAN, f64::NAN), |(a, b), n| (a.min(n), b.max(n)));
    let last = curve.points.last().copied().unwrap_or(f64::NAN);
    let name = shown(&format!("{} {}", curve.name, curve.unit));
    vec![name, short(least), short(most), short(last), sparkline(&curve.points)]
}

/// Draws a character for each tick, or for the greatest value of several ticks.
fn sparkline(points: &[f64]) -> String {
    let width = points.len().min(WIDTH);
    let greatest = (0..width).map(|at| {
        let part = &points[at * points.len() / width..(at + 1) * points.len() / width];
        part.iter().fold(f64::NAN, |a, b| a.max(*b)) as f32
    });
    Levels::BLOCKS.draw(greatest, WIDTH).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sparklines_show_the_greatest_value_of_each_part() {
        let few = sparkline(&[0.0, 1.0, 4.0, 8.0, f64::NAN, 8.0]);
        assert_eq!(few, "\u{2581}\u{2582}\u{2585}\u{2588} \u{2588}");
        let many: Vec<f64> = (0..600).map(|i| if i == 300 { 8.0 } else { 0.0 }).collect();
        let many = sparkline(&many);
        assert_eq!(many.chars().filter(|c| *c == '\u{2588}').count(), 1);
        assert_eq!(many.chars().count(), WIDTH);
        assert_eq!(sparkline(&[]), "");
        assert_eq!(
            (short(1234.5), short(f64::NAN), short(1e-9)),
            ("1234.5".into(), "-".into(), "1.00e-9".into())
        );
    }
}
