//! Combines the labels of a line: its tags, and the labels that a mapping rule adds.

use std::borrow::Cow;
use std::cmp::Ordering;

use super::names::{ResolvedName, escaped, is_name};

/// The number of invalid tags of a line.
#[derive(Debug, Default)]
pub(crate) struct TagSummary {
    /// The number of tags without a name or a value.
    pub(crate) faults: u64,
    /// Whether the line contains more tags than the limit, so the rest was not read.
    pub(crate) are_cut: bool,
}

/// Fills `labels` with the tags of a line and the labels of its rule. Reads at most `most` plus one
/// tags, because the intake refuses a line with more labels anyway. `strange` is a buffer for tag
/// names that must be escaped.
#[inline]
pub(crate) fn put_labels<'s, 'a: 's, I>(
    resolved: &ResolvedName<'s>,
    tags: impl Fn() -> I,
    most: usize,
    labels: &mut Vec<(&'s str, &'s str)>,
    strange: &'s mut Vec<(Cow<'a, str>, &'a str)>,
) -> TagSummary
where
    I: Iterator<Item = Result<(&'a str, &'a str), &'a str>>,
{
    let tags = put_tags(tags, most, labels, strange);
    for (name, value) in resolved.labels {
        let is_there = resolved.honors_labels && labels.iter().any(|(other, _)| other == name);
        if !is_there {
            set_label(labels, name.as_str(), value);
        }
    }
    tags
}

#[inline]
fn put_tags<'s, 'a: 's, I>(
    tags: impl Fn() -> I,
    most: usize,
    labels: &mut Vec<(&'s str, &'s str)>,
    strange: &'s mut Vec<(Cow<'a, str>, &'a str)>,
) -> TagSummary
where
    I: Iterator<Item = Result<(&'a str, &'a str), &'a str>>,
{
    let plain = |name| is_name(name).then_some(name);
    if let Some(found) = put_named_tags(tags(), most, labels, plain) {
        return found;
    }
    // We escape the names before counting the labels, because different names can become the same
    // label.
    let escape = |name| match is_name(name) {
        true => Some(Cow::Borrowed(name)),
        false => Some(Cow::Owned(escaped(name, ""))),
    };
    let found = put_named_tags(tags(), most, strange, escape);
    labels.clear();
    labels.extend(strange.iter().map(|(name, value)| (&**name, *value)));
    found.unwrap_or_default()
}

/// Adds tags under the names that `named` returns for their names. Returns `None` at the first tag
/// without a name.
#[inline]
fn put_named_tags<'s, 'a: 's, N: Ord>(
    tags: impl Iterator<Item = Result<(&'a str, &'a str), &'a str>>,
    most: usize,
    labels: &mut Vec<(N, &'s str)>,
    named: impl Fn(&'a str) -> Option<N>,
) -> Option<TagSummary> {
    let mut found = TagSummary::default();
    for tag in tags {
        match tag {
            Ok((name, value)) => {
                if labels.len() > most {
                    found.are_cut = true;
                    break;
                }
                set_label(labels, named(name)?, value);
            }
            Err(_) => found.faults += 1,
        }
    }
    Some(found)
}

/// Sets a label, and keeps the labels sorted by name. If several tags have the same name, the last
/// one wins, like in statsd_exporter.
#[inline]
fn set_label<'a, N: Ord>(labels: &mut Vec<(N, &'a str)>, name: N, value: &'a str) {
    let mut at = labels.len();
    while let Some((before, old)) = at.checked_sub(1).and_then(|before| labels.get_mut(before)) {
        match (*before).cmp(&name) {
            Ordering::Less => break,
            Ordering::Equal => {
                *old = value;
                return;
            }
            Ordering::Greater => at -= 1,
        }
    }
    labels.insert(at, (name, value));
}

/// Returns the emptied vector with another lifetime, so its memory can be reused.
pub(crate) fn recycle(mut labels: Vec<(&str, &str)>) -> Vec<(&'static str, &'static str)> {
    labels.clear();
    // The standard library collects in place, so this neither loops nor allocates.
    labels.into_iter().map(|_| ("", "")).collect()
}
