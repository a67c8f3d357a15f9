//! The exposition of a segment as bytes, and which one a scraper wants.

use std::collections::HashSet;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use quipu::exposition::{Encoder, Escaping, Format, negotiate as negotiate_format};
use quipu::snapshot::{Family, Series, Sink};

use crate::segment::Segment;

/// Everything in one of the formats, but for the families that are not to be shown. `end` says
/// whether nothing comes after it.
pub fn expose<'py>(
    py: Python<'py>,
    segment: &Segment,
    (format, escaping): (&str, &str),
    hidden: HashSet<String>,
    end: bool,
) -> Bound<'py, PyBytes> {
    let format = FORMATS.iter().find(|(name, _)| *name == format).map(|(_, format)| *format);
    let escaping = Escaping::from_name(escaping).unwrap_or_default();
    let mut encoder = Encoder::new(format.unwrap_or_default(), escaping);
    encoder.bounds(put_bound);
    let registry = segment.registry().clone();
    // Other threads go on meanwhile: nothing here is Python's.
    let encoder = py.detach(move || {
        let mut shown = Shown { encoder, hidden, is_hidden: false };
        // A segment that contradicts itself was refused when it was opened.
        let _ = registry.visit(&mut shown);
        if end {
            shown.encoder.finish();
        }
        shown.encoder
    });
    PyBytes::new(py, encoder.buffer())
}

/// The format that a header `Accept` asks for: its name, the scheme for names, the content type.
#[pyfunction]
pub fn negotiate(accept: &str) -> (&'static str, &'static str, String) {
    let negotiated = negotiate_format(accept);
    let (format, escaping) = (negotiated.format, negotiated.escaping);
    let name = FORMATS.iter().find(|(_, known)| *known == format).map_or("text", |(name, _)| name);
    (name, escaping.name(), format.content_type(escaping))
}

/// The formats by name.
const FORMATS: [(&str, Format); 5] = [
    ("text", Format::Text),
    ("text-utf-8", Format::TextUtf8),
    ("openmetrics", Format::OpenMetrics),
    ("openmetrics-2", Format::OpenMetrics2),
    ("protobuf", Format::Protobuf),
];

/// An encoder that is not given some families.
struct Shown {
    encoder: Encoder,
    hidden: HashSet<String>,
    is_hidden: bool,
}

impl Sink for Shown {
    fn family(&mut self, family: &Family<'_>) {
        self.is_hidden = self.hidden.contains(family.name);
        if !self.is_hidden {
            self.encoder.family(family);
        }
    }

    fn series(&mut self, family: &Family<'_>, series: &Series<'_>) {
        if !self.is_hidden {
            self.encoder.series(family, series);
        }
    }
}

/// Appends a bound as `prometheus_client` writes it, so that an application's series go on.
fn put_bound(bound: f64, out: &mut Vec<u8>) {
    out.extend_from_slice(bound_text(bound).as_bytes());
}

/// A bound as Python's `repr` has it, and from a million on with an exponent.
pub fn bound_text(bound: f64) -> String {
    if bound.is_nan() {
        return "NaN".into();
    } else if bound.is_infinite() {
        return if bound > 0.0 { "+Inf".into() } else { "-Inf".into() };
    }
    // The shortest digits that tell it apart, in exponents from 1e16 on and below 1e-4: as Python.
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
