//! Checks and escapes the names of metrics and labels, because a scraper rejects a page with
//! invalid names.

use std::borrow::Cow;

use quipu::exposition::{Escaping, escape_name, is_legacy_name};
use quipu::snapshot::{FamilyHeader, Kind, Label};

use super::recorded::Labels;

/// The label of overflow series, which the library adds.
pub const OVERFLOW: &str = "quipu_overflow";

/// Returns the reason why a scraper would reject a family with these additional labels, if any.
pub fn flaw(family: &FamilyHeader<'_>, beside: &Labels) -> Option<String> {
    let is_broken = |text: &str| text.contains(['\n', '\0']);
    if is_broken(family.name) {
        return Some("its name has a line feed or NUL".to_owned());
    }
    let own = match family.kind {
        Kind::Histogram => Some(Cow::Borrowed("le")),
        Kind::Summary => Some(Cow::Borrowed("quantile")),
        // Each state is the value of a label named like the metric.
        Kind::StateSet => Some(escaped(family.name)),
        _ => None,
    };
    if let (Kind::StateSet, Some(own)) = (family.kind, &own)
        && beside.iter().any(|(name, _)| name == own)
    {
        return Some(format!("the source has a label {own:?}"));
    }
    let mut names: Vec<Cow<'_, str>> = Vec::with_capacity(family.labels().len());
    for Label { name, .. } in family.labels() {
        let shown = escaped(name);
        let is_reserved = name.starts_with("__")
            || shown == "__name__"
            || shown == OVERFLOW
            || own.as_ref() == Some(&shown);
        if name.is_empty() || is_broken(name) || is_reserved {
            return Some(format!("a label of it cannot have the name {name:?}"));
        }
        names.push(shown);
    }
    names.sort_unstable();
    let twice = names.windows(2).find(|two| two[0] == two[1])?;
    Some(format!("two labels of it are shown as {:?}", twice[0]))
}

/// Escapes a metric name, for clients that need this.
pub fn escaped_metric(name: &str) -> Cow<'_, str> {
    if is_legacy_name(name) {
        return Cow::Borrowed(name);
    }
    let mut out = String::new();
    escape_name(name, Escaping::Underscores, &mut out);
    Cow::Owned(out)
}

/// Escapes a label name.
pub fn escaped(name: &str) -> Cow<'_, str> {
    // A metric name can contain a colon, but a label name cannot.
    match escaped_metric(name) {
        Cow::Borrowed(name) if !name.contains(':') => Cow::Borrowed(name),
        escaped => Cow::Owned(escaped.replace(':', "_")),
    }
}

/// Returns the suffix of a family's samples.
pub fn suffix(kind: Kind, bare: bool) -> &'static str {
    match kind {
        Kind::Counter if !bare => "_total",
        Kind::Info => "_info",
        _ => "",
    }
}
