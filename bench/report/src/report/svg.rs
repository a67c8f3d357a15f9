//! An SVG picture that is legible next to the text of a page, in light and in dark.
//!
//! The colours are classes, and the style changes them with `prefers-color-scheme`. The panel
//! changes with them, because a viewer can prefer another scheme than the page around the picture.

/// The width of every picture. A README shows it at 620 to 830 pixels, so that its letters are at
/// least 11 pixels high.
pub(super) const WIDTH: f64 = 720.0;
pub(super) const PADDING: f64 = 16.0;
/// The approximate width of a character, because the font is unknown until it is displayed.
const CHARACTER: f64 = 6.9;

/// The size of the font, and of the smallest one for long names.
const FONT: f64 = 13.0;
const SMALLEST: f64 = 10.0;

const STYLE: &str = "\
text { font: 13px system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif; fill: #1f2328 }
.panel { fill: #ffffff } .title { font-size: 17px; font-weight: 600 } .strong { font-weight: 600 }
.faint { font-size: 12px; fill: #59636e } line, polyline { fill: none; stroke-width: 1 }
.grid { stroke: #d8dee4 } .leader { stroke: #b5bec8 } .dot { fill: #8b949e } .axis { stroke: #818b98 } .whisker { stroke: #1f2328 }
.ours { fill: #007a85 } .peer { fill: #aeb7c0 } .ring { fill: none; stroke: #7d8792; stroke-width: 2 }
.small { font-size: 12px } .our-line { stroke: #007a85; stroke-width: 3 }
.peer-line { stroke: #8b949e; stroke-width: 2 } .our-range { stroke: #007a85 } .peer-range { stroke: #8b949e }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .panel { fill: #0d1117 } .faint { fill: #9198a1 } .grid { stroke: #2b3138 } .leader { stroke: #565f69 } .dot { fill: #7d8590 }
.axis { stroke: #656c76 } .whisker { stroke: #e6edf3 } .ours { fill: #2fb5c0 } .peer { fill: #59626c }
.ring { stroke: #8b949e } .our-line, .our-range { stroke: #2fb5c0 }
.peer-line, .peer-range { stroke: #7d8590 }
}";

/// The side of a string that is at its point.
#[derive(Clone, Copy)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// The elements of a picture.
#[derive(Default)]
pub(super) struct Svg {
    body: String,
}

impl Svg {
    /// Writes a string that is vertically centred at the point.
    pub(super) fn text(&mut self, class: &str, (x, y): (f64, f64), anchor: Anchor, text: &str) {
        self.text_within(class, (x, y), anchor, text, f64::INFINITY);
    }

    /// Writes a string, in a smaller font if it is probably wider than the room for it.
    pub(super) fn text_within(
        &mut self,
        class: &str,
        (x, y): (f64, f64),
        anchor: Anchor,
        text: &str,
        room: f64,
    ) {
        let anchor = match anchor {
            Anchor::Start => "",
            Anchor::Middle => " text-anchor=\"middle\"",
            Anchor::End => " text-anchor=\"end\"",
        };
        let fit = if text_width(text) > room {
            let size = (FONT * room / text_width(text)).max(SMALLEST);
            format!(" style=\"font-size: {size:.1}px\"")
        } else {
            String::new()
        };
        let class = attribute(class);
        self.body.push_str(&format!(
            "<text{class} x=\"{x:.0}\" y=\"{y:.0}\" dy=\".35em\"{anchor}{fit}>{}</text>\n",
            escape(text)
        ));
    }

    pub(super) fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let class = attribute(class);
        self.body.push_str(&format!(
            "<line{class} x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\"/>\n",
            from.0, from.1, to.0, to.1
        ));
    }

    /// Draws lines between points. `dashes` are the lengths of a dash and of a gap, or empty.
    pub(super) fn path(&mut self, class: &str, points: &[(f64, f64)], dashes: &str) {
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let dashes = match dashes {
            "" => String::new(),
            dashes => format!(" stroke-dasharray=\"{dashes}\""),
        };
        let class = attribute(class);
        let points = points.join(" ");
        self.body.push_str(&format!("<polyline{class}{dashes} points=\"{points}\"/>\n"));
    }

    pub(super) fn rectangle(&mut self, class: &str, (x, y): (f64, f64), size: (f64, f64)) {
        let (width, height) = size;
        let class = attribute(class);
        self.body.push_str(&format!(
            "<rect{class} x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"/>\n"
        ));
    }

    pub(super) fn circle(&mut self, class: &str, (x, y): (f64, f64), radius: f64) {
        let class = attribute(class);
        self.body
            .push_str(&format!("<circle{class} cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\"/>\n"));
    }

    /// Returns the file. The title is at the top of the picture, and the description is for screen
    /// readers.
    pub(super) fn finish(mut self, title: &str, description: &str, height: f64) -> String {
        let width = WIDTH;
        self.text("title", (PADDING, 26.0), Anchor::Start, title);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height:.0}\" \
             viewBox=\"0 0 {width} {height:.0}\" role=\"img\" aria-labelledby=\"title desc\">\n\
             <title id=\"title\">{}</title>\n<desc id=\"desc\">{}</desc>\n<style>\n{STYLE}\n</style>\n\
             <rect class=\"panel\" width=\"{width}\" height=\"{height:.0}\" rx=\"6\"/>\n{}</svg>\n",
            escape(title),
            escape(description),
            self.body,
        )
    }
}

/// Returns the estimated width of a string.
pub(super) fn text_width(text: &str) -> f64 {
    text.chars().count() as f64 * CHARACTER
}

fn attribute(class: &str) -> String {
    if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_has_a_title_a_description_and_two_schemes() {
        let mut svg = Svg::default();
        svg.text_within("", (0.0, 0.0), Anchor::End, "a & b <1>", 20.0);
        let svg = svg.finish("T", "D", 100.0);
        for part in [
            "<title id=\"title\">T</title>",
            "<desc id=\"desc\">D</desc>",
            "prefers-color-scheme: dark",
            "text-anchor=\"end\" style=\"font-size: 10.0px\"",
            ">a &amp; b &lt;1&gt;</text>",
            "viewBox=\"0 0 720 100\"",
        ] {
            assert!(svg.contains(part), "{part} {svg}");
        }
    }
}
