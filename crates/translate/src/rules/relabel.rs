//! Relabelling rules, like Prometheus' `metric_relabel_configs`. This follows its package
//! `model/relabel`, version 0.312.

use std::borrow::Cow;

use md5::{Digest as _, Md5};
use regex::Regex;

use super::file;
use super::labels::Labels;
use super::pattern::anchored;

/// A relabelling rule.
#[derive(Debug)]
pub(super) struct Relabel {
    source: Vec<String>,
    separator: String,
    regex: Regex,
    target: String,
    replacement: String,
    action: Action,
    /// Whether the rule sets a label to a constant, because it contains neither an expression nor a
    /// reference.
    is_plain: bool,
}

/// The action of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Replace,
    Keep,
    Drop,
    KeepEqual,
    DropEqual,
    HashMod(u64),
    LabelMap,
    LabelDrop,
    LabelKeep,
    Lowercase,
    Uppercase,
}

/// The effect of a rule on a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Same,
    Changed,
    Dropped,
}

const REGEX: &str = "(.*)";
const SEPARATOR: &str = ";";
const REPLACEMENT: &str = "$1";
const ACTIONS: &str = "replace, keep, drop, keepequal, dropequal, hashmod, labelmap, labeldrop, \
                       labelkeep, lowercase and uppercase";

impl Relabel {
    /// Creates a rule, after this function has checked its keys.
    ///
    /// # Errors
    /// Returns the key and its problem.
    pub(super) fn new(rule: &file::RelabelConfig) -> Result<Self, String> {
        let name = rule.action.as_deref().unwrap_or("replace").to_lowercase();
        let modulus = rule.modulus.unwrap_or(0);
        let action = match &*name {
            "replace" => Action::Replace,
            "keep" => Action::Keep,
            "drop" => Action::Drop,
            "keepequal" => Action::KeepEqual,
            "dropequal" => Action::DropEqual,
            "hashmod" if modulus == 0 => {
                return Err("key `modulus`: hashmod needs one that is not 0".into());
            }
            "hashmod" => Action::HashMod(modulus),
            "labelmap" => Action::LabelMap,
            "labeldrop" => Action::LabelDrop,
            "labelkeep" => Action::LabelKeep,
            "lowercase" => Action::Lowercase,
            "uppercase" => Action::Uppercase,
            other => return Err(format!("key `action`: {other:?} is unknown; give {ACTIONS}")),
        };
        let expression = rule.regex.as_deref().unwrap_or(REGEX);
        let regex = anchored(expression).map_err(|error| format!("key `regex`: {error}"))?;
        let this = Self {
            source: rule.source_labels.clone().unwrap_or_default(),
            separator: rule.separator.clone().unwrap_or_else(|| SEPARATOR.into()),
            regex,
            target: rule.target_label.clone().unwrap_or_default(),
            replacement: rule.replacement.clone().unwrap_or_else(|| REPLACEMENT.into()),
            action,
            is_plain: false,
        };
        this.check_keys(&name, rule)?;
        let is_plain =
            rule.regex.is_none() && !this.target.contains('$') && !this.replacement.contains('$');
        Ok(Self { is_plain, ..this })
    }

    /// Checks that the action supports all keys of the rule.
    fn check_keys(&self, name: &str, rule: &file::RelabelConfig) -> Result<(), String> {
        use Action::{
            DropEqual, HashMod, KeepEqual, LabelDrop, LabelKeep, LabelMap, Lowercase, Replace,
            Uppercase,
        };
        let has_target = matches!(
            self.action,
            Replace | HashMod(_) | Lowercase | Uppercase | KeepEqual | DropEqual
        );
        if has_target && self.target.is_empty() {
            return Err(format!("key `target_label`: {name} needs one"));
        }
        if self.action == LabelMap && self.replacement.is_empty() {
            return Err("key `replacement`: labelmap needs the name of a label".into());
        }
        let separator = (self.separator != SEPARATOR, "separator");
        let replacement = (self.replacement != REPLACEMENT, "replacement");
        let modulus = (rule.modulus.unwrap_or(0) != 0, "modulus");
        let strange = match self.action {
            Lowercase | Uppercase => vec![replacement],
            KeepEqual | DropEqual => {
                vec![(rule.regex.is_some(), "regex"), modulus, separator, replacement]
            }
            LabelDrop | LabelKeep => vec![
                (rule.source_labels.is_some(), "source_labels"),
                (!self.target.is_empty(), "target_label"),
                modulus,
                separator,
                replacement,
            ],
            _ => vec![],
        };
        match strange.into_iter().find(|(is_there, _)| *is_there) {
            Some((_, key)) => Err(format!("key `{key}`: {name} has none; remove it")),
            None => Ok(()),
        }
    }

    /// Returns the name of the action.
    pub(super) fn name(&self) -> &'static str {
        match self.action {
            Action::Replace => "replace",
            Action::Keep => "keep",
            Action::Drop => "drop",
            Action::KeepEqual => "keepequal",
            Action::DropEqual => "dropequal",
            Action::HashMod(_) => "hashmod",
            Action::LabelMap => "labelmap",
            Action::LabelDrop => "labeldrop",
            Action::LabelKeep => "labelkeep",
            Action::Lowercase => "lowercase",
            Action::Uppercase => "uppercase",
        }
    }

    /// Applies the rule to a sample.
    pub(super) fn apply(&self, labels: &mut Labels<'_>) -> Outcome {
        let value = self.value(labels);
        let target = &*self.target;
        let changed = match self.action {
            Action::Keep => return dropped(!self.regex.is_match(&value)),
            Action::Drop => return dropped(self.regex.is_match(&value)),
            Action::KeepEqual => return dropped(labels.get(target) != value),
            Action::DropEqual => return dropped(labels.get(target) == value),
            Action::Replace => self.replace(labels, &value),
            Action::Lowercase => labels.set(target, &lowercase(&value)),
            Action::Uppercase => labels.set(target, &uppercase(&value)),
            Action::HashMod(modulus) => labels.set(target, &(hash(&value) % modulus).to_string()),
            Action::LabelMap => self.map(labels),
            Action::LabelDrop => labels.retain(|name| !self.regex.is_match(name)),
            Action::LabelKeep => labels.retain(|name| self.regex.is_match(name)),
        };
        if changed { Outcome::Changed } else { Outcome::Same }
    }

    /// Joins the values of the source labels.
    fn value<'a>(&self, labels: &Labels<'a>) -> Cow<'a, str> {
        match &self.source[..] {
            [] => "".into(),
            [name] => labels.copy(name),
            names => {
                let values: Vec<&str> = names.iter().map(|name| labels.get(name)).collect();
                values.join(&self.separator).into()
            }
        }
    }

    fn replace(&self, labels: &mut Labels<'_>, value: &str) -> bool {
        if value.is_empty() && self.is_plain {
            return labels.set(&self.target, &self.replacement);
        }
        let Some(captures) = self.regex.captures(value) else { return false };
        let (mut target, mut replacement) = (String::new(), String::new());
        captures.expand(&self.target, &mut target);
        captures.expand(&self.replacement, &mut replacement);
        !target.is_empty() && labels.set(&target, &replacement)
    }

    fn map(&self, labels: &mut Labels<'_>) -> bool {
        let mut changed = false;
        for (name, value) in labels.clone().all() {
            if let Some(captures) = self.regex.captures(name) {
                let mut target = String::new();
                captures.expand(&self.replacement, &mut target);
                changed |= !target.is_empty() && labels.set(&target, value);
            }
        }
        changed
    }
}

fn dropped(is_dropped: bool) -> Outcome {
    if is_dropped { Outcome::Dropped } else { Outcome::Same }
}

/// Returns the last 8 bytes of the MD5 hash, like Prometheus.
fn hash(value: &str) -> u64 {
    let hash: [u8; 16] = Md5::digest(value.as_bytes()).into();
    // The conversion keeps the lowest 64 bits.
    u128::from_be_bytes(hash) as u64
}

/// Converts to lower case, like Go: each character remains a single character.
fn lowercase(text: &str) -> String {
    text.chars().map(|c| c.to_lowercase().next().unwrap_or(c)).collect()
}

fn uppercase(text: &str) -> String {
    let upper = |c: char| {
        let mut upper = c.to_uppercase();
        let first = upper.next();
        if upper.next().is_some() { c } else { first.unwrap_or(c) }
    };
    text.chars().map(upper).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn rule(yaml: &str) -> Result<Relabel, String> {
        let rule: file::RelabelConfig = serde_saphyr::from_str(yaml).map_err(|e| e.to_string())?;
        Relabel::new(&rule)
    }

    /// Applies rules to `hits{a="foo",b="bar",c="baz"}`. Returns the labels in order, or `None`.
    fn relabelled(yaml: &str) -> Option<String> {
        let mut labels = Labels::new("hits", &[("c", "baz"), ("a", "foo"), ("b", "bar")]);
        if rule(yaml).unwrap().apply(&mut labels) == Outcome::Dropped {
            return None;
        }
        let mut pairs: Vec<_> =
            labels.all().iter().map(|(name, value)| format!("{name}={value}")).collect();
        pairs.sort();
        Some(pairs.join(" "))
    }

    #[test]
    fn each_action_does_what_prometheus_does() {
        for (yaml, expected) in [
            (
                "{source_labels: [a], target_label: d, regex: 'f(.*)', replacement: 'ch${1}-$1x'}",
                Some("__name__=hits a=foo b=bar c=baz d=choo-"),
            ),
            (
                "{source_labels: [a, b], target_label: a, regex: 'foo;(.*)'}",
                Some("__name__=hits a=bar b=bar c=baz"),
            ),
            ("{target_label: d, replacement: 7}", Some("__name__=hits a=foo b=bar c=baz d=7")),
            (
                "{source_labels: [a], target_label: b, regex: 'x'}",
                Some("__name__=hits a=foo b=bar c=baz"),
            ),
            (
                "{source_labels: [a], target_label: b, replacement: ''}",
                Some("__name__=hits a=foo c=baz"),
            ),
            (
                "{source_labels: [a], target_label: '${1}', regex: '(.)oo'}",
                Some("__name__=hits a=foo b=bar c=baz f=f"),
            ),
            ("{action: keep, source_labels: [__name__], regex: 'hi'}", None),
            (
                "{action: keep, source_labels: [__name__], regex: 'hi.*'}",
                Some("__name__=hits a=foo b=bar c=baz"),
            ),
            ("{action: DROP, source_labels: [a], regex: 'f.o'}", None),
            ("{action: keepequal, source_labels: [a], target_label: b}", None),
            ("{action: dropequal, source_labels: [a], target_label: a}", None),
            (
                "{action: hashmod, source_labels: [c], target_label: d, modulus: 1000}",
                Some("__name__=hits a=foo b=bar c=baz d=976"),
            ),
            (
                "{action: labelmap, regex: '([ab])', replacement: 'x_$1'}",
                Some("__name__=hits a=foo b=bar c=baz x_a=foo x_b=bar"),
            ),
            (
                "{action: labelmap, regex: '[ab]', replacement: 'x'}",
                Some("__name__=hits a=foo b=bar c=baz x=bar"),
            ),
            ("{action: labeldrop, regex: '[ab]'}", Some("__name__=hits c=baz")),
            ("{action: labelkeep, regex: '__name__|a'}", Some("__name__=hits a=foo")),
            (
                "{action: uppercase, source_labels: [a, b], separator: '\u{df}', target_label: a}",
                Some("__name__=hits a=FOO\u{df}BAR b=bar c=baz"),
            ),
            (
                "{action: lowercase, source_labels: [z], target_label: a}",
                Some("__name__=hits b=bar c=baz"),
            ),
        ] {
            assert_eq!(relabelled(yaml).as_deref(), expected, "{yaml}");
        }
    }

    #[test]
    fn rules_that_prometheus_refuses_are_refused() {
        for (yaml, part) in [
            ("{action: replace}", "`target_label`: replace needs one"),
            ("{action: rename}", "give replace, keep"),
            ("{action: hashmod, target_label: a}", "`modulus`"),
            ("{action: labeldrop, source_labels: [a]}", "`source_labels`: labeldrop has none"),
            ("{action: keepequal, source_labels: [a], target_label: b, regex: x}", "`regex`"),
            ("{action: lowercase, target_label: b, replacement: x}", "`replacement`"),
            ("{action: labelmap, replacement: ''}", "`replacement`"),
            ("{action: drop, regex: '('}", "`regex`"),
        ] {
            let error = rule(yaml).unwrap_err();
            assert!(error.contains(part), "{yaml}: {error}");
        }
    }
}
