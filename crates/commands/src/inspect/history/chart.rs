//! The history as SVG: a panel for each metric, with a line for each of its series. What changed
//! comes first.

use std::io::{self, Write};
use std::path::Path;

use plotters::prelude::*;
use plotters::style::text_anchor::HPos;
use quipu_segment::printable;

use super::{Curve, History, short};
use crate::compare::plot::{Area, Drawn, FAINT, GRID, TEXT, text};
use crate::inspect::text::{date, shown};

const WIDTH: i32 = 960;
const LEFT: i32 = 84;
const RIGHT: i32 = WIDTH - 24;
const TOP: i32 = 76;
/// A panel: its title, the lines, and a line of the legend for each of the first series.
const TITLE: i32 = 28;
const HEIGHT: i32 = 110;
const LEGEND: i32 = 16;
const LEGENDS: usize = 8;
/// The most panels, and the most lines of one.
const PANELS: usize = 100;
const LINES: usize = 200;

const COLOURS: [RGBColor; LEGENDS] = [
    RGBColor(0x00, 0x6d, 0x77),
    RGBColor(0xd0, 0x8c, 0x4a),
    RGBColor(0x5b, 0x5f, 0xc7),
    RGBColor(0xb5, 0x3a, 0x55),
    RGBColor(0x3f, 0x8f, 0x4f),
    RGBColor(0x8a, 0x5a, 0x9e),
    RGBColor(0x9a, 0x8b, 0x1f),
    RGBColor(0x4a, 0x7f, 0xb5),
];

/// The curves of one metric, those that reach highest first.
struct Panel {
    curves: Vec<Curve>,
    least: f64,
    most: f64,
    changes: bool,
}

impl Panel {
    fn height(&self) -> i32 {
        // At most 8.
        TITLE + HEIGHT + LEGEND * self.curves.len().min(LEGENDS) as i32 + LEGEND
    }
}

pub(super) fn write(history: &History, file: &Path, out: &mut impl Write) -> io::Result<()> {
    let mut panels = panels(history.curves());
    let left_out = panels.len().saturating_sub(PANELS);
    panels.truncate(PANELS);
    let height = TOP + panels.iter().map(Panel::height).sum::<i32>() + 24;
    let mut svg = String::new();
    {
        // Positive, and at most 100 panels high.
        let backend = SVGBackend::with_string(&mut svg, (WIDTH as u32, height as u32));
        let area = backend.into_drawing_area();
        let drawn = draw(history, file, &panels, left_out, &area).and_then(|()| area.present());
        drawn.map_err(|error| io::Error::other(error.to_string()))?;
    }
    out.write_all(svg.as_bytes())
}

/// The curves by metric: first the metrics that changed.
fn panels(curves: Vec<Curve>) -> Vec<Panel> {
    let mut panels: Vec<Panel> = Vec::new();
    let mut index = std::collections::HashMap::new();
    for curve in curves {
        let at = *index.entry((curve.metric.clone(), curve.unit)).or_insert_with(|| {
            panels.push(Panel { curves: Vec::new(), least: 0.0, most: 0.0, changes: false });
            panels.len() - 1
        });
        let panel = &mut panels[at];
        let there = || curve.points.iter().copied().filter(|n| n.is_finite());
        let (least, most) = there().fold((f64::NAN, f64::NAN), |(a, b), n| (a.min(n), b.max(n)));
        panel.changes |= least < most;
        // Zero is always in view.
        (panel.least, panel.most) = (panel.least.min(least), panel.most.max(most));
        panel.curves.push(curve);
    }
    let greatest = |curve: &Curve| curve.points.iter().fold(f64::NEG_INFINITY, |a, b| a.max(*b));
    for panel in &mut panels {
        panel.curves.sort_by(|one, other| greatest(other).total_cmp(&greatest(one)));
    }
    panels.sort_by_key(|panel| !panel.changes);
    panels
}

fn draw(
    history: &History,
    file: &Path,
    panels: &[Panel],
    left_out: usize,
    area: &Area<'_>,
) -> Drawn {
    area.fill(&WHITE)?;
    text(area, &printable(file).to_string(), (LEFT, 24), 20.0, TEXT, HPos::Left)?;
    let (first, last) = (history.ticks.first(), history.ticks.last());
    let mut about = match (first, last) {
        (Some(first), Some(last)) => format!("{} to {}", date(first.1), date(last.1)),
        _ => "nothing was recorded".into(),
    };
    if left_out > 0 {
        about += &format!("; {left_out} metrics are left out: use --metric");
    }
    text(area, &about, (LEFT, 50), 15.0, FAINT, HPos::Left)?;
    let mut top = TOP;
    for panel in panels {
        draw_panel(history, panel, top, area)?;
        top += panel.height();
    }
    Ok(())
}

fn draw_panel(history: &History, panel: &Panel, top: i32, area: &Area<'_>) -> Drawn {
    let (upper, lower) = (top + TITLE, top + TITLE + HEIGHT);
    let Some(first) = panel.curves.first() else { return Ok(()) };
    let title = shown(&format!("{} {}", first.metric, first.unit));
    text(area, &title, (LEFT, top + TITLE / 2), 15.0, TEXT, HPos::Left)?;
    let span = if panel.most > panel.least { panel.most - panel.least } else { 1.0 };
    let up = |n: f64| {
        let share = ((n - panel.least) / span).clamp(0.0, 1.0);
        lower - (share * f64::from(lower - upper)).round() as i32
    };
    for n in [panel.least, panel.least + span / 2.0, panel.least + span] {
        let y = up(n);
        area.draw(&PathElement::new([(LEFT, y), (RIGHT, y)], GRID.stroke_width(1)))?;
        text(area, &short(n), (LEFT - 8, y), 12.0, FAINT, HPos::Right)?;
    }
    let least_gap = history.replayed.interval.saturating_add(history.replayed.interval / 2);
    for (number, curve) in panel.curves.iter().take(LINES).enumerate().rev() {
        let colour = COLOURS[number % COLOURS.len()];
        for line in lines(history, curve, least_gap) {
            let line: Vec<_> = line.into_iter().map(|(x, n)| (x, up(n))).collect();
            match line[..] {
                [point] => area.draw(&Circle::new(point, 1, colour.filled()))?,
                _ => area.draw(&PathElement::new(line, colour.stroke_width(1)))?,
            }
        }
    }
    for (number, curve) in panel.curves.iter().take(LEGENDS).enumerate() {
        // At most 8.
        let y = lower + LEGEND * (number as i32 + 1);
        let dash = [(LEFT, y), (LEFT + 16, y)];
        area.draw(&PathElement::new(dash, COLOURS[number].stroke_width(2)))?;
        let more = panel.curves.len().saturating_sub(LEGENDS);
        let name = match (number + 1 == LEGENDS && more > 0, shown(&curve.name)) {
            (true, name) => format!("{name}, and {more} more"),
            (false, name) => name,
        };
        text(area, &name, (LEFT + 24, y), 12.0, FAINT, HPos::Left)?;
    }
    Ok(())
}

/// The parts of a curve without gaps: pixels across, and values.
fn lines(history: &History, curve: &Curve, least_gap: u64) -> Vec<Vec<(i32, f64)>> {
    let first = history.ticks.first().map_or(0, |tick| tick.0);
    let span = history.ticks.last().map_or(0, |tick| tick.0.saturating_sub(first)).max(1);
    let mut lines: Vec<Vec<(i32, f64)>> = Vec::new();
    let mut before = None;
    for (&(time, _), &n) in history.ticks.iter().zip(&curve.points) {
        if !n.is_finite() {
            before = None;
            continue;
        }
        let share = time.saturating_sub(first) as f64 / span as f64;
        let x = LEFT + (share.min(1.0) * f64::from(RIGHT - LEFT)).round() as i32;
        match lines.last_mut() {
            Some(line) if before.is_some_and(|before| time.saturating_sub(before) <= least_gap) => {
                line.push((x, n));
            }
            _ => lines.push(vec![(x, n)]),
        }
        before = Some(time);
    }
    lines
}
