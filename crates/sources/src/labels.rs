//! The names of metrics and labels in expositions, and the names that a reader would refuse.

use std::borrow::Cow;

use quipu::exposition::{Escaping, escape_name, is_legacy_name};
use quipu::snapshot::{FamilyHeader, Kind, Label};

use super::recorded::Labels;

/// The label of overflow series.
pub const OVERFLOW: &str = "quipu_overflow";

/// Returns the reason why a reader would refuse a family with these additional labels.
pub fn flaw(family: &FamilyHeader<'_>, beside: &Labels) -> Option<String> {
    let is_broken = |text: &str| text.contains(['\n', '\0']);
    if is_broken(family.name) {
        return Some("its name has a line feed or NUL".to_owned());
    }
    let own = match family.kind {
        Kind::Histogram => Some(Cow::Borrowed("le")),
        Kind::Summary => Some(Cow::Borrowed("quantile")),
        // Each state is the value of a label with the metric's name.
        Kind::StateSet => Some(escaped(family.name)),
        _ => None,
    };
    if let (Kind::StateSet, Some(own)) = (family.kind, &own)
        && beside.iter().any(|(name, _)| name == own)
    {
        return Some(format!("the source has a label {own:?}"));
    }
    let mut names: Vec<Cow<'_, str>> = Vec::with_capacity(family.labels.len());
    for Label { name, .. } in family.labels {
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

/// Escapes the name of a metric, for readers that need this.
pub fn escaped_metric(name: &str) -> Cow<'_, str> {
    if is_legacy_name(name) {
        return Cow::Borrowed(name);
    }
    let mut out = String::new();
    escape_name(name, Escaping::Underscores, &mut out);
    Cow::Owned(out)
}

/// Escapes the name of a label.
pub fn escaped(name: &str) -> Cow<'_, str> {
    // A metric's name can contain a colon, but a label's name cannot.
    match escaped_metric(name) {
        Cow::Borrowed(name) if !name.contains(':') => Cow::Borrowed(name),
        escaped => Cow::Owned(escaped.replace(':', "_")),
    }
}

/// Returns the suffix that the samples of a family add to its name.
pub fn suffix(kind: Kind, bare: bool) -> &'static str {
    match kind {
        Kind::Counter if !bare => "_total",
        Kind::Info => "_info",
        _ => "",
    }
}
