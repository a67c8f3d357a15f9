//! Plots the formats as SVG for `quipu messages compare`: the size on the horizontal axis, and the
//! time on the vertical axis. The best formats are in the lower left corner.
//!
//! An axis is logarithmic if its values differ by more than a factor of [`LINEAR_SPAN`]. Each name
//! is near its point, where it covers no other names or points. If it is further away, a line
//! connects the two.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::report::Comparison;

/// The maximum ratio of two values on a linear scale.
const LINEAR_SPAN: f64 = 10.0;

const WIDTH: i32 = 960;
const HEIGHT: i32 = 640;
const LEFT: i32 = 76;
const RIGHT: i32 = WIDTH - 24;
const TOP: i32 = 76;
const BOTTOM: i32 = HEIGHT - 64;
const RADIUS: i32 = 5;
/// The estimated height of a name. The viewer of an SVG chooses the font, so we can only estimate.
const LINE: i32 = 15;
/// The estimated width of a character.
const CHARACTER: f64 = 7.2;

const TEXT: RGBColor = RGBColor(0x22, 0x2b, 0x36);
const FAINT: RGBColor = RGBColor(0x5b, 0x66, 0x73);
const GRID: RGBColor = RGBColor(0xe1, 0xe5, 0xea);
const BEST: RGBColor = RGBColor(0x00, 0x6d, 0x77);
const OTHER: RGBColor = RGBColor(0xd0, 0x8c, 0x4a);

/// The colors in a dark scheme. A style takes precedence over the attributes of the elements.
const DARK: &str = "\
@media (prefers-color-scheme: dark) {
[fill='#FFFFFF'] { fill: #0d1117 } [fill='#222B36'] { fill: #e6edf3 }
[fill='#5B6673'] { fill: #9198a1 } [stroke='#5B6673'] { stroke: #9198a1 }
[stroke='#E1E5EA'] { stroke: #2b3138 } [fill='#006D77'] { fill: #2fb5c0 }
}";

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type DrawResult = Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// Renders the plot as an SVG file.
pub(super) fn render(
    comparison: &Comparison,
) -> Result<String, DrawingAreaErrorKind<std::io::Error>> {
    let mut svg = String::new();
    {
        let backend = SVGBackend::with_string(&mut svg, (WIDTH as u32, HEIGHT as u32));
        let area = backend.into_drawing_area();
        draw(comparison, &area)?;
        area.present()?;
    }
    // The title is for screen readers, and the style is for viewers with a dark scheme.
    if let Some(end) = svg.find('>') {
        let title = escape(&comparison.title());
        svg.insert_str(end + 1, &format!("\n<title>{title}</title>\n<style>\n{DARK}\n</style>"));
    }
    Ok(svg)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn draw(comparison: &Comparison, area: &Area<'_>) -> DrawResult {
    area.fill(&WHITE)?;
    let across = Axis::fit(comparison.formats.iter().map(|row| row.stream_bytes));
    let up = Axis::fit(comparison.formats.iter().map(|row| row.both_ns()));
    text(area, &comparison.title(), (LEFT, 26), 20.0, TEXT, HPos::Left)?;
    let subtitle = "left and low is best; dark: no other is both smaller and faster";
    text(area, subtitle, (LEFT, 52), 15.0, FAINT, HPos::Left)?;
    for tick in &across.ticks {
        let x = across.at(*tick, LEFT, RIGHT);
        area.draw(&PathElement::new([(x, TOP), (x, BOTTOM)], GRID.stroke_width(1)))?;
        text(area, &number(*tick), (x, BOTTOM + 14), 14.0, FAINT, HPos::Center)?;
    }
    for tick in &up.ticks {
        let y = up.at(*tick, BOTTOM, TOP);
        area.draw(&PathElement::new([(LEFT, y), (RIGHT, y)], GRID.stroke_width(1)))?;
        text(area, &number(*tick), (LEFT - 8, y), 14.0, FAINT, HPos::Right)?;
    }
    let frame = [(LEFT, TOP), (LEFT, BOTTOM), (RIGHT, BOTTOM)];
    area.draw(&PathElement::new(frame, FAINT.stroke_width(1)))?;
    let middle = (LEFT + RIGHT) / 2;
    let label = format!("bytes per message, in a stream{}", across.note());
    text(area, &label, (middle, BOTTOM + 38), 15.0, TEXT, HPos::Center)?;
    let label = format!("nanoseconds to write and read a message{}", up.note());
    let style = TextStyle::from(("sans-serif", 15.0).into_font())
        .color(&TEXT)
        .transform(FontTransform::Rotate270)
        .pos(Pos::new(HPos::Center, VPos::Center));
    area.draw(&Text::new(label, (20, (TOP + BOTTOM) / 2), style))?;

    let points: Vec<_> = comparison
        .formats
        .iter()
        .map(|row| (across.at(row.stream_bytes, LEFT, RIGHT), up.at(row.both_ns(), BOTTOM, TOP)))
        .collect();
    let names: Vec<_> = comparison.formats.iter().map(|row| row.format).collect();
    let labels = place(&points, &names);
    for ((row, point), label) in comparison.formats.iter().zip(&points).zip(labels) {
        let colour = if row.best { BEST } else { OTHER };
        if label.is_far {
            let end = (point.0.clamp(label.left, label.right), label.middle());
            area.draw(&PathElement::new([*point, end], FAINT.mix(0.6).stroke_width(1)))?;
        }
        area.draw(&Circle::new(*point, RADIUS, colour.filled()))?;
        let at = (label.left, label.middle());
        text(area, row.format, at, 15.0, if row.best { BEST } else { TEXT }, HPos::Left)?;
    }
    Ok(())
}

/// The bounding box of a name.
#[derive(Clone, Copy)]
struct Label {
    left: i32,
    top: i32,
    right: i32,
    bottom: i32,
    /// Whether a line connects the name to its point.
    is_far: bool,
}

impl Label {
    fn middle(&self) -> i32 {
        (self.top + self.bottom) / 2
    }

    /// Returns the area of the intersection of two boxes.
    fn overlap(&self, other: &Label) -> i64 {
        let width = self.right.min(other.right) - self.left.max(other.left);
        let height = self.bottom.min(other.bottom) - self.top.max(other.top);
        if width > 0 && height > 0 { i64::from(width) * i64::from(height) } else { 0 }
    }
}

/// Chooses a box for each name: the first candidate that covers neither a point nor another name.
/// If there is no such candidate, this chooses the candidate that covers the smallest area.
fn place(points: &[(i32, i32)], names: &[&str]) -> Vec<Label> {
    let dots: Vec<_> = points
        .iter()
        .map(|(x, y)| Label {
            left: x - RADIUS - 1,
            right: x + RADIUS + 1,
            top: y - RADIUS - 1,
            bottom: y + RADIUS + 1,
            is_far: false,
        })
        .collect();
    let mut placed: Vec<Label> = Vec::new();
    for (point, name) in points.iter().zip(names) {
        let cost = |label: &Label| {
            let outside = (LEFT + 2 - label.left).max(label.right - WIDTH + 4).max(0)
                + (TOP - 12 - label.top).max(label.bottom - BOTTOM + 1).max(0);
            let covered: i64 = dots.iter().chain(&placed).map(|other| label.overlap(other)).sum();
            covered + i64::from(outside) * 1000
        };
        let mut best: Option<(i64, Label)> = None;
        for label in places(*point, (name.len() as f64 * CHARACTER).ceil() as i32) {
            let cost = cost(&label);
            if best.is_none_or(|(least, _)| cost < least) {
                best = Some((cost, label));
            }
            if cost == 0 {
                break;
            }
        }
        placed.extend(best.map(|(_, label)| label));
    }
    placed
}

/// Returns the candidate boxes around a point, nearest first: on both sides, above and below, and
/// diagonally.
fn places((x, y): (i32, i32), width: i32) -> impl Iterator<Item = Label> {
    const RINGS: i32 = 24;
    let half = LINE / 2;
    (0..RINGS).flat_map(move |ring| {
        let gap = RADIUS + 4 + 12 * ring;
        let beside = (0..=2 * ring + 1).flat_map(move |step| {
            let up = (step + 1) / 2 * 8 * if step % 2 == 0 { 1 } else { -1 };
            let across = (gap - up.abs()).max(RADIUS + 4);
            [(x + across, y + up), (x - across - width, y + up)]
        });
        let over = [(x - width / 2, y - gap - half), (x - width / 2, y + gap + half)];
        beside.chain(over).map(move |(left, middle)| Label {
            left,
            right: left + width,
            top: middle - half,
            bottom: middle + half,
            is_far: ring > 0,
        })
    })
}

/// The scale of one axis.
struct Axis {
    logarithmic: bool,
    from: f64,
    to: f64,
    ticks: Vec<f64>,
}

impl Axis {
    /// Chooses the scale for these values.
    fn fit(values: impl Iterator<Item = f64>) -> Axis {
        let positive = values.filter(|value| *value > 0.0 && value.is_finite());
        let (least, greatest) =
            positive.fold((f64::INFINITY, 0.0f64), |(a, b), value| (a.min(value), b.max(value)));
        if greatest == 0.0 {
            return Axis { logarithmic: false, from: 0.0, to: 1.0, ticks: vec![0.0, 1.0] };
        }
        let steps = |from: f64, to: f64| {
            let powers = from.log10().floor() as i32..=to.log10().ceil() as i32;
            powers.flat_map(|power| [1.0, 2.0, 5.0].map(|factor| factor * 10f64.powi(power)))
        };
        if greatest > LINEAR_SPAN * least {
            let (from, to) = (least / 1.25, greatest * 1.25);
            let ticks = steps(from, to).filter(|tick| (from..=to).contains(tick)).collect();
            return Axis { logarithmic: true, from, to, ticks };
        }
        let to = greatest * 1.1;
        let step = steps(to / 100.0, to).find(|step| step * 8.0 >= to).unwrap_or(to);
        let ticks = (0..=(to / step) as u32).map(|index| f64::from(index) * step).collect();
        Axis { logarithmic: false, from: 0.0, to, ticks }
    }

    /// Maps a value to a pixel between `from` and `to`.
    fn at(&self, value: f64, from: i32, to: i32) -> i32 {
        let share = match self.logarithmic {
            true => (value.max(self.from) / self.from).ln() / (self.to / self.from).ln(),
            false => value / self.to,
        };
        from + (share.clamp(0.0, 1.0) * f64::from(to - from)).round() as i32
    }

    fn note(&self) -> &'static str {
        if self.logarithmic { " (logarithmic scale)" } else { "" }
    }
}

fn number(tick: f64) -> String {
    // Three digits are enough for a tick with one significant digit and the rounding error of a
    // float.
    let text = format!("{tick:.3}");
    text.trim_end_matches('0').trim_end_matches('.').into()
}

/// Draws a string that is vertically centered at a point.
fn text(
    area: &Area<'_>,
    text: &str,
    at: (i32, i32),
    size: f64,
    colour: RGBColor,
    anchor: HPos,
) -> DrawResult {
    let style = TextStyle::from(("sans-serif", size).into_font())
        .color(&colour)
        .pos(Pos::new(anchor, VPos::Center));
    area.draw(&Text::new(text.to_string(), at, style))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_of_values_far_apart_are_logarithmic() {
        let axis = |values: &[f64]| Axis::fit(values.iter().copied());
        assert!(!axis(&[5.0, 50.0]).logarithmic && axis(&[4.9, 50.0]).logarithmic);
        assert_eq!(axis(&[40.0, 100.0]).ticks, [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(axis(&[3.0, 100.0]).ticks, [5.0, 10.0, 20.0, 50.0, 100.0]);
        assert_eq!(axis(&[]).at(1.0, 0, 100), 100);
        assert_eq!(axis(&[50.0]).at(27.5, 0, 100), 50);
        assert_eq!((number(20_000.0), number(0.1 + 0.2)), ("20000".into(), "0.3".into()));
    }

    #[test]
    fn names_cover_neither_each_other_nor_points() {
        // Many points, in the middle and in corners.
        for (x, y) in [(480, 300), (LEFT, BOTTOM), (RIGHT, TOP)] {
            let points: Vec<_> = (0..12).map(|i| (x + i % 4, y + i / 4 * 5)).collect();
            let names = ["vmihailenco-msgpack"; 12];
            let labels = place(&points, &names);
            for (index, label) in labels.iter().enumerate() {
                assert!(labels[..index].iter().all(|other| label.overlap(other) == 0));
                assert!(points.iter().all(|(x, y)| {
                    !((label.left..label.right).contains(x)
                        && (label.top..label.bottom).contains(y))
                }));
                assert!(label.left >= 0 && label.right <= WIDTH);
            }
        }
    }
}
