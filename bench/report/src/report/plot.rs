//! A plot of records: groups of horizontal bars, as SVG.
//!
//! A group is a case on a number of threads. A bar in a group is a subject's median, with a line
//! from the minimum to the maximum, and the name of the subject to its left; the best bar is the
//! first one. Ours have a colour, and all peers are grey. A plot shows about [`BARS`] bars, because
//! the table below it contains the others.

use super::axis::Axis;
use super::format;
use super::svg::{Anchor, PADDING, Svg, WIDTH, text_width};
use super::table::{Case, cases, subjects};
use crate::record::Record;
use crate::{Error, Result};

/// The greatest number of bars, unless each group has only [`FEWEST`].
const BARS: usize = 12;
const FEWEST: usize = 4;

/// The highest ratio of two values on a linear scale. On it, you can compare the lengths of bars.
const LINEAR_SPAN: f64 = 100.0;

const BAR: f64 = 16.0;
const ROW: f64 = 22.0;
const GROUP_GAP: f64 = 10.0;
const GROUP_TITLE: f64 = 26.0;
/// The width of bold letters, in widths of normal ones.
const BOLD: f64 = 1.08;
/// The space for the names of subjects, at most.
const NAME_ROOM: f64 = 250.0;

/// Renders the plot as an SVG file. All records must share one metric and unit. `metric` is the
/// title of the axis, instead of the name of the metric, and `limit` is the greatest number of bars
/// of a group.
pub(super) fn render(
    title: &str,
    metric: Option<&str>,
    records: &[&Record],
    limit: Option<usize>,
) -> Result<String> {
    let first = *records.first().ok_or_else(|| Error::report("a plot of no records"))?;
    if records.iter().any(|r| r.metric != first.metric || r.unit != first.unit) {
        return Err(Error::report("a plot needs records of one metric and unit: give metric=..."));
    }
    let groups = groups(records, limit);
    let plot = Plot::new(first, metric.unwrap_or(&first.metric), &groups);
    Ok(plot.draw(title, &groups))
}

/// A case, with its bars from best to worst.
struct Group<'a> {
    title: String,
    bars: Vec<&'a Record>,
    /// The number of records without a bar.
    omitted: usize,
}

fn groups<'a>(records: &[&'a Record], limit: Option<usize>) -> Vec<Group<'a>> {
    let subjects = subjects(records);
    let cases = cases(records);
    let limit = limit.unwrap_or((BARS / cases.len()).max(FEWEST));
    let titles = titles(&cases);
    cases
        .iter()
        .zip(titles)
        .map(|(case, title)| {
            let all: Vec<&Record> =
                subjects.iter().filter_map(|subject| case.of(records, subject)).collect();
            let total = all.len();
            let bars = select(all, limit);
            Group { title, omitted: total - bars.len(), bars }
        })
        .collect()
}

/// Returns a title for each case: the parts of its name and the number of threads, if they are not
/// the same for all.
fn titles(cases: &[Case]) -> Vec<String> {
    let split = |case: &Case| {
        let (group, action) = case.case.rsplit_once('/').unwrap_or((case.case, ""));
        (group.to_string(), action.to_string())
    };
    let groups = cases.iter().any(|case| split(case).0 != split(&cases[0]).0);
    let actions = cases.iter().any(|case| split(case).1 != split(&cases[0]).1);
    let threads = cases.iter().any(|case| case.threads != cases[0].threads);
    let title = |case: &Case| {
        let (group, action) = split(case);
        let name = match (groups, actions) {
            (true, true) => case.case.to_string(),
            (true, false) => group,
            (false, true) => action,
            (false, false) => String::new(),
        };
        let count = match (threads, case.threads) {
            (false, _) => None,
            (true, 1) => Some("1 thread".to_string()),
            (true, many) => Some(format!("{many} threads")),
        };
        [(!name.is_empty()).then_some(name), count]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join(", ")
    };
    cases.iter().map(title).collect()
}

/// Selects bars, and sorts them from best to worst: quipu itself, then the best of its variants up
/// to a third of the bars, and the best peers.
fn select(mut records: Vec<&Record>, limit: usize) -> Vec<&Record> {
    let best_first = |records: &mut Vec<&Record>| {
        records.sort_by(|a, b| {
            let order = a.median.total_cmp(&b.median);
            if a.higher_is_better() { order.reverse() } else { order }
        });
    };
    best_first(&mut records);
    if records.len() <= limit {
        return records;
    }
    let (mut ours, mut peers): (Vec<_>, Vec<_>) =
        records.into_iter().partition(|record| record.is_ours());
    ours.sort_by_key(|record| record.subject != "quipu");
    let kept = (limit / 3).max(1).max(limit.saturating_sub(peers.len()));
    ours.truncate(kept);
    peers.truncate(limit - ours.len());
    ours.extend(peers);
    best_first(&mut ours);
    ours
}

/// The scale, and the place of the bars in pixels.
struct Plot<'a> {
    first: &'a Record,
    metric: &'a str,
    axis: Axis,
    left: f64,
    right: f64,
    top: f64,
    has_ranges: bool,
}

impl<'a> Plot<'a> {
    fn new(first: &'a Record, metric: &'a str, groups: &[Group<'a>]) -> Plot<'a> {
        let bars: Vec<&Record> = groups.iter().flat_map(|group| &group.bars).copied().collect();
        let wider = |record: &Record| if record.is_ours() { BOLD } else { 1.0 };
        let names = bars.iter().map(|record| text_width(&record.subject) * wider(record));
        let values = bars.iter().map(|record| text_width(&value(record)) * BOLD);
        let has_ranges = bars.iter().any(|record| record.max > record.min);
        Plot {
            first,
            metric,
            axis: Axis::of(&bars, LINEAR_SPAN),
            left: PADDING + names.fold(0.0, f64::max).min(NAME_ROOM) + 10.0,
            right: WIDTH - PADDING - values.fold(0.0, f64::max) - 12.0,
            top: if has_ranges { 64.0 } else { 44.0 },
            has_ranges,
        }
    }

    fn draw(&self, title: &str, groups: &[Group]) -> String {
        let mut svg = Svg::default();
        let rows: usize = groups.iter().map(|group| group.bars.len()).sum();
        let omitted = groups.iter().filter(|group| group.omitted > 0).count();
        let has_titles = groups.len() > 1 || omitted > 0;
        let head = GROUP_GAP + if has_titles { GROUP_TITLE } else { 0.0 };
        let bottom = self.top + rows as f64 * ROW + groups.len() as f64 * head;
        if self.has_ranges {
            let runs = "Bar: median of the runs. Thin line: from the lowest to the highest run.";
            svg.text("faint", (PADDING, 50.0), Anchor::Start, runs);
        }
        self.draw_axis(&mut svg, bottom);
        let mut description = Vec::new();
        let mut y = self.top;
        for group in groups {
            y += GROUP_GAP;
            if has_titles {
                let at = (PADDING, y + GROUP_TITLE / 2.0);
                svg.text("strong", at, Anchor::Start, &group.title);
                if group.omitted > 0 {
                    let omitted = format!("{} more in the table", group.omitted);
                    let right = (WIDTH - PADDING, at.1);
                    svg.text("faint", right, Anchor::End, &omitted);
                }
                y += GROUP_TITLE;
            }
            let end = y + group.bars.len() as f64 * ROW;
            for tick in &self.axis.ticks {
                let x = self.x(*tick);
                svg.line("grid", (x, y), (x, end));
            }
            svg.line("axis", (self.left, y), (self.left, end));
            for record in &group.bars {
                self.draw_bar(&mut svg, record, y + ROW / 2.0);
                y += ROW;
            }
            let bars: Vec<String> = group
                .bars
                .iter()
                .map(|record| format!("{} {}", record.subject, value(record)))
                .collect();
            let title = match group.title.as_str() {
                "" => String::new(),
                title => format!("{title}: "),
            };
            description.push(title + &bars.join(", "));
        }
        svg.finish(title, &(description.join("; ") + "."), bottom + 54.0)
    }

    fn draw_axis(&self, svg: &mut Svg, bottom: f64) {
        for tick in &self.axis.ticks {
            let x = self.x(*tick);
            let label = self.axis.label(*tick, &self.first.unit);
            svg.text("faint", (x, bottom + 13.0), Anchor::Middle, &label);
        }
        let better = if self.first.higher_is_better() { "higher" } else { "lower" };
        let title = format!("{}, {better} is better", self.axis.title(self.metric, self.first));
        let middle = (self.left + self.right) / 2.0;
        svg.text("faint", (middle, bottom + 35.0), Anchor::Middle, &title);
    }

    fn draw_bar(&self, svg: &mut Svg, record: &Record, middle: f64) {
        let (bar, name) = if record.is_ours() { ("ours", "strong") } else { ("peer", "") };
        let room = self.left - 8.0 - PADDING;
        svg.text_within(name, (self.left - 8.0, middle), Anchor::End, &record.subject, room);
        let end = self.x(record.median);
        svg.rectangle(bar, (self.left, middle - BAR / 2.0), ((end - self.left).max(1.0), BAR));
        let (least, greatest) = (self.x(record.min), self.x(record.max));
        if greatest > least + 2.0 {
            svg.line("whisker", (least, middle), (greatest, middle));
            for x in [least, greatest] {
                svg.line("whisker", (x, middle - 3.0), (x, middle + 3.0));
            }
        }
        svg.text(name, (end.max(greatest) + 7.0, middle), Anchor::Start, &value(record));
    }

    fn x(&self, value: f64) -> f64 {
        self.left + self.axis.share(value) * (self.right - self.left)
    }
}

fn value(record: &Record) -> String {
    format::quantity(record.median, &record.unit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Label;

    fn records(values: &[(&str, f64)]) -> Vec<Record> {
        let label = |subject: &str| Label::new("bucketed/add", subject, "time", "ns");
        values.iter().map(|(subject, value)| label(subject).of(&[*value])).collect()
    }

    #[test]
    fn draws_every_subject_and_escapes_its_name() {
        let records = records(&[("quipu", 5.0), ("a & b <1>", 50.0)]);
        let svg = render("Time to add", None, &records.iter().collect::<Vec<_>>(), None).unwrap();
        for text in ["Time to add", "time in ns, lower is better", "5.00 ns", "50.0 ns", "quipu"] {
            assert!(svg.contains(text), "{text}");
        }
        assert!(svg.contains("a &amp; b &lt;1&gt;"), "{svg}");
        assert!(
            svg.contains("<desc id=\"desc\">quipu 5.00 ns, a &amp; b &lt;1&gt; 50.0 ns."),
            "{svg}"
        );
    }

    #[test]
    fn the_best_bars_are_kept_in_order_and_ours_among_them() {
        let records = records(&[
            ("quipu (slow)", 9.0),
            ("quipu", 5.0),
            ("quipu (fast)", 1.0),
            ("a", 4.0),
            ("b", 2.0),
            ("c", 3.0),
        ]);
        let bars = select(records.iter().collect(), 3);
        let names: Vec<&str> = bars.iter().map(|record| record.subject.as_str()).collect();
        assert_eq!(names, ["b", "c", "quipu"]);
        let svg = render("t", None, &records.iter().collect::<Vec<_>>(), Some(3)).unwrap();
        assert!(svg.contains("3 more in the table") && svg.matches("class=\"peer\"").count() == 2);
    }

    #[test]
    fn titles_are_the_parts_that_differ() {
        let record = |case: &str, threads| {
            Label::new(case, "quipu", "time", "ns").threads(threads).of(&[1.0])
        };
        let titles = |records: &[Record]| {
            let records: Vec<&Record> = records.iter().collect();
            groups(&records, None).into_iter().map(|group| group.title).collect::<Vec<_>>()
        };
        assert_eq!(titles(&[record("a/add", 1), record("a/add", 2)]), ["1 thread", "2 threads"]);
        assert_eq!(titles(&[record("a/add", 1), record("b/add", 1)]), ["a", "b"]);
        assert_eq!(titles(&[record("a/x", 1), record("a/y", 2)]), ["x, 1 thread", "y, 2 threads"]);
        assert_eq!(titles(&[record("a/x", 1), record("b/y", 1)]), ["a/x", "b/y"]);
        assert_eq!(titles(&[record("a/add", 1)]), [""]);
    }

    #[test]
    fn refuses_records_of_two_metrics() {
        let mut records = records(&[("quipu", 5.0), ("peer", 50.0)]);
        records[1].metric = "memory".into();
        assert!(render("t", None, &records.iter().collect::<Vec<_>>(), None).is_err());
        assert!(render("t", None, &[], None).is_err());
    }
}
