//! Which names metrics and labels may have.

use crate::error::Error;

/// What formats add to a name by themselves.
const RESERVED: [&str; 8] =
    ["_total", "_created", "_bucket", "_count", "_sum", "_info", "_gcount", "_gsum"];

/// Checks the name of a metric. Any UTF-8 is right (Prometheus 3 reads it, and older versions are
/// given an escaped name), but for what would collide with what formats add, unless `verbatim` says
/// that the program writes such names itself.
pub(crate) fn check_metric(name: &str, verbatim: bool) -> Result<(), Error> {
    if name.is_empty() {
        return Err(Error::invalid(name, "a metric without a name; give it one"));
    }
    if name.contains(['\n', '\0']) {
        return Err(Error::invalid(name, "a line feed or NUL in its name; leave it out"));
    }
    if verbatim {
        return Ok(());
    }
    if let Some(suffix) = RESERVED.iter().find(|suffix| name.ends_with(*suffix)) {
        let what =
            format!("its name ends in {suffix:?}, which formats add by themselves; leave it out");
        return Err(Error::invalid(name, what));
    }
    Ok(())
}

/// Checks the name of a label.
pub(crate) fn check_label(metric: &str, name: &str, verbatim: bool) -> Result<(), Error> {
    if name.is_empty() || name.contains(['\n', '\0']) {
        let what = format!("the label {name:?} has no name that can be written; rename it");
        return Err(Error::invalid(metric, what));
    }
    if name.starts_with("__") {
        let what =
            format!("the label {name:?} begins with \"__\", as Prometheus' own do; rename it");
        return Err(Error::invalid(metric, what));
    }
    if name == "quipu_overflow" || !verbatim && matches!(name, "le" | "quantile") {
        let what = format!("the label {name:?} has a meaning of its own in formats; rename it");
        return Err(Error::invalid(metric, what));
    }
    Ok(())
}
