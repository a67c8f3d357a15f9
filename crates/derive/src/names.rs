//! The rules for names of metrics and labels: those of registration, checked at compile time.

use proc_macro2::Span;
use syn::Error;

/// Suffixes that the formats add to names.
const RESERVED: [&str; 8] =
    ["_total", "_created", "_bucket", "_count", "_sum", "_info", "_gcount", "_gsum"];

pub(crate) fn check_metric(name: &str, span: Span) -> Result<(), Error> {
    if name.is_empty() || name.contains(['\n', '\0']) {
        let what = format!("metric name {name:?} is empty or has a line feed or NUL: rename it");
        return Err(Error::new(span, what));
    }
    if let Some(suffix) = RESERVED.iter().find(|suffix| name.ends_with(*suffix)) {
        let short = name.strip_suffix(suffix).unwrap_or(name);
        let what = format!(
            "the name {name:?} ends in {suffix:?}, which the formats add: call it {short:?}"
        );
        return Err(Error::new(span, what));
    }
    Ok(())
}

pub(crate) fn check_label(name: &str, span: Span) -> Result<(), Error> {
    let fail = |what: String| Err(Error::new(span, what));
    if name.is_empty() || name.contains(['\n', '\0']) {
        return fail(format!("label name {name:?} is empty or has a line feed or NUL: rename it"));
    }
    if name.starts_with("__") {
        return fail(format!(
            "the label {name:?} begins with \"__\", which Prometheus reserves: rename it with \
             #[label(rename = \"...\")]"
        ));
    }
    if matches!(name, "le" | "quantile" | "quipu_overflow") {
        return fail(format!(
            "the label {name:?} is reserved for the formats: rename it with \
             #[label(rename = \"...\")]"
        ));
    }
    Ok(())
}
