//! A plot of records: groups of horizontal bars, as SVG.
//!
//! A group is a case on a number of threads. A bar in a group is a subject's median, with a line
//! from the minimum to the maximum. The scale is logarithmic if the values differ by more than
//! [`LINEAR_SPAN`]. The panel is white, because its letters must be legible on a dark page.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::format;
use super::table::{cases, subjects};
use crate::record::{self, Record};
use crate::{Error, Result};

/// The highest ratio of two values that a linear scale shows well.
const LINEAR_SPAN: f64 = 20.0;

pub(super) const WIDTH: i32 = 900;
pub(super) const PADDING: i32 = 18;
const BAR: i32 = 17;
const BAR_GAP: i32 = 3;
const GROUP_GAP: i32 = 16;
/// The space to the right of the longest bar, for its value.
const VALUE_ROOM: i32 = 84;
/// The approximate width of a character, because the font of an SVG is unknown until it is
/// displayed.
const CHARACTER: f64 = 7.4;

pub(super) const TEXT: RGBColor = RGBColor(0x22, 0x2b, 0x36);
pub(super) const FAINT: RGBColor = RGBColor(0x5b, 0x66, 0x73);
pub(super) const GRID: RGBColor = RGBColor(0xe1, 0xe5, 0xea);
/// quipu and its variants: shades of one colour, darkest first.
const OURS: [RGBColor; 4] = [
    RGBColor(0x00, 0x6d, 0x77),
    RGBColor(0x3a, 0x9c, 0xa3),
    RGBColor(0x7c, 0xc2, 0xc4),
    RGBColor(0xb0, 0xdc, 0xdd),
];
const PEERS: [RGBColor; 17] = [
    RGBColor(0xd0, 0x8c, 0x4a),
    RGBColor(0x8e, 0x7c, 0xa6),
    RGBColor(0x9a, 0xa5, 0xb1),
    RGBColor(0xc0, 0x6c, 0x6c),
    RGBColor(0xb5, 0xb3, 0x5c),
    RGBColor(0x6f, 0x8f, 0xc0),
    RGBColor(0xd9, 0xa5, 0xb3),
    RGBColor(0x8b, 0xa8, 0x88),
    RGBColor(0xc9, 0xb0, 0x8f),
    RGBColor(0x7d, 0x6b, 0x5d),
    RGBColor(0xb8, 0xa1, 0xc9),
    RGBColor(0x5f, 0x6f, 0x7f),
    RGBColor(0xe0, 0xc2, 0x68),
    RGBColor(0xa8, 0x8a, 0x5a),
    RGBColor(0x9c, 0xb8, 0xb0),
    RGBColor(0x8a, 0x5f, 0x72),
    RGBColor(0xc4, 0xc4, 0xc4),
];

/// Renders the plot as an SVG file. All records must share one metric and unit.
pub(super) fn render(title: &str, records: &[&Record]) -> Result<String> {
    let first = *records.first().ok_or_else(|| Error::report("a plot of no records"))?;
    if records.iter().any(|r| r.metric != first.metric || r.unit != first.unit) {
        return Err(Error::report("a plot needs records of one metric and unit: give metric=..."));
    }
    let plot = Plot::new(title, records);
    let mut svg = String::new();
    {
        let backend = SVGBackend::with_string(&mut svg, (WIDTH as u32, plot.height as u32));
        let area = backend.into_drawing_area();
        plot.draw(&area).map_err(|error| Error::report(format!("the plot: {error}")))?;
        area.present().map_err(|error| Error::report(format!("the plot: {error}")))?;
    }
    Ok(svg)
}

pub(super) type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
pub(super) type Drawn = std::result::Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// The content of the plot, with its dimensions in pixels.
struct Plot<'a> {
    title: &'a str,
    subtitle: String,
    unit: &'a str,
    legend: Legend<'a>,
    groups: Vec<Group<'a>>,
    axis: Axis,
    /// The origin of the bars, from the left and from the top.
    left: i32,
    top: i32,
    height: i32,
}

/// The subjects with their colours, below the title.
pub(super) struct Legend<'a> {
    entries: Vec<LegendEntry<'a>>,
    /// The top of the part below the legend.
    pub(super) bottom: i32,
}

struct LegendEntry<'a> {
    subject: &'a str,
    colour: RGBColor,
    at: (i32, i32),
}

impl<'a> Legend<'a> {
    pub(super) fn new(subjects: &[&'a str]) -> Legend<'a> {
        let mut entries = Vec::new();
        let (mut x, mut y) = (PADDING, 74);
        for (subject, colour) in colours(subjects) {
            let width = 24 + text_width(subject) + 18;
            if x > PADDING && x + width > WIDTH - PADDING {
                (x, y) = (PADDING, y + 22);
            }
            entries.push(LegendEntry { subject, colour, at: (x, y) });
            x += width;
        }
        Legend { entries, bottom: y + 32 }
    }

    /// Draws an empty panel of this height, with the titles and the legend.
    pub(super) fn draw(&self, area: &Area, height: i32, title: &str, subtitle: &str) -> Drawn {
        area.fill(&WHITE)?;
        let frame = [(0, 0), (WIDTH - 1, height - 1)];
        area.draw(&Rectangle::new(frame, GRID.stroke_width(1)))?;
        text(area, title, (PADDING, 26), 23.0, TEXT, HPos::Left)?;
        text(area, subtitle, (PADDING, 50), 15.0, FAINT, HPos::Left)?;
        for entry in &self.entries {
            let (x, y) = entry.at;
            area.draw(&Rectangle::new([(x, y - 6), (x + 13, y + 7)], entry.colour.filled()))?;
            text(area, entry.subject, (x + 20, y), 16.0, TEXT, HPos::Left)?;
        }
        Ok(())
    }
}

struct Group<'a> {
    title: String,
    bars: Vec<(&'a Record, RGBColor)>,
}

impl Group<'_> {
    fn height(&self) -> i32 {
        self.bars.len() as i32 * (BAR + BAR_GAP) - BAR_GAP
    }
}

impl<'a> Plot<'a> {
    fn new(title: &'a str, records: &[&'a Record]) -> Plot<'a> {
        let colours = colours(&subjects(records));
        let many_threads = records.iter().any(|record| record.threads > 1);
        let groups: Vec<Group> = cases(records)
            .iter()
            .map(|case| Group {
                title: case.case_and_threads(many_threads),
                bars: colours
                    .iter()
                    .filter_map(|(subject, colour)| Some((case.of(records, subject)?, *colour)))
                    .collect(),
            })
            .collect();

        let first = records[0];
        let axis = Axis::of(records);
        let better = if first.higher_is_better() { "higher" } else { "lower" };
        let scale = if axis.logarithmic { ", logarithmic scale" } else { "" };
        let subtitle = format!("{}, {better} is better{scale}", first.metric);

        let legend = Legend::new(&subjects(records));
        let longest = groups.iter().map(|group| text_width(&group.title)).max().unwrap_or(0);
        let top = legend.bottom;
        let bars: i32 = groups.iter().map(|group| group.height() + GROUP_GAP).sum();
        Plot {
            title,
            subtitle,
            unit: &first.unit,
            legend,
            groups,
            axis,
            left: PADDING + longest + 12,
            top,
            height: top + bars + 40,
        }
    }

    fn draw(&self, area: &Area) -> Drawn {
        self.legend.draw(area, self.height, self.title, &self.subtitle)?;
        self.draw_axis(area)?;
        let mut y = self.top + GROUP_GAP / 2;
        for group in &self.groups {
            let middle = y + group.height() / 2;
            text(area, &group.title, (self.left - 12, middle), 16.0, TEXT, HPos::Right)?;
            for (record, colour) in &group.bars {
                self.draw_bar(area, record, *colour, y)?;
                y += BAR + BAR_GAP;
            }
            y += GROUP_GAP - BAR_GAP;
        }
        Ok(())
    }

    fn draw_axis(&self, area: &Area) -> Drawn {
        let bottom = self.height - 34;
        for tick in &self.axis.ticks {
            let x = self.x(*tick);
            area.draw(&PathElement::new([(x, self.top), (x, bottom)], GRID.stroke_width(1)))?;
            let label = self.axis.label(*tick, self.unit);
            text(area, &label, (x, bottom + 13), 14.0, FAINT, HPos::Center)?;
        }
        let axis = [(self.left, self.top), (self.left, bottom)];
        area.draw(&PathElement::new(axis, FAINT.stroke_width(1)))
    }

    fn draw_bar(&self, area: &Area, record: &Record, colour: RGBColor, y: i32) -> Drawn {
        let end = self.x(record.median);
        area.draw(&Rectangle::new([(self.left, y), (end, y + BAR)], colour.filled()))?;
        let middle = y + BAR / 2;
        let (least, greatest) = (self.x(record.min), self.x(record.max));
        if greatest > least + 1 {
            let stroke = TEXT.mix(0.65).stroke_width(1);
            for line in [
                [(least, middle), (greatest, middle)],
                [(least, middle - 3), (least, middle + 3)],
                [(greatest, middle - 3), (greatest, middle + 3)],
            ] {
                area.draw(&PathElement::new(line, stroke))?;
            }
        }
        let value = format::quantity(record.median, &record.unit);
        text(area, &value, (end.max(greatest) + 7, middle), 15.0, TEXT, HPos::Left)
    }

    fn x(&self, value: f64) -> i32 {
        let room = WIDTH - PADDING - VALUE_ROOM - self.left;
        self.left + (self.axis.share(value) * f64::from(room)).round() as i32
    }
}

/// The scale of the values.
pub(super) struct Axis {
    pub(super) logarithmic: bool,
    from: f64,
    to: f64,
    pub(super) ticks: Vec<f64>,
}

impl Axis {
    pub(super) fn of(records: &[&Record]) -> Axis {
        let medians = || records.iter().map(|record| record.median).filter(|value| *value > 0.0);
        let least = medians().fold(f64::INFINITY, f64::min);
        let greatest = medians().fold(0.0, f64::max);
        let to = records.iter().map(|record| record.max).fold(greatest, f64::max);
        if greatest > LINEAR_SPAN * least {
            // The shortest bar keeps some length, and the minimum of all runs stays inside.
            let low = records.iter().map(|r| r.min).filter(|v| *v > 0.0).fold(least, f64::min);
            let first = (low * 0.7).log10().floor() as i32;
            let last = to.log10().floor() as i32;
            let ticks = (first..=last).map(|power| 10f64.powi(power)).collect();
            return Axis { logarithmic: true, from: 10f64.powi(first), to, ticks };
        }
        let to = if to > 0.0 { to } else { 1.0 };
        let step = round_step(to / 5.0);
        let ticks = (0..=(to / step) as u32).map(|index| f64::from(index) * step).collect();
        Axis { logarithmic: false, from: 0.0, to, ticks }
    }

    /// The scale from the first to the last of these values, which are in order.
    pub(super) fn between(values: &[f64]) -> Axis {
        let (from, to) = (values.first().copied().unwrap_or(0.0), values.last().copied());
        let to = to.filter(|to| *to > from).unwrap_or(from + 1.0);
        Axis { logarithmic: from > 0.0 && to > LINEAR_SPAN * from, from, to, ticks: Vec::new() }
    }

    /// The position of a value on the axis, from 0 to 1.
    pub(super) fn share(&self, value: f64) -> f64 {
        let share = match self.logarithmic {
            true => (value.max(self.from) / self.from).ln() / (self.to / self.from).ln(),
            false => (value - self.from) / (self.to - self.from),
        };
        share.clamp(0.0, 1.0)
    }

    pub(super) fn label(&self, tick: f64, unit: &str) -> String {
        let scale = format::scale(if self.logarithmic { tick } else { self.to }, unit);
        let number = format::number(tick * scale.factor);
        let short = match number.contains('.') {
            true => number.trim_end_matches('0').trim_end_matches('.'),
            false => &number,
        };
        format!("{short}{}", scale.unit)
    }
}

/// Rounds a step up to 1, 2 or 5 times a power of ten.
fn round_step(step: f64) -> f64 {
    let power = 10f64.powf(step.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|factor| factor * power >= step * 0.999);
    factor.unwrap_or(10.0) * power
}

/// The colour of each subject. Subjects beyond the number of colours share the last.
pub(super) fn colours<'a>(subjects: &[&'a str]) -> Vec<(&'a str, RGBColor)> {
    let (mut ours, mut peers) = (0, 0);
    let mut next = |subject: &str| {
        let (index, colours) = match record::is_ours(subject) {
            true => (&mut ours, &OURS[..]),
            false => (&mut peers, &PEERS[..]),
        };
        let colour = colours[(*index).min(colours.len() - 1)];
        *index += 1;
        colour
    };
    subjects.iter().map(|subject| (*subject, next(subject))).collect()
}

pub(super) fn text_width(text: &str) -> i32 {
    (text.len() as f64 * CHARACTER).ceil() as i32
}

/// Writes a string that is vertically centred at the point. The size is in font units, each about
/// 0.8 pixels.
pub(super) fn text(
    area: &Area,
    text: &str,
    at: (i32, i32),
    size: f64,
    colour: RGBColor,
    anchor: HPos,
) -> Drawn {
    let style = TextStyle::from(("sans-serif", size).into_font())
        .color(&colour)
        .pos(Pos::new(anchor, VPos::Center));
    area.draw(&Text::new(text.to_string(), at, style))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Label;

    fn records(values: &[(&str, f64)]) -> Vec<Record> {
        let label = |subject: &str| Label::new("bucketed/add", subject, "time", "ns");
        values.iter().map(|(subject, value)| label(subject).of(&[*value])).collect()
    }

    fn axis(values: &[f64]) -> Axis {
        let named: Vec<_> = values.iter().map(|value| ("s", *value)).collect();
        Axis::of(&records(&named).iter().collect::<Vec<_>>())
    }

    #[test]
    fn scale_is_logarithmic_where_ratios_exceed_20() {
        assert!(!axis(&[5.0, 100.0]).logarithmic && axis(&[4.9, 100.0]).logarithmic);
        assert_eq!(axis(&[5.0, 100.0]).ticks, [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(axis(&[2.0, 400.0]).ticks, [1.0, 10.0, 100.0]);
        assert_eq!(axis(&[1.0, 400.0]).from, 0.1);
        assert!(axis(&[0.0]).share(0.0) == 0.0);
    }

    #[test]
    fn shares_lie_on_the_axis() {
        let log = axis(&[1.5, 1000.0]);
        assert!((log.share(1000.0) - 1.0).abs() < 1e-9 && log.share(0.0) == 0.0);
        assert!(log.share(1.5) > 0.0);
        assert_eq!(axis(&[50.0, 100.0]).share(50.0), 0.5);
    }

    #[test]
    fn labels_follow_the_scale() {
        assert_eq!(axis(&[1.5, 2e6]).label(1e4, "ns"), "10 us");
        assert_eq!(axis(&[300.0, 1500.0]).label(500.0, "ns"), "0.5 us");
        assert_eq!(axis(&[300.0, 1500.0]).label(0.0, "ns"), "0 us");
    }

    #[test]
    fn draws_every_subject_and_escapes_its_name() {
        let records = records(&[("quipu", 5.0), ("a & b <1>", 50.0)]);
        let svg = render("Time to add", &records.iter().collect::<Vec<_>>()).unwrap();
        for text in ["Time to add", "time, lower is better", "5.00 ns", "50.0 ns", "quipu"] {
            assert!(svg.contains(text), "{text}");
        }
        assert!(svg.contains("a &amp; b &lt;1&gt;"), "{svg}");
    }

    #[test]
    fn refuses_records_of_two_metrics() {
        let mut records = records(&[("quipu", 5.0), ("peer", 50.0)]);
        records[1].metric = "memory".into();
        assert!(render("t", &records.iter().collect::<Vec<_>>()).is_err());
        assert!(render("t", &[]).is_err());
    }
}
