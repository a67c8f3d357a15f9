//! Shows how a figure grows with an amount, the number at the end of the cases' names: a plot with
//! a line for each subject, as SVG, and a table of the steepest steps.
//!
//! A point is a median, with a line from the minimum to the maximum. The scales are logarithmic if
//! the values differ much, like in a plot of bars.

use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::format;
use super::plot::{Area, Axis, Drawn, FAINT, GRID, Legend, PADDING, TEXT, WIDTH, colours, text};
use super::table::{escape, subjects};
use crate::record::Record;
use crate::{Error, Result};

const HEIGHT: i32 = 300;
const LEFT: i32 = 84;
/// The space to the right of the last point, for its value.
const VALUE_ROOM: i32 = 84;
const RADIUS: i32 = 3;

/// Renders the plot as an SVG file. All records must share one metric and unit.
pub(super) fn render(title: &str, along: &str, records: &[&Record]) -> Result<String> {
    let lines = Lines::of(records)?;
    let first = records[0];
    let mut svg = String::new();
    let legend = Legend::new(&subjects(records));
    let height = (legend.bottom + HEIGHT + 70) as u32;
    {
        let area = SVGBackend::with_string(&mut svg, (WIDTH as u32, height)).into_drawing_area();
        let panel = Panel {
            along: Axis::between(&lines.amounts()),
            up: Axis::of(records),
            top: legend.bottom,
            bottom: legend.bottom + HEIGHT,
        };
        let subtitle = format!("{}, by the number of {along}", first.metric);
        let drawn = legend
            .draw(&area, height as i32, title, &subtitle)
            .and_then(|()| panel.draw_axes(&area, &lines, &first.unit))
            .and_then(|()| panel.draw_lines(&area, &lines));
        drawn.map_err(|error| Error::report(format!("the plot: {error}")))?;
        area.present().map_err(|error| Error::report(format!("the plot: {error}")))?;
    }
    Ok(svg)
}

/// Renders a table of the first and the last figure of each subject, and of its steepest step: the
/// greatest ratio of a figure to the figure of the amount before.
pub(super) fn steps(records: &[&Record]) -> Result<String> {
    let lines = Lines::of(records)?;
    let mut rows = "| | least amount | greatest amount | steepest step |\n".to_string();
    rows.push_str("| --- | ---: | ---: | ---: |");
    for (subject, points) in &lines.0 {
        let [first, .., last] = points[..] else { continue };
        let at = |point: &Point| {
            let value = format::quantity(point.record.median, &point.record.unit);
            format!("{value} at {}", format::number_of(point.amount, ""))
        };
        let steepest = points
            .windows(2)
            .map(|pair| (pair[1].record.median / pair[0].record.median, pair))
            .filter(|(ratio, _)| ratio.is_finite())
            .max_by(|a, b| a.0.total_cmp(&b.0));
        let step = steepest.map_or("-".into(), |(ratio, pair)| {
            let amount = |point: &Point| format::number_of(point.amount, "");
            format!("{}, {} to {}", format::ratio(ratio), amount(&pair[0]), amount(&pair[1]))
        });
        rows.push_str(&format!(
            "\n| {} | {} | {} | {step} |",
            escape(subject),
            at(&first),
            at(&last)
        ));
    }
    match format::runs(records).as_str() {
        "one run" => rows.push_str("\n\nOne run."),
        runs => rows.push_str(&format!("\n\nMedian of {runs}.")),
    }
    Ok(rows)
}

/// The points of each subject, in the order of their amounts.
struct Lines<'a>(Vec<(&'a str, Vec<Point<'a>>)>);

#[derive(Clone, Copy)]
struct Point<'a> {
    amount: f64,
    record: &'a Record,
}

impl<'a> Lines<'a> {
    fn of(records: &[&'a Record]) -> Result<Lines<'a>> {
        let first = *records.first().ok_or_else(|| Error::report("lines of no records"))?;
        if records.iter().any(|r| r.metric != first.metric || r.unit != first.unit) {
            return Err(Error::report(
                "lines need records of one metric and unit: give metric=...",
            ));
        }
        let points = records
            .iter()
            .map(|record| Ok(Point { amount: amount(&record.case)?, record }))
            .collect::<Result<Vec<_>>>()?;
        let line = |subject: &'a str| {
            let of = |point: &&Point| point.record.subject == subject;
            let mut points: Vec<_> = points.iter().filter(of).copied().collect();
            points.sort_by(|a, b| a.amount.total_cmp(&b.amount));
            (subject, points)
        };
        Ok(Lines(subjects(records).into_iter().map(line).collect()))
    }

    /// All amounts, in order.
    fn amounts(&self) -> Vec<f64> {
        let points = self.0.iter().flat_map(|(_, points)| points);
        let mut amounts: Vec<f64> = points.map(|point| point.amount).collect();
        amounts.sort_by(f64::total_cmp);
        amounts.dedup();
        amounts
    }
}

/// Returns the number after the last slash of a case.
fn amount(case: &str) -> Result<f64> {
    let text = case.rsplit('/').next().unwrap_or_default().replace(',', "");
    text.parse().map_err(|_| Error::report(format!("{case} does not end with an amount")))
}

/// The axes, and the edges of the lines.
struct Panel {
    along: Axis,
    up: Axis,
    top: i32,
    bottom: i32,
}

impl Panel {
    fn x(&self, amount: f64) -> i32 {
        let room = WIDTH - PADDING - VALUE_ROOM - LEFT - 20;
        LEFT + 20 + (self.along.share(amount) * f64::from(room)).round() as i32
    }

    fn y(&self, value: f64) -> i32 {
        self.bottom - (self.up.share(value) * f64::from(self.bottom - self.top)).round() as i32
    }

    fn draw_axes(&self, area: &Area, lines: &Lines, unit: &str) -> Drawn {
        let right = WIDTH - PADDING - VALUE_ROOM + 20;
        for tick in &self.up.ticks {
            let y = self.y(*tick);
            area.draw(&PathElement::new([(LEFT, y), (right, y)], GRID.stroke_width(1)))?;
            text(area, &self.up.label(*tick, unit), (LEFT - 8, y), 14.0, FAINT, HPos::Right)?;
        }
        for amount in lines.amounts() {
            let x = self.x(amount);
            area.draw(&PathElement::new([(x, self.top), (x, self.bottom)], GRID.stroke_width(1)))?;
            let label = format::number_of(amount, "");
            text(area, &label, (x, self.bottom + 14), 14.0, FAINT, HPos::Center)?;
        }
        let axis = [(LEFT, self.top), (LEFT, self.bottom), (right, self.bottom)];
        area.draw(&PathElement::new(axis, FAINT.stroke_width(1)))
    }

    fn draw_lines(&self, area: &Area, lines: &Lines) -> Drawn {
        let names: Vec<&str> = lines.0.iter().map(|(subject, _)| *subject).collect();
        // Ours are drawn last, on top of the others.
        for ((_, points), (_, colour)) in lines.0.iter().zip(colours(&names)).rev() {
            let at = |point: &Point| (self.x(point.amount), self.y(point.record.median));
            let path: Vec<_> = points.iter().map(at).collect();
            area.draw(&PathElement::new(path, colour.stroke_width(2)))?;
            for point in points {
                let (x, y) = at(point);
                let range = [(x, self.y(point.record.min)), (x, self.y(point.record.max))];
                area.draw(&PathElement::new(range, colour.stroke_width(1)))?;
                area.draw(&Circle::new((x, y), RADIUS, colour.filled()))?;
            }
            if let Some(last) = points.last() {
                let (x, y) = at(last);
                let value = format::quantity(last.record.median, &last.record.unit);
                text(area, &value, (x + 9, y), 14.0, TEXT, HPos::Left)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Label;

    fn records() -> Vec<Record> {
        let of = |amount: &str, subject: &str, value: f64| {
            Label::new(&format!("series/{amount}"), subject, "add", "ns").of(&[value])
        };
        vec![
            of("10", "quipu", 5.0),
            of("1,000", "quipu", 20.0),
            of("100", "quipu", 6.0),
            of("10", "peer", 50.0),
            of("100", "peer", 500.0),
        ]
    }

    #[test]
    fn the_steepest_step_is_between_neighbours() {
        let records = records();
        assert_eq!(
            steps(&records.iter().collect::<Vec<_>>()).unwrap(),
            "| | least amount | greatest amount | steepest step |\n\
             | --- | ---: | ---: | ---: |\n\
             | quipu | 5.00 ns at 10 | 20.0 ns at 1,000 | 3.33x, 100 to 1,000 |\n\
             | peer | 50.0 ns at 10 | 500 ns at 100 | 10.0x, 10 to 100 |\n\
             \n\
             One run."
        );
    }

    #[test]
    fn draws_a_line_for_each_subject() {
        let records = records();
        let svg = render("Adding", "series", &records.iter().collect::<Vec<_>>()).unwrap();
        for text in ["Adding", "add, by the number of series", "20.0 ns", "500 ns", "1,000"] {
            assert!(svg.contains(text), "{text}");
        }
        assert_eq!(svg.matches("<circle").count(), 5);
    }

    #[test]
    fn a_case_without_an_amount_is_refused() {
        let record = Label::new("handle/add", "quipu", "time", "ns").of(&[1.0]);
        assert!(steps(&[&record]).is_err() && render("t", "x", &[]).is_err());
    }
}
