//! The rules for names of metrics and labels, checked at registration.

use crate::error::Error;

/// Suffixes that the formats add to names.
const RESERVED: [&str; 8] =
    ["_total", "_created", "_bucket", "_count", "_sum", "_info", "_gcount", "_gsum"];

/// Checks the name of a metric. Any UTF-8 is valid: Prometheus 3 reads it, and older versions get
/// an escaped name. Names that collide with a suffix of the formats are rejected, unless `verbatim`
/// says that the program writes such names itself.
pub(crate) fn check_metric(name: &str, verbatim: bool) -> Result<(), Error> {
    if name.is_empty() {
        return Err(Error::invalid(name, "a metric without a name; give it one"));
    }
    if name.contains(['\n', '\0']) {
        return Err(Error::invalid(name, "its name contains a line feed or NUL: remove it"));
    }
    if verbatim {
        return Ok(());
    }
    if let Some(suffix) = RESERVED.iter().find(|suffix| name.ends_with(*suffix)) {
        let what = format!("its name ends in {suffix:?}, which the formats add: leave it out");
        return Err(Error::invalid(name, what));
    }
    Ok(())
}

/// Checks the name of a label.
pub(crate) fn check_label(metric: &str, name: &str, verbatim: bool) -> Result<(), Error> {
    if name.is_empty() || name.contains(['\n', '\0']) {
        let what = format!("label name {name:?} is empty or has a line feed or NUL: rename it");
        return Err(Error::invalid(metric, what));
    }
    if name.starts_with("__") {
        let what =
            format!("the label {name:?} begins with \"__\", which Prometheus reserves: rename it");
        return Err(Error::invalid(metric, what));
    }
    if name == "quipu_overflow" || !verbatim && matches!(name, "le" | "quantile") {
        let what = format!("the label {name:?} is reserved for the formats: rename it");
        return Err(Error::invalid(metric, what));
    }
    Ok(())
}
