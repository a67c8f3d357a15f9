//! A scatter of two cases, as SVG: each subject with both cases is a point with its name.
//!
//! The scale is logarithmic if the values differ much, like in a plot of bars. A name is placed
//! where it covers neither a point nor another name. If there is no such place, the name is
//! omitted, and the subtitle shows the number of omitted names.

use super::axis::Axis;
use super::svg::{Anchor, PADDING, Svg, WIDTH, text_width};
use crate::record::{self, Record};
use crate::{Error, Result};

/// The highest ratio of two values on a linear scale.
const LINEAR_SPAN: f64 = 20.0;

const HEIGHT: f64 = 620.0;
const LEFT: f64 = 76.0;
const TOP: f64 = 112.0;
const BOTTOM: f64 = HEIGHT - 62.0;
const RIGHT: f64 = WIDTH - PADDING - 12.0;
const RADIUS: f64 = 4.0;
/// The height of a name.
const LINE: f64 = 14.0;
/// The greatest distance of a name to its point, in steps.
const FURTHEST: i32 = 4;

/// The prefixes of the groups, their classes and their explanations.
const GROUPS: [(&str, &str, &str); 3] =
    [("quipu:", "ours", "quipu"), ("crate:", "peer", "other crates"), ("go:", "ring", "Go")];

/// The scatter of the records of two cases, one for each axis, with the titles of the axes.
pub(super) fn render(
    title: &str,
    titles: (&str, &str),
    x: &[&Record],
    y: &[&Record],
) -> Result<String> {
    let points: Vec<Point> = x
        .iter()
        .filter_map(|x| {
            let y = y.iter().find(|y| y.subject == x.subject)?;
            Some(Point { x, y, at: (0.0, 0.0) })
        })
        .collect();
    if points.is_empty() {
        return Err(Error::report("no subject has a record of both cases"));
    }
    Ok(draw(title, titles, points))
}

struct Point<'a> {
    x: &'a Record,
    y: &'a Record,
    at: (f64, f64),
}

impl<'a> Point<'a> {
    fn subject(&self) -> &'a str {
        &self.x.subject
    }

    /// Returns its name without the group, because the colour shows the group, and without a
    /// version.
    fn name(&self) -> String {
        let name = self.subject().split_once(':').map_or(self.subject(), |(_, name)| name);
        let words = name.split(' ').filter(|word| !word.starts_with(|c: char| c.is_ascii_digit()));
        words.collect::<Vec<_>>().join(" ")
    }

    fn class(&self) -> &'static str {
        let group = GROUPS.iter().find(|(prefix, ..)| self.subject().starts_with(prefix));
        group.map_or("peer", |(_, class, _)| *class)
    }
}

fn draw(title: &str, titles: (&str, &str), mut points: Vec<Point>) -> String {
    let along = Axis::of(&points.iter().map(|point| point.x).collect::<Vec<_>>(), LINEAR_SPAN);
    let up = Axis::of(&points.iter().map(|point| point.y).collect::<Vec<_>>(), LINEAR_SPAN);
    let x = |value| LEFT + along.share(value) * (RIGHT - LEFT);
    let y = |value| BOTTOM - up.share(value) * (BOTTOM - TOP);
    for point in &mut points {
        point.at = (x(point.x.median), y(point.y.median));
    }
    // Place the names of ours first.
    points.sort_by_key(|point| !record::is_ours(point.subject()));
    let names = place(&points);
    let missing = names.iter().filter(|place| place.is_none()).count();

    let mut svg = Svg::default();
    let (first_x, first_y) = (points[0].x, points[0].y);
    let mut subtitle = "The best are in the lower left corner.".to_string();
    if missing > 0 {
        subtitle.push_str(&format!(" {missing} points have no room for a name; see the table."));
    }
    svg.text("faint", (PADDING, 50.0), Anchor::Start, &subtitle);
    let mut left = PADDING + 6.0;
    for (prefix, class, explanation) in GROUPS {
        if points.iter().any(|point| point.subject().starts_with(prefix)) {
            svg.circle(class, (left, 72.0), RADIUS + 1.0);
            svg.text("", (left + 12.0, 72.0), Anchor::Start, explanation);
            left += 12.0 + text_width(explanation) + 26.0;
        }
    }
    svg.text("faint", (PADDING, TOP - 16.0), Anchor::Start, &up.title(titles.1, first_y));
    let middle = (LEFT + RIGHT) / 2.0;
    svg.text("faint", (middle, BOTTOM + 40.0), Anchor::Middle, &along.title(titles.0, first_x));
    for tick in &along.ticks {
        let x = x(*tick);
        svg.line("grid", (x, TOP), (x, BOTTOM));
        let label = along.label(*tick, &first_x.unit);
        svg.text("faint", (x, BOTTOM + 16.0), Anchor::Middle, &label);
    }
    for tick in &up.ticks {
        let y = y(*tick);
        svg.line("grid", (LEFT, y), (RIGHT, y));
        let label = up.label(*tick, &first_y.unit);
        svg.text("faint", (LEFT - 8.0, y), Anchor::End, &label);
    }
    svg.line("axis", (LEFT, TOP), (LEFT, BOTTOM));
    svg.line("axis", (LEFT, BOTTOM), (RIGHT, BOTTOM));
    for (point, place) in points.iter().zip(&names) {
        let Some(place) = place else { continue };
        let end = (point.at.0.clamp(place.left, place.right), place.top + LINE / 2.0);
        let (across, down) = (end.0 - point.at.0, end.1 - point.at.1);
        if across.hypot(down) > 2.0 * LINE - RADIUS {
            svg.line("leader", point.at, end);
        }
    }
    for (point, name) in points.iter().zip(names).rev() {
        svg.circle(point.class(), point.at, RADIUS);
        if let Some(place) = name {
            let class = if record::is_ours(point.subject()) { "small strong" } else { "small" };
            let at = (place.left, place.top + LINE / 2.0);
            svg.text(class, at, Anchor::Start, &point.name());
        }
    }
    let value = |record: &Record| super::format::quantity(record.median, &record.unit);
    let described: Vec<String> = points
        .iter()
        .map(|point| format!("{} {} and {}", point.subject(), value(point.x), value(point.y)))
        .collect();
    let description = format!("{} and {}: {}.", first_x.case, first_y.case, described.join("; "));
    svg.finish(title, &description, HEIGHT)
}

/// An occupied rectangle.
#[derive(Clone, Copy)]
struct Place {
    left: f64,
    top: f64,
    right: f64,
}

impl Place {
    fn meets(self, other: Place) -> bool {
        self.left < other.right
            && other.left < self.right
            && self.top < other.top + LINE
            && other.top < self.top + LINE
    }
}

/// The places of the names: to the right of their points, to the left, above or below, and then
/// further away, where a line connects a name with its point.
fn place(points: &[Point]) -> Vec<Option<Place>> {
    let around = |point: &Point| Place {
        left: point.at.0 - RADIUS,
        top: point.at.1 - LINE / 2.0,
        right: point.at.0 + RADIUS,
    };
    let mut names: Vec<Option<Place>> = Vec::new();
    for point in points {
        let (x, y) = point.at;
        // `text_width` is for a larger font than the font of a name, but ours are bold.
        let share = if record::is_ours(point.subject()) { 1.05 } else { 0.95 };
        let width = text_width(&point.name()) * share;
        let at = |left: f64, top: f64| Place { left, top, right: left + width };
        let middle = y - LINE / 2.0;
        let near = [
            at(x + RADIUS + 3.0, middle),
            at(x - RADIUS - 3.0 - width, middle),
            at(x - width / 2.0, middle - RADIUS - LINE / 2.0 - 1.0),
            at(x - width / 2.0, middle + RADIUS + LINE / 2.0 + 1.0),
        ];
        let far = (1..=FURTHEST).flat_map(|step| {
            let gap = f64::from(step) * 12.0;
            [
                (gap, -gap),
                (gap, gap),
                (-gap, -gap),
                (-gap, gap),
                (gap, 0.0),
                (-gap, 0.0),
                (1.0, -gap),
                (1.0, gap),
            ]
            .map(|(right, down)| {
                let left = if right > 0.0 { x + right } else { x + right - width };
                at(left, middle + down)
            })
        });
        let free = |place: &Place| {
            place.left > LEFT
                && place.right < WIDTH - PADDING / 2.0
                && place.top > TOP
                && place.top + LINE < BOTTOM
                && !names.iter().flatten().any(|other| place.meets(*other))
                && !points.iter().any(|other| other.at != point.at && place.meets(around(other)))
        };
        let found = near.into_iter().chain(far).find(|place| free(place));
        names.push(found);
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Label;

    #[test]
    fn a_point_is_a_subject_of_both_cases() {
        let size = |subject: &str, value| Label::new("size/x", subject, "size", "B").of(&[value]);
        let time = |subject: &str, value| Label::new("write/x", subject, "time", "ns").of(&[value]);
        let sizes = [
            size("quipu:a", 40.0),
            size("crate:b 1.0", 50.0),
            size("go:b2", 50.0),
            size("go:c", 9.0),
        ];
        let times = [time("quipu:a", 4.0), time("crate:b 1.0", 400.0), time("go:b2", 400.0)];
        let (x, y): (Vec<_>, Vec<_>) = (sizes.iter().collect(), times.iter().collect());
        let svg = render("Size and time", ("size", "time to write"), &x, &y).unwrap();
        assert_eq!(svg.matches("<circle").count(), 3 + 3, "{svg}");
        for text in
            ["Size and time", "size in B", "time to write, logarithmic scale", ">b<", ">b2<"]
        {
            assert!(svg.contains(text), "{text}");
        }
        assert!(render("t", ("x", "y"), &x, &[]).is_err());
    }
}
