//! The labels of a series: the attributes of a point, its resource and its scope, by Prometheus'
//! rules.
//!
//! `service.name` and `service.namespace` become `job`, `service.instance.id` becomes `instance`.
//! The other attributes of a resource are the labels of `target_info`, unless they are promoted. The
//! scope becomes `otel_scope_name`, `otel_scope_version`, `otel_scope_schema_url` and
//! `otel_scope_` with the key of each of its attributes.

use std::ops::Range;

use quipu_wire::remote::{Attribute, Instrumentation};

use super::names::Translation;
use super::values;

/// Labels in order of their addition. The texts are in one buffer, which is used again.
#[derive(Debug, Default)]
pub(super) struct Labels {
    texts: String,
    pairs: Vec<(Range<usize>, Range<usize>)>,
}

impl Labels {
    pub(super) fn clear(&mut self) {
        self.texts.clear();
        self.pairs.clear();
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs.iter().map(|(name, value)| (self.text(name), self.text(value)))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.find(name).map(|index| self.text(&self.pairs[index].1))
    }

    /// Sets a label, whatever value it has.
    pub(super) fn set(&mut self, name: &str, value: &str) {
        let value = self.push(value);
        match self.find(name) {
            Some(index) => self.pairs[index].1 = value,
            None => {
                let name = self.push(name);
                self.pairs.push((name, value));
            }
        }
    }

    /// Sets a label; a value that it has comes first, and a semicolon between them.
    fn join(&mut self, name: &str, value: &str) {
        let Some(index) = self.find(name).filter(|index| !self.pairs[*index].1.is_empty()) else {
            return self.set(name, value);
        };
        let before = self.pairs[index].1.clone();
        let start = self.texts.len();
        self.texts.extend_from_within(before);
        self.texts.push(';');
        self.texts.push_str(value);
        self.pairs[index].1 = start..self.texts.len();
    }

    fn find(&self, name: &str) -> Option<usize> {
        self.pairs.iter().position(|(other, _)| self.text(other) == name)
    }

    fn push(&mut self, text: &str) -> Range<usize> {
        let start = self.texts.len();
        self.texts.push_str(text);
        start..self.texts.len()
    }

    fn text(&self, range: &Range<usize>) -> &str {
        &self.texts[range.clone()]
    }

    /// Adds attributes; those whose names are the same after translation are joined, in the order
    /// of their keys.
    ///
    /// # Errors
    /// A key of which nothing is left.
    pub(super) fn add<'a>(
        &mut self,
        translation: Translation,
        attributes: &[Attribute<'a>],
        is_wanted: impl Fn(&str) -> bool,
    ) -> Result<(), &'a str> {
        let first = self.pairs.len();
        let mut collided = false;
        let wanted = attributes.iter().filter(|(key, _)| *key != "__name__" && is_wanted(key));
        for (key, value) in wanted.clone() {
            let name = translation.label(key).ok_or(*key)?;
            collided |= self.find(&name).is_some();
            self.join(&name, &values::text(value));
        }
        if collided {
            self.pairs.truncate(first);
            let mut sorted: Vec<_> = wanted.collect();
            sorted.sort_by_key(|(key, _)| *key);
            for (key, value) in sorted {
                self.join(&translation.label(key).ok_or(*key)?, &values::text(value));
            }
        }
        Ok(())
    }
}

/// What the points of a resource have in common.
#[derive(Debug, Default)]
pub(super) struct Target {
    pub(super) job: String,
    pub(super) instance: String,
    /// Attributes that become labels of each series.
    pub(super) promoted: Labels,
    /// The labels of `target_info`; empty if it has none.
    pub(super) info: Labels,
}

impl Target {
    /// # Errors
    /// A key of which nothing is left.
    pub(super) fn read<'a>(
        &mut self,
        attributes: &[Attribute<'a>],
        translation: Translation,
        promote: &[String],
    ) -> Result<(), &'a str> {
        self.job.clear();
        self.instance.clear();
        self.promoted.clear();
        self.info.clear();
        let get =
            |wanted| attributes.iter().find(|(key, _)| *key == wanted).map(|(_, value)| value);
        if let Some(name) = get(NAME) {
            if let Some(namespace) = get(NAMESPACE) {
                self.job.push_str(&values::text(namespace));
                self.job.push('/');
            }
            self.job.push_str(&values::text(name));
        }
        if let Some(instance) = get(INSTANCE) {
            self.instance.push_str(&values::text(instance));
        }
        for (key, value) in attributes.iter().filter(|(key, _)| promote.iter().any(|p| p == key)) {
            self.promoted.set(&translation.label(key).ok_or(*key)?, &values::text(value));
        }
        if self.job.is_empty() && self.instance.is_empty() {
            return Ok(());
        }
        self.info
            .add(translation, attributes, |key| ![NAME, NAMESPACE, INSTANCE].contains(&key))?;
        if !self.info.is_empty() {
            self.identify_in_info();
        }
        Ok(())
    }

    fn identify_in_info(&mut self) {
        for (name, value) in [("job", &self.job), ("instance", &self.instance)] {
            if !value.is_empty() {
                self.info.set(name, value);
            }
        }
    }

    /// Adds the labels of the target to those of a series.
    pub(super) fn add_to(&self, labels: &mut Labels) {
        for (name, value) in self.promoted.iter() {
            if labels.get(name).is_none_or(str::is_empty) {
                labels.set(name, value);
            }
        }
        for (name, value) in [("job", &self.job), ("instance", &self.instance)] {
            if !value.is_empty() {
                labels.set(name, value);
            }
        }
    }
}

/// The labels of a scope, which has none without a name.
///
/// # Errors
/// A key of which nothing is left.
pub(super) fn of_scope(
    labels: &mut Labels,
    scope: &Instrumentation<'_, '_>,
    translation: Translation,
) -> Result<(), String> {
    labels.clear();
    if scope.name.is_empty() {
        return Ok(());
    }
    for (key, value) in scope.attributes {
        let key = format!("otel_scope_{key}");
        labels.set(&translation.label(&key).ok_or(&*key)?, &values::text(value));
    }
    labels.set("otel_scope_name", scope.name);
    labels.set("otel_scope_version", scope.version);
    labels.set("otel_scope_schema_url", scope.schema_url);
    Ok(())
}

const NAME: &str = "service.name";
const NAMESPACE: &str = "service.namespace";
const INSTANCE: &str = "service.instance.id";

#[cfg(test)]
mod tests {
    use quipu_wire::remote::Value;

    use super::*;

    const ESCAPED: Translation = Translation::UnderscoreEscapingWithSuffixes;

    fn shown(labels: &Labels) -> String {
        let pairs: Vec<_> = labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        pairs.join(" ")
    }

    fn text<'a>(pairs: &[(&'a str, &'a str)]) -> Vec<Attribute<'a>> {
        pairs.iter().map(|(key, value)| (*key, Value::Text(value))).collect()
    }

    #[test]
    fn attributes_that_collide_are_joined_in_the_order_of_their_keys() {
        let mut labels = Labels::default();
        let attributes =
            text(&[("a_b", "3"), ("x", "1"), ("a.b", "2"), ("a-b", ""), ("__name__", "n")]);
        labels.add(ESCAPED, &attributes, |_| true).unwrap();
        assert_eq!(shown(&labels), "a_b=2;3 x=1");
        labels.clear();
        labels.add(Translation::NoTranslation, &attributes, |_| true).unwrap();
        assert_eq!(shown(&labels), "a_b=3 x=1 a.b=2 a-b=");
        assert_eq!(labels.add(ESCAPED, &text(&[("..", "")]), |_| true), Err(".."));
    }

    #[test]
    fn the_service_becomes_job_and_instance() {
        let mut target = Target::default();
        let attributes = text(&[
            (NAMESPACE, "shop"),
            (NAME, "cart"),
            (INSTANCE, "i-1"),
            ("host.name", "h"),
            ("job", "other"),
        ]);
        target.read(&attributes, ESCAPED, &["host.name".into()]).unwrap();
        assert_eq!(shown(&target.info), "host_name=h job=shop/cart instance=i-1");
        let mut labels = Labels::default();
        labels.add(ESCAPED, &text(&[("instance", "x"), ("a", "b")]), |_| true).unwrap();
        target.add_to(&mut labels);
        assert_eq!(shown(&labels), "instance=i-1 a=b host_name=h job=shop/cart");

        // Without other attributes, and without a service, there is nothing to tell.
        target.read(&text(&[(NAME, "cart")]), ESCAPED, &[]).unwrap();
        assert_eq!((target.job.as_str(), target.info.is_empty()), ("cart", true));
        target.read(&text(&[("host.name", "h"), (NAMESPACE, "shop")]), ESCAPED, &[]).unwrap();
        assert!(target.job.is_empty() && target.info.is_empty());
    }
}
