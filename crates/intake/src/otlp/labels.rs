//! Converts OTLP attributes to the labels of a series, by Prometheus' rules. The attributes belong
//! to a point, its resource or its scope.
//!
//! `service.name` and `service.namespace` become `job`, and `service.instance.id` becomes
//! `instance`. The other attributes of a resource become labels of `target_info`, unless the
//! settings promote them to labels of every series. The scope becomes `otel_scope_name`,
//! `otel_scope_version`, `otel_scope_schema_url`, and a label `otel_scope_KEY` for each of its
//! attributes.

use std::borrow::Cow;
use std::ops::Range;

use quipu::intake::{Limits, Rejection};
use quipu_wire::remote::otlp::{Attribute, AttributeValue, Instrumentation};

use super::points::PointError;
use super::values;
use quipu_translate::otlp::{INSTANCE, NAME, NAMESPACE, Translation};

/// A list of labels in insertion order. One buffer holds all strings, because the list is reused
/// for many points.
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

    /// Sets a label, and replaces an earlier value.
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

    /// Sets a label. An earlier value is kept in front, separated by a semicolon.
    ///
    /// # Errors
    /// Fails if both values together are too long.
    fn join(&mut self, name: &str, value: &str, limits: &Limits) -> Result<(), Rejection> {
        let Some(index) = self.find(name).filter(|index| !self.pairs[*index].1.is_empty()) else {
            self.set(name, value);
            return Ok(());
        };
        let before = self.pairs[index].1.clone();
        if before.len() + 1 + value.len() > limits.value_bytes {
            return Err(Rejection::LabelValue);
        }
        let start = self.texts.len();
        self.texts.extend_from_within(before);
        self.texts.push(';');
        self.texts.push_str(value);
        self.pairs[index].1 = start..self.texts.len();
        Ok(())
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

    /// Adds attributes. If several keys become the same label name, their values are joined in the
    /// order of the keys.
    ///
    /// # Errors
    /// Fails if a key is empty after translation, or if a limit is exceeded.
    pub(super) fn add(
        &mut self,
        rules: LabelRules<'_>,
        attributes: &[Attribute<'_>],
        is_wanted: impl Fn(&str) -> bool,
    ) -> Result<(), PointError> {
        let first = (self.pairs.len(), self.texts.len());
        let mut collided = false;
        let wanted = attributes.iter().filter(|(key, _)| *key != "__name__" && is_wanted(key));
        if wanted.clone().count() > rules.limits.labels {
            return Err(PointError::Intake(Rejection::Labels));
        }
        for attribute in wanted.clone() {
            let (name, value) = rules.translate(*attribute)?;
            collided |= self.find(&name).is_some();
            self.join(&name, &value, rules.limits)?;
        }
        if collided {
            self.pairs.truncate(first.0);
            self.texts.truncate(first.1);
            let mut sorted: Vec<_> = wanted.collect();
            sorted.sort_by_key(|(key, _)| *key);
            for attribute in sorted {
                let (name, value) = rules.translate(*attribute)?;
                self.join(&name, &value, rules.limits)?;
            }
        }
        Ok(())
    }
}

/// The translation of attributes to labels, and the limits. Check limits before copying a label,
/// because each label of a resource is copied for each of its points.
#[derive(Debug, Clone, Copy)]
pub(super) struct LabelRules<'l> {
    pub(super) translation: Translation,
    pub(super) limits: &'l Limits,
}

impl LabelRules<'_> {
    /// Returns the label for an attribute.
    fn translate<'a>(
        self,
        (key, value): Attribute<'a>,
    ) -> Result<(Cow<'a, str>, Cow<'a, str>), PointError> {
        let name = self.translation.label(key).ok_or_else(|| PointError::key(key))?;
        if name.len() > self.limits.name_bytes {
            return Err(PointError::Intake(Rejection::LabelName));
        }
        Ok((name, self.text(&value)?))
    }

    fn text<'a>(self, value: &AttributeValue<'a>) -> Result<Cow<'a, str>, Rejection> {
        values::text(value, self.limits.value_bytes)
    }
}

/// The labels that all points of a resource share.
#[derive(Debug, Default)]
pub(super) struct Target {
    pub(super) job: String,
    pub(super) instance: String,
    /// The promoted attributes, which become labels of each series.
    pub(super) promoted: Labels,
    /// The labels of `target_info`; empty if the resource needs no such series.
    pub(super) info: Labels,
}

impl Target {
    /// Replaces the target with the attributes of a resource.
    ///
    /// # Errors
    /// Fails if a key is empty after translation, or if a limit is exceeded. If only the labels of
    /// `target_info` exceed the limits, this series is omitted instead.
    pub(super) fn read(
        &mut self,
        attributes: &[Attribute<'_>],
        rules: LabelRules<'_>,
        promote: &[String],
    ) -> Result<(), PointError> {
        self.job.clear();
        self.instance.clear();
        self.promoted.clear();
        self.info.clear();
        self.identify(attributes, rules)?;
        for attribute in attributes.iter().filter(|(key, _)| promote.iter().any(|p| p == key)) {
            let (name, value) = rules.translate(*attribute)?;
            self.promoted.set(&name, &value);
        }
        if self.job.is_empty() && self.instance.is_empty() {
            return Ok(());
        }
        let is_wanted = |key: &str| ![NAME, NAMESPACE, INSTANCE].contains(&key);
        match self.info.add(rules, attributes, is_wanted) {
            Err(PointError::Intake(_)) => self.info.clear(),
            other => other?,
        }
        if !self.info.is_empty() {
            self.identify_in_info();
        }
        Ok(())
    }

    /// Sets the job and the instance.
    fn identify(
        &mut self,
        attributes: &[Attribute<'_>],
        rules: LabelRules<'_>,
    ) -> Result<(), Rejection> {
        let get =
            |wanted| attributes.iter().find(|(key, _)| *key == wanted).map(|(_, value)| value);
        let namespace = get(NAMESPACE).map(|value| rules.text(value)).transpose()?;
        let instance = get(INSTANCE).map(|value| rules.text(value)).transpose()?;
        if let Some(name) = get(NAME) {
            let name = rules.text(name)?;
            let job = namespace.map_or(name.clone(), |space| format!("{space}/{name}").into());
            if job.len() > rules.limits.value_bytes {
                return Err(Rejection::LabelValue);
            }
            self.job.push_str(&job);
        }
        self.instance.push_str(instance.as_deref().unwrap_or(""));
        Ok(())
    }

    fn identify_in_info(&mut self) {
        for (name, value) in [("job", &self.job), ("instance", &self.instance)] {
            if !value.is_empty() {
                self.info.set(name, value);
            }
        }
    }

    /// Adds the job, the instance and the promoted attributes to the labels of a series.
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

/// Sets the labels of a scope. A scope without a name produces no labels.
///
/// # Errors
/// Fails if a key is empty after translation, or if a limit is exceeded.
pub(super) fn set_scope_labels(
    labels: &mut Labels,
    scope: &Instrumentation<'_, '_>,
    rules: LabelRules<'_>,
) -> Result<(), PointError> {
    labels.clear();
    if scope.name.is_empty() {
        return Ok(());
    }
    if scope.attributes.len() > rules.limits.labels {
        return Err(PointError::Intake(Rejection::Labels));
    }
    for (key, value) in scope.attributes {
        let key = format!("otel_scope_{key}");
        let (name, value) = rules.translate((&key, *value))?;
        labels.set(&name, &value);
    }
    for (name, value) in [
        ("otel_scope_name", scope.name),
        ("otel_scope_version", scope.version),
        ("otel_scope_schema_url", scope.schema_url),
    ] {
        labels.set(name, &rules.text(&AttributeValue::Text(value))?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use quipu_wire::remote;

    use super::*;

    const LIMITS: Limits = Limits {
        series: 9,
        series_per_source: 9,
        families_per_source: 9,
        families: 9,
        labels: 5,
        name_bytes: 40,
        value_bytes: 10,
        reserved: None,
        bytes_for_series: u64::MAX,
    };
    const ESCAPED: LabelRules<'_> =
        LabelRules { translation: Translation::UnderscoreEscapingWithSuffixes, limits: &LIMITS };

    fn shown(labels: &Labels) -> String {
        let pairs: Vec<_> = labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        pairs.join(" ")
    }

    fn text<'a>(pairs: &[(&'a str, &'a str)]) -> Vec<Attribute<'a>> {
        pairs.iter().map(|(key, value)| (*key, AttributeValue::Text(value))).collect()
    }

    #[test]
    fn attributes_that_collide_are_joined_in_the_order_of_their_keys() {
        let mut labels = Labels::default();
        let attributes =
            text(&[("a_b", "3"), ("x", "1"), ("a.b", "2"), ("a-b", ""), ("__name__", "n")]);
        labels.add(ESCAPED, &attributes, |_| true).unwrap();
        assert_eq!(shown(&labels), "a_b=2;3 x=1");
        labels.clear();
        let plain = LabelRules { translation: Translation::NoTranslation, ..ESCAPED };
        labels.add(plain, &attributes, |_| true).unwrap();
        assert_eq!(shown(&labels), "a_b=3 x=1 a.b=2 a-b=");
        assert_eq!(labels.add(ESCAPED, &text(&[("..", "")]), |_| true), Err(PointError::key("..")));
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

        // Without a service or other attributes, there is no information for `target_info`.
        target.read(&text(&[(NAME, "cart")]), ESCAPED, &[]).unwrap();
        assert_eq!((target.job.as_str(), target.info.is_empty()), ("cart", true));
        target.read(&text(&[("host.name", "h"), (NAMESPACE, "shop")]), ESCAPED, &[]).unwrap();
        assert!(target.job.is_empty() && target.info.is_empty());
    }

    #[test]
    fn limits_hold_before_labels_are_copied() {
        let refused = |refused| Err(PointError::Intake(refused));
        let mut labels = Labels::default();
        let mut add = |pairs: &[(&'static str, &'static str)]| {
            labels.clear();
            let added = labels.add(ESCAPED, &text(pairs), |key| key != "no");
            // The strings from before the join are freed.
            assert!(labels.texts.len() < 100);
            added
        };
        assert_eq!(add(&[("a", "1"); 6]), refused(Rejection::Labels));
        assert_eq!(add(&[("a", "1"), ("a", "2"), ("a", "3"), ("a", "4"), ("no", "")]), Ok(()));
        assert_eq!(add(&[("a", "1234"), ("a", "12345")]), Ok(()));
        assert_eq!(add(&[("a", "1234"), ("a", "123456")]), refused(Rejection::LabelValue));
        assert_eq!(add(&[("a", "12345678901")]), refused(Rejection::LabelValue));
        let long = "n".repeat(41).leak();
        assert_eq!(add(&[(long, "1")]), refused(Rejection::LabelName));

        let mut set_scope_labels = |scope: &str| {
            let json = format!(
                r#"{{"resourceMetrics": [{{"scopeMetrics": [{{"scope": {scope}, "metrics": [{{
                    "name": "g", "gauge": {{"dataPoints": [{{}}]}}}}]}}]}}]}}"#
            );
            let bytes = remote::otlp::metrics_request_from_json(json.as_bytes()).unwrap();
            let mut read = Ok(());
            let each = |point: &remote::otlp::Point<'_, '_>| {
                read = super::set_scope_labels(&mut labels, &point.scope, ESCAPED);
            };
            remote::otlp::read_metrics_request(&bytes, each).unwrap();
            read
        };
        let six = [r#"{"key": "a"}"#; 6].join(",");
        let scope = format!(r#"{{"name": "s", "attributes": [{six}]}}"#);
        assert_eq!(set_scope_labels(&scope), refused(Rejection::Labels));
        let long = r#"{"name": "s", "version": "12345678901"}"#;
        assert_eq!(set_scope_labels(long), refused(Rejection::LabelValue));

        let mut target = Target::default();
        let long_job = text(&[(NAMESPACE, "12345"), (NAME, "12345")]);
        assert_eq!(target.read(&long_job, ESCAPED, &[]), refused(Rejection::LabelValue));
        let mut many = text(&[("a", "1"); 6]);
        many.extend(text(&[(NAME, "cart")]));
        assert_eq!(target.read(&many, ESCAPED, &[]), Ok(()));
        assert_eq!((target.job.as_str(), target.info.is_empty()), ("cart", true));
    }
}
