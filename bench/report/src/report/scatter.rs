//! A scatter of two cases, as SVG: each subject with both cases is a point with its name.
//!
//! The scale is logarithmic if the values differ much, like in a plot of bars. A name is placed
//! where it covers neither a point nor another name. If there is no such place, the name is
//! omitted, and the subtitle shows the number of omitted names.

use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::plot::{Area, Axis, Drawn, FAINT, GRID, PADDING, TEXT, WIDTH, text, text_width};
use crate::record::{self, Record};
use crate::{Error, Result};

const HEIGHT: i32 = 620;
const LEFT: i32 = 84;
const TOP: i32 = 106;
const BOTTOM: i32 = HEIGHT - 62;
const RIGHT: i32 = WIDTH - PADDING - 12;
const RADIUS: i32 = 4;
/// The height of a name.
const LINE: i32 = 14;

const GROUPS: [(&str, RGBColor); 3] = [
    ("quipu:", RGBColor(0x00, 0x6d, 0x77)),
    ("crate:", RGBColor(0xd0, 0x8c, 0x4a)),
    ("go:", RGBColor(0x8e, 0x7c, 0xa6)),
];

/// The scatter of the records of two cases, one for each axis.
pub(super) fn render(title: &str, x: &[&Record], y: &[&Record]) -> Result<String> {
    let points: Vec<Point> = x
        .iter()
        .filter_map(|x| {
            let y = y.iter().find(|y| y.subject == x.subject)?;
            Some(Point { x, y, at: (0, 0) })
        })
        .collect();
    if points.is_empty() {
        return Err(Error::report("no subject has a record of both cases"));
    }
    let mut svg = String::new();
    {
        let backend = SVGBackend::with_string(&mut svg, (WIDTH as u32, HEIGHT as u32));
        let area = backend.into_drawing_area();
        draw(&area, title, points).map_err(|error| Error::report(format!("the plot: {error}")))?;
        area.present().map_err(|error| Error::report(format!("the plot: {error}")))?;
    }
    Ok(svg)
}

struct Point<'a> {
    x: &'a Record,
    y: &'a Record,
    at: (i32, i32),
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

    fn colour(&self) -> RGBColor {
        let group = GROUPS.iter().find(|(prefix, _)| self.subject().starts_with(prefix));
        group.map_or(FAINT, |(_, colour)| *colour)
    }
}

fn draw(area: &Area, title: &str, mut points: Vec<Point>) -> Drawn {
    let along = Axis::of(&points.iter().map(|point| point.x).collect::<Vec<_>>());
    let up = Axis::of(&points.iter().map(|point| point.y).collect::<Vec<_>>());
    let x = |value| LEFT + (along.share(value) * f64::from(RIGHT - LEFT)).round() as i32;
    let y = |value| BOTTOM - (up.share(value) * f64::from(BOTTOM - TOP)).round() as i32;
    for point in &mut points {
        point.at = (x(point.x.median), y(point.y.median));
    }
    // Place the names of ours first.
    points.sort_by_key(|point| !record::is_ours(point.subject()));
    let names = place(&points);
    let missing = names.iter().filter(|place| place.is_none()).count();

    area.fill(&WHITE)?;
    area.draw(&Rectangle::new([(0, 0), (WIDTH - 1, HEIGHT - 1)], GRID.stroke_width(1)))?;
    text(area, title, (PADDING, 26), 23.0, TEXT, HPos::Left)?;
    let (first, scale) = (&points[0], |axis: &Axis| if axis.logarithmic { ", log" } else { "" });
    let mut subtitle = format!(
        "along: {} ({}{}), up: {} ({}{}); lower left is better",
        first.x.case,
        first.x.unit,
        scale(&along),
        first.y.case,
        first.y.unit,
        scale(&up),
    );
    if missing > 0 {
        subtitle.push_str(&format!("; {missing} points have no room for a name"));
    }
    text(area, &subtitle, (PADDING, 50), 15.0, FAINT, HPos::Left)?;
    let mut left = PADDING;
    for (prefix, colour) in GROUPS {
        if points.iter().any(|point| point.subject().starts_with(prefix)) {
            area.draw(&Circle::new((left + 6, 76), RADIUS + 1, colour.filled()))?;
            let group = prefix.trim_end_matches(':');
            text(area, group, (left + 18, 76), 16.0, TEXT, HPos::Left)?;
            left += 18 + text_width(group) + 24;
        }
    }
    for tick in &along.ticks {
        let x = x(*tick);
        area.draw(&PathElement::new([(x, TOP), (x, BOTTOM)], GRID.stroke_width(1)))?;
        let label = along.label(*tick, &first.x.unit);
        text(area, &label, (x, BOTTOM + 16), 14.0, FAINT, HPos::Center)?;
    }
    for tick in &up.ticks {
        let y = y(*tick);
        area.draw(&PathElement::new([(LEFT, y), (RIGHT, y)], GRID.stroke_width(1)))?;
        let label = up.label(*tick, &first.y.unit);
        text(area, &label, (LEFT - 8, y), 14.0, FAINT, HPos::Right)?;
    }
    for (point, name) in points.iter().zip(names).rev() {
        area.draw(&Circle::new(point.at, RADIUS, point.colour().filled()))?;
        if let Some(place) = name {
            text(area, &point.name(), (place.left, place.top + LINE / 2), 13.0, TEXT, HPos::Left)?;
        }
    }
    Ok(())
}

/// An occupied rectangle.
#[derive(Clone, Copy)]
struct Place {
    left: i32,
    top: i32,
    right: i32,
}

impl Place {
    fn meets(self, other: Place) -> bool {
        self.left < other.right
            && other.left < self.right
            && self.top < other.top + LINE
            && other.top < self.top + LINE
    }
}

/// The places of the names: to the right of their points, to the left, above or below.
fn place(points: &[Point]) -> Vec<Option<Place>> {
    let around = |point: &Point| Place {
        left: point.at.0 - RADIUS,
        top: point.at.1 - LINE / 2,
        right: point.at.0 + RADIUS,
    };
    let mut names: Vec<Option<Place>> = Vec::new();
    for point in points {
        let (x, y) = point.at;
        // `text_width` is for a larger font than the font of a name.
        let width = text_width(&point.name()) * 7 / 8;
        let at = |left: i32, top: i32| Place { left, top, right: left + width };
        let candidates = [
            at(x + RADIUS + 3, y - LINE / 2),
            at(x - RADIUS - 3 - width, y - LINE / 2),
            at(x - width / 2, y - LINE - RADIUS - 1),
            at(x - width / 2, y + RADIUS + 1),
        ];
        let free = |place: &Place| {
            place.left > LEFT
                && place.right < WIDTH - PADDING
                && !names.iter().flatten().any(|other| place.meets(*other))
                && !points.iter().any(|other| other.at != point.at && place.meets(around(other)))
        };
        let found = candidates.into_iter().find(|place| free(place));
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
        let svg = render("Size and time", &x, &y).unwrap();
        assert_eq!(svg.matches("<circle").count(), 3 + 3, "{svg}");
        for text in ["Size and time", "along: size/x (B), up: write/x (ns, log)", ">\nb\n<", "b2"] {
            assert!(svg.contains(text), "{text}");
        }
        assert!(render("t", &x, &[]).is_err());
    }
}
