//! The page of a single series in `quipu top`: its labels, its numbers, its buckets.

use quipu_segment::printable;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};

use super::app::App;
use super::list::bucket_quantiles;
use super::model::{Buckets, Row, RowValue};
use super::number::short;
use super::trend::LENGTH;
use crate::inspect::names::{exact, number};
use crate::inspect::text::date;
use crate::look::labels;

/// The maximum number of labels and buckets that are listed.
const MAX_LINES: usize = 1000;

/// Returns the lines of the page.
pub(super) fn lines(app: &App, width: usize) -> Vec<Line<'static>> {
    let Some(row) = app.row() else {
        return vec![Line::raw("this series is gone")];
    };
    let family = app.model.family(row);
    let mut page = Page(Vec::new());
    page.add("type", family.kind.as_str());
    page.add("help", &family.help);
    page.add("unit", &family.unit);
    for (name, value) in labels(&row.labels).take(MAX_LINES) {
        page.add("label", &format!("{name} = {value}"));
    }
    page.add("since", &row.start.map_or_else(String::new, date));
    if row.resets > 0 {
        page.add("resets", &format!("{} times it began again from zero", row.resets));
    }
    page.numbers(row);
    let points = row.points();
    if let (Some(low), Some(high)) = (extreme(&points, f32::min), extreme(&points, f32::max)) {
        let room = width.saturating_sub(INDENT).min(LENGTH);
        page.add("trend", &app.levels.draw(points.into_iter(), room));
        page.add("", &format!("{} to {}", short(low), short(high)));
    }
    match &row.value {
        RowValue::Histogram(buckets) => page.buckets(buckets, width),
        RowValue::Summary { quantiles, .. } => {
            for (q, value) in quantiles.iter().take(MAX_LINES) {
                page.add("quantile", &format!("{q}: {}", number(*value)));
            }
        }
        RowValue::Number(_) => {}
    }
    page.0
}

/// The column where values begin.
const INDENT: usize = 10;

/// The lines of the page so far.
struct Page(Vec<Line<'static>>);

impl Page {
    /// Adds a line, unless the value is empty.
    fn add(&mut self, name: &'static str, text: &str) {
        if !text.is_empty() {
            let name =
                Span::styled(format!("{name:<INDENT$}"), Style::new().add_modifier(Modifier::DIM));
            self.0.push(Line::from(vec![name, Span::raw(printable(text).to_string())]));
        }
    }

    fn numbers(&mut self, row: &Row) {
        let mean = |sum: f64, count: f64| match count > 0.0 {
            true => format!(", mean {}", short(sum / count)),
            false => String::new(),
        };
        match &row.value {
            RowValue::Number(n) => self.add("value", &exact(*n)),
            RowValue::Histogram(buckets) => {
                let Buckets { count, sum, .. } = **buckets;
                let mean = mean(sum, count);
                self.add("value", &format!("count {}, sum {}{mean}", number(count), number(sum)));
            }
            RowValue::Summary { count, sum, .. } => {
                let mean = mean(*sum, *count);
                self.add("value", &format!("count {}, sum {}{mean}", number(*count), number(*sum)));
            }
        }
        if let Some(rate) = row.rate {
            self.add("rate", &format!("{} a second", short(rate)));
        }
        if let RowValue::Histogram(buckets) = &row.value {
            let (quantiles, is_recent) = bucket_quantiles(buckets, [0.5, 0.9, 0.99, 0.999]);
            let names = ["p50", "p90", "p99", "p99.9"].iter().zip(quantiles);
            let known = names.filter_map(|(name, q)| Some(format!("{name} {}", short(q?))));
            let known = known.collect::<Vec<_>>().join(", ");
            self.add(if is_recent { "recent" } else { "all" }, &known);
        }
    }

    fn buckets(&mut self, buckets: &Buckets, width: usize) {
        if buckets.now.is_empty() {
            return;
        }
        let head = format!("{:<INDENT$}{:>12}{:>14}{:>12}", "", "up to", "observations", "recent");
        self.0.push(Line::styled(head, Style::new().add_modifier(Modifier::BOLD)));
        let most = buckets.now.iter().map(|(_, count)| *count).fold(0.0, f64::max);
        let room = width.saturating_sub(INDENT + 12 + 14 + 12 + 1).min(40);
        // Hide an empty exponential bucket, because it only marks the lower bound of the next one.
        let shown =
            |(_, (_, count)): &(usize, &(f64, f64))| !buckets.is_exponential || *count > 0.0;
        let all = buckets.now.iter().enumerate();
        for (i, (bound, count)) in all.filter(shown).take(MAX_LINES) {
            let recent = buckets.recent.get(i).map_or_else(String::new, |n| short(*n));
            let share = if most > 0.0 { count.max(0.0) / most } else { 0.0 };
            // We limit the bar to the available width.
            let bar = "#".repeat((share * room as f64).round() as usize);
            let (bound, count) = (number(*bound), short(*count));
            let text = format!("{:<INDENT$}{bound:>12}{count:>14}{recent:>12} {bar}", "");
            self.0.push(Line::raw(text));
        }
    }
}

fn extreme(points: &[f32], choose: fn(f32, f32) -> f32) -> Option<f64> {
    points.iter().copied().filter(|point| point.is_finite()).reduce(choose).map(f64::from)
}
