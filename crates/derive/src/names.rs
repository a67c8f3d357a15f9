//! Which names metrics and labels may have: the same rules as at registration, at compile time.

use proc_macro2::Span;
use syn::Error;

/// What formats add to a name by themselves.
const RESERVED: [&str; 8] =
    ["_total", "_created", "_bucket", "_count", "_sum", "_info", "_gcount", "_gsum"];

pub(crate) fn check_metric(name: &str, span: Span) -> Result<(), Error> {
    if name.is_empty() || name.contains(['\n', '\0']) {
        let what = format!("{name:?} is no name for a metric; it takes some text in one line");
        return Err(Error::new(span, what));
    }
    if let Some(suffix) = RESERVED.iter().find(|suffix| name.ends_with(*suffix)) {
        let short = name.strip_suffix(suffix).unwrap_or(name);
        let what = format!(
            "the name {name:?} ends in {suffix:?}, which formats add by themselves; call it \
             {short:?}"
        );
        return Err(Error::new(span, what));
    }
    Ok(())
}

pub(crate) fn check_label(name: &str, span: Span) -> Result<(), Error> {
    let fail = |what: String| Err(Error::new(span, what));
    if name.is_empty() || name.contains(['\n', '\0']) {
        return fail(format!("{name:?} is no name for a label; it takes some text in one line"));
    }
    if name.starts_with("__") {
        return fail(format!(
            "the label {name:?} begins with \"__\", as Prometheus' own do; rename it by \
             #[label(rename = \"...\")]"
        ));
    }
    if matches!(name, "le" | "quantile" | "quipu_overflow") {
        return fail(format!(
            "the label {name:?} has a meaning of its own in formats; rename it by \
             #[label(rename = \"...\")]"
        ));
    }
    Ok(())
}
