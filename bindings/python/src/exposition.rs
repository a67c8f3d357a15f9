//! The exposition of families as bytes, and the negotiation of its format.

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use quipu::exposition::{Encoder, Format, negotiate as negotiate_format};
use quipu::snapshot::{FamilyHeader, Series, Sink};

use crate::segment::Shown;

/// Writes families in one of the formats. `end` is true if no other output follows.
pub fn expose<'py>(
    py: Python<'py>,
    shown: Shown,
    (format, escaping): (&str, &str),
    end: bool,
) -> Bound<'py, PyBytes> {
    let format = FORMATS.iter().find(|(name, _)| *name == format).map(|(_, format)| *format);
    let escaping = escaping.parse().unwrap_or_default();
    let mut encoder = Encoder::new(format.unwrap_or_default(), escaping);
    encoder.bounds(put_bound);
    // Releases the GIL, because no Python object is used here.
    let encoder = py.detach(move || {
        let mut headed = Headed(encoder);
        shown.visit(&mut headed);
        let Headed(mut encoder) = headed;
        if end {
            encoder.finish();
        }
        encoder
    });
    PyBytes::new(py, encoder.buffer())
}

/// Returns the format that an `Accept` header asks for: its name, its escaping scheme, its content
/// type.
#[pyfunction]
pub fn negotiate(accept: &str) -> (&'static str, &'static str, String) {
    let negotiated = negotiate_format(accept);
    let (format, escaping) = (negotiated.format, negotiated.escaping);
    let name = FORMATS.iter().find(|(_, known)| *known == format).map_or("text", |(name, _)| name);
    (name, escaping.as_str(), format.content_type(escaping))
}

/// The formats by name.
const FORMATS: [(&str, Format); 5] = [
    ("text", Format::Text),
    ("text-utf-8", Format::TextUtf8),
    ("openmetrics", Format::OpenMetrics),
    ("openmetrics-2", Format::OpenMetrics2),
    ("protobuf", Format::Protobuf),
];

/// An encoder that also writes the headers of families without series.
struct Headed(Encoder);

impl Sink for Headed {
    fn family(&mut self, family: &FamilyHeader<'_>) {
        self.0.family(family);
        self.0.header(family);
    }

    fn series(&mut self, family: &FamilyHeader<'_>, series: &Series<'_>) {
        self.0.series(family, series);
    }
}

/// Appends a bound in the format of `prometheus_client`, because an application that switches must
/// keep its series.
fn put_bound(bound: f64, out: &mut Vec<u8>) {
    out.extend_from_slice(bound_text(bound).as_bytes());
}

/// Formats a bound as Python's `repr` does, but from a million on with an exponent.
pub fn bound_text(bound: f64) -> String {
    if bound.is_nan() {
        return "NaN".into();
    } else if bound.is_infinite() {
        return if bound > 0.0 { "+Inf".into() } else { "-Inf".into() };
    }
    // The shortest digits that round-trip; exponents from 1e16 on and below 1e-4, as in Python.
    let text = format!("{bound:?}");
    if let Some((digits, exponent)) = text.split_once('e') {
        let (sign, exponent) =
            exponent.strip_prefix('-').map_or(('+', exponent), |exponent| ('-', exponent));
        return format!("{digits}e{sign}{exponent:0>2}");
    }
    match text.find('.') {
        Some(dot) if bound > 0.0 && dot > 6 => {
            let digits = format!("{}.{}{}", &text[..1], &text[1..dot], &text[dot + 1..]);
            let digits = digits.trim_end_matches(['0', '.']);
            format!("{digits}e+{:02}", dot - 1)
        }
        _ => text,
    }
}
