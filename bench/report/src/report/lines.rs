//! Plots how a figure grows with an amount, the number at the end of the cases' names: an SVG file
//! with a line for each subject, and a table of the steepest steps.
//!
//! A point is a median, with a line from the minimum to the maximum. The scales are logarithmic if
//! the values differ much. The name of a line is at its right end. Ours have a colour, and the
//! peers are grey, with different dashes.

use super::axis::Axis;
use super::format;
use super::svg::{Anchor, PADDING, Svg, WIDTH, text_width};
use super::table::{escape, subjects};
use crate::record::{self, Record};
use crate::{Error, Result};

/// The highest ratio of two values on a linear scale.
const LINEAR_SPAN: f64 = 20.0;

const HEIGHT: f64 = 300.0;
const LEFT: f64 = 76.0;
const TOP: f64 = 92.0;
const RADIUS: f64 = 3.5;
/// The height of a name.
const LINE: f64 = 17.0;
/// The maximum width for the names of lines.
const NAME_ROOM: f64 = 250.0;
/// The space between the last point and the names.
const LEADER: f64 = 26.0;
const DASHES: [&str; 4] = ["", "7 3", "2 3", "10 3 2 3"];

/// Renders the plot as an SVG file. All records must share one metric and unit.
/// `up` names the metric, if its own name is not enough.
pub(super) fn render(
    title: &str,
    along: &str,
    up: Option<&str>,
    records: &[&Record],
) -> Result<String> {
    let lines = Lines::of(records)?;
    let panel = Panel::new(&lines, records);
    let mut svg = Svg::default();
    let runs = if records.iter().any(|record| record.max > record.min) {
        "Point: median of the runs. Vertical line: from the lowest to the highest run."
    } else {
        "Each point is one run."
    };
    svg.text("faint", (PADDING, 50.0), Anchor::Start, runs);
    let metric = up.unwrap_or(&records[0].metric);
    panel.draw_axes(&mut svg, &lines, records[0], (along, metric));
    panel.draw_lines(&mut svg, &lines);
    let ends: Vec<String> = lines.0.iter().filter_map(describe).collect();
    let description = format!("{metric}, by the number of {along}: {}.", ends.join("; "));
    Ok(svg.finish(title, &description, panel.bottom + 58.0))
}

/// Describes the ends of a line.
fn describe((subject, points): &(&str, Vec<Point>)) -> Option<String> {
    let value = |point: &Point| format::quantity(point.record.median, &point.record.unit);
    let (first, last) = (points.first()?, points.last()?);
    let amount = |point: &Point| format::number_of(point.amount, "");
    Some(format!(
        "{subject} from {} at {} to {} at {}",
        value(first),
        amount(first),
        value(last),
        amount(last)
    ))
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

    /// Returns all amounts, in order.
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
    right: f64,
    bottom: f64,
    /// The space for the names of lines.
    names: f64,
}

impl Panel {
    fn new(lines: &Lines, records: &[&Record]) -> Panel {
        let labels = lines.0.iter().filter_map(|(subject, points)| label(subject, points));
        let names = labels.map(|label| text_width(&label)).fold(0.0, f64::max).min(NAME_ROOM);
        Panel {
            along: Axis::between(&lines.amounts(), LINEAR_SPAN),
            up: Axis::of(records, LINEAR_SPAN),
            right: WIDTH - PADDING - names - LEADER,
            bottom: TOP + HEIGHT.max(lines.0.len() as f64 * LINE),
            names,
        }
    }

    fn x(&self, amount: f64) -> f64 {
        let left = LEFT + 16.0;
        left + self.along.share(amount) * (self.right - left)
    }

    fn y(&self, value: f64) -> f64 {
        self.bottom - self.up.share(value) * (self.bottom - TOP)
    }

    fn draw_axes(&self, svg: &mut Svg, lines: &Lines, first: &Record, titles: (&str, &str)) {
        let (along, up) = titles;
        let better = if first.higher_is_better() { "higher" } else { "lower" };
        let title = format!("{}, {better} is better", self.up.title(up, first));
        svg.text("faint", (PADDING, TOP - 20.0), Anchor::Start, &title);
        for tick in &self.up.ticks {
            let y = self.y(*tick);
            svg.line("grid", (LEFT, y), (self.right + 8.0, y));
            let label = self.up.label(*tick, &first.unit);
            svg.text("faint", (LEFT - 8.0, y), Anchor::End, &label);
        }
        let mut free = 0.0;
        for amount in lines.amounts() {
            let x = self.x(amount);
            svg.line("grid", (x, TOP), (x, self.bottom));
            let label = short(amount);
            let half = text_width(&label) / 2.0;
            if x - half > free {
                svg.text("faint", (x, self.bottom + 14.0), Anchor::Middle, &label);
                free = x + half + 4.0;
            }
        }
        svg.line("axis", (LEFT, TOP), (LEFT, self.bottom));
        svg.line("axis", (LEFT, self.bottom), (self.right + 8.0, self.bottom));
        let scale = if self.along.logarithmic { "; logarithmic scale" } else { "" };
        let title = format!("number of {along}{scale}");
        let middle = (LEFT + self.right) / 2.0;
        svg.text("faint", (middle, self.bottom + 38.0), Anchor::Middle, &title);
    }

    fn draw_lines(&self, svg: &mut Svg, lines: &Lines) {
        let at = |point: &Point| (self.x(point.amount), self.y(point.record.median));
        let ends: Vec<f64> =
            lines.0.iter().map(|(_, points)| points.last().map_or(TOP, |p| at(p).1)).collect();
        let places = spread(&ends, TOP, self.bottom);
        let (mut ours, mut peers) = (0, 0);
        let mut styles = Vec::new();
        for (subject, _) in &lines.0 {
            let is_ours = record::is_ours(subject);
            let index = if is_ours { &mut ours } else { &mut peers };
            styles.push((is_ours, DASHES[*index % DASHES.len()]));
            *index += 1;
        }
        // Ours are drawn last, on top of the others.
        let mut order: Vec<usize> = (0..styles.len()).collect();
        order.sort_by_key(|index| styles[*index].0);
        for index in order {
            let (subject, points) = &lines.0[index];
            let (is_ours, dashes) = styles[index];
            let (line, dot, name) = match is_ours {
                true => ("our-line", "ours", "strong"),
                false => ("peer-line", "dot", ""),
            };
            let Some(label) = label(subject, points) else { continue };
            let path: Vec<(f64, f64)> = points.iter().map(at).collect();
            svg.path(line, &path, dashes);
            for point in points {
                let (x, y) = at(point);
                let (low, high) = (self.y(point.record.min), self.y(point.record.max));
                if low - high > 2.0 {
                    svg.line(line_of_range(is_ours), (x, low), (x, high));
                }
                svg.circle(dot, (x, y), RADIUS);
            }
            let end = path[path.len() - 1];
            let left = self.right + LEADER;
            svg.path("axis", &[(end.0 + 5.0, end.1), (left - 3.0, places[index])], "2 2");
            svg.text_within(name, (left, places[index]), Anchor::Start, &label, self.names);
        }
    }
}

fn line_of_range(is_ours: bool) -> &'static str {
    if is_ours { "our-range" } else { "peer-range" }
}

/// Formats an amount for the axis: `500`, `10k`, `1M`.
fn short(amount: f64) -> String {
    let digits = |amount: f64| format::number_of(amount, "");
    match amount {
        _ if amount >= 1e6 => format!("{}M", digits(amount / 1e6)),
        _ if amount >= 1e4 => format!("{}k", digits(amount / 1e3)),
        _ => digits(amount),
    }
}

/// Returns the name of a line, with its last value.
fn label(subject: &str, points: &[Point]) -> Option<String> {
    let last = points.last()?.record;
    Some(format!("{subject}: {}", format::quantity(last.median, &last.unit)))
}

/// Moves heights apart, in their order, so that each has the space of a name between the top and
/// the bottom.
fn spread(heights: &[f64], top: f64, bottom: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..heights.len()).collect();
    order.sort_by(|a, b| heights[*a].total_cmp(&heights[*b]));
    let mut places = heights.to_vec();
    let mut least = top;
    for index in &order {
        places[*index] = places[*index].max(least);
        least = places[*index] + LINE;
    }
    let mut greatest = bottom;
    for index in order.iter().rev() {
        places[*index] = places[*index].min(greatest);
        greatest = places[*index] - LINE;
    }
    places
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
        let svg = render("Adding", "series", None, &records.iter().collect::<Vec<_>>()).unwrap();
        for text in
            ["Adding", "add, logarithmic", "number of series", "quipu: 20.0 ns", "500 ns", "1,000"]
        {
            assert!(svg.contains(text), "{text}");
        }
        assert_eq!(svg.matches("<circle").count(), 5);
    }

    #[test]
    fn names_at_the_ends_do_not_cover_each_other() {
        assert_eq!(spread(&[50.0, 51.0, 10.0], 0.0, 100.0), [50.0, 50.0 + LINE, 10.0]);
        assert_eq!([short(1000.0), short(20_000.0), short(1e7)], ["1,000", "20k", "10M"]);
        assert_eq!(spread(&[100.0, 99.0], 0.0, 100.0), [100.0, 100.0 - LINE]);
    }

    #[test]
    fn a_case_without_an_amount_is_refused() {
        let record = Label::new("handle/add", "quipu", "time", "ns").of(&[1.0]);
        assert!(steps(&[&record]).is_err() && render("t", "x", None, &[]).is_err());
    }
}
