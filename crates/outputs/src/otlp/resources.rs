//! Maps labels to resource attributes. In OTLP, each program is a resource, so `job` and `instance`
//! become attributes of the resource instead of the data points.
//!
//! The label `job` becomes `service.name`, and the part before its first slash becomes
//! `service.namespace`. The label `instance` becomes `service.instance.id`. We use these attributes
//! because Prometheus converts them back to the same labels. All other labels stay in the data
//! points. The attributes in the settings are added to each resource, unless a label overrides one
//! of these three.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::Arc;

use quipu_segment::hash::SeededState;
use quipu_wire::remote::otlp::{Attribute, AttributeValue, MetricsWriter};

use crate::labels::ResourceAttribute;
use quipu_translate::otlp::{INSTANCE, NAME, NAMESPACE};

/// The attributes from the settings, which are part of every resource.
#[derive(Debug, Default)]
pub(super) struct BaseResource {
    attributes: Vec<ResourceAttribute>,
    /// The labels that a receiver derives from these attributes.
    job: Option<String>,
    instance: Option<String>,
}

/// The labels that identify the program of a series.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub(super) struct Program<'l> {
    job: Option<&'l str>,
    instance: Option<&'l str>,
}

/// The labels of a program, converted back from resource attributes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ResourceLabels {
    job: Option<String>,
    instance: Option<String>,
}

/// The resources of the current request.
#[derive(Debug)]
pub(super) struct Resources {
    base: Arc<BaseResource>,
    hash: SeededState,
    /// The index of each resource in the request, by the hash of its program.
    numbers: HashMap<u64, usize, SeededState>,
    /// The hash of the last program.
    last: Option<u64>,
}

impl BaseResource {
    pub(super) fn new(attributes: &[ResourceAttribute]) -> Self {
        let pairs = attributes.iter().map(|one| (&*one.key, AttributeValue::Text(&one.value)));
        let ResourceLabels { job, instance } = Self::default().read(&pairs.collect::<Vec<_>>());
        Self { attributes: attributes.to_vec(), job, instance }
    }

    /// Returns whether a receiver derives this label from the base resource. If so, a series with
    /// this label and a series without it would become the same series.
    pub(super) fn has(&self, (name, value): &Attribute<'_>) -> bool {
        let base = match *name {
            "job" => &self.job,
            "instance" => &self.instance,
            _ => return false,
        };
        matches!((base, value), (Some(base), AttributeValue::Text(value)) if base == value)
    }

    /// Returns all resource attributes of a program.
    fn attributes<'a>(&'a self, program: Program<'a>) -> Vec<Attribute<'a>> {
        let is_replaced = |key: &str| match key {
            NAME | NAMESPACE => program.job.is_some(),
            INSTANCE => program.instance.is_some(),
            _ => false,
        };
        let base = self.attributes.iter().filter(|one| !is_replaced(&one.key));
        let mut attributes: Vec<Attribute<'a>> =
            base.map(|one| (&*one.key, AttributeValue::Text(&one.value))).collect();
        let mut add = |key, value| attributes.push((key, AttributeValue::Text(value)));
        if let Some(job) = program.job {
            let parts = job.split_once('/');
            match parts.filter(|(namespace, name)| !namespace.is_empty() && !name.is_empty()) {
                Some((namespace, name)) => {
                    add(NAMESPACE, namespace);
                    add(NAME, name);
                }
                None => add(NAME, job),
            }
        }
        if let Some(instance) = program.instance {
            add(INSTANCE, instance);
        }
        attributes
    }

    /// Converts the attributes of a resource back to labels.
    pub(super) fn read(&self, resource: &[Attribute<'_>]) -> ResourceLabels {
        let get = |wanted: &str| {
            let mut values = resource.iter().filter(|(key, _)| *key == wanted);
            values.find_map(|(_, value)| match value {
                AttributeValue::Text(text) => Some(*text),
                _ => None,
            })
        };
        let job = get(NAME).map(|name| match get(NAMESPACE) {
            Some(namespace) => format!("{namespace}/{name}"),
            None => name.to_owned(),
        });
        let instance = get(INSTANCE).map(str::to_owned);
        let job = job.filter(|job| Some(job) != self.job.as_ref());
        let instance = instance.filter(|instance| Some(instance) != self.instance.as_ref());
        ResourceLabels { job, instance }
    }
}

impl<'l> Program<'l> {
    /// Splits off the labels that identify the program. Also returns the other labels, if any label
    /// was split off.
    pub(super) fn split_labels(labels: &[Attribute<'l>]) -> (Self, Option<Vec<Attribute<'l>>>) {
        let mut program = Self::default();
        for label in labels {
            match *label {
                (_, AttributeValue::Text("")) => {}
                ("job", AttributeValue::Text(job)) => program.job = Some(job),
                ("instance", AttributeValue::Text(instance)) => program.instance = Some(instance),
                _ => {}
            }
        }
        if program == Self::default() {
            return (program, None);
        }
        let is_taken = |(name, value): &Attribute<'_>| match *name {
            "job" | "instance" => *value != AttributeValue::Text(""),
            _ => false,
        };
        let others = labels.iter().filter(|label| !is_taken(label)).copied();
        (program, Some(others.collect()))
    }
}

impl ResourceLabels {
    /// Returns the labels of a point together with the labels of its program, sorted by name.
    /// `None` if there are no labels to add.
    pub(super) fn with<'a>(&'a self, labels: &[Attribute<'a>]) -> Option<Vec<Attribute<'a>>> {
        if *self == Self::default() {
            return None;
        }
        let named = [("job", &self.job), ("instance", &self.instance)].into_iter();
        let named =
            named.filter_map(|(name, value)| Some((name, AttributeValue::Text(value.as_ref()?))));
        let mut all: Vec<_> = labels.iter().copied().chain(named).collect();
        all.sort_by_key(|(name, _)| *name);
        Some(all)
    }
}

impl Resources {
    pub(super) fn new(base: Arc<BaseResource>, hash: &SeededState) -> Self {
        let numbers = HashMap::with_hasher(hash.clone());
        Self { base, hash: hash.clone(), numbers, last: None }
    }

    pub(super) fn base(&self) -> &Arc<BaseResource> {
        &self.base
    }

    /// Begins the points of a program, in the resource of this program.
    pub(super) fn enter(&mut self, writer: &mut MetricsWriter, program: Program<'_>) {
        let id = self.hash.hash_one(program);
        if self.last.replace(id) == Some(id) {
            return;
        }
        match self.numbers.get(&id) {
            Some(number) => writer.resume_resource(*number),
            None => {
                let number = writer.set_resource(&self.base.attributes(program));
                self.numbers.insert(id, number);
            }
        }
    }

    /// Ends the request. The last resource becomes the first one of the next request.
    pub(super) fn finished(&mut self) {
        self.numbers.clear();
        self.numbers.extend(self.last.map(|id| (id, 0)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base(pairs: &[&str]) -> BaseResource {
        let pairs: Vec<ResourceAttribute> = pairs.iter().map(|one| one.parse().unwrap()).collect();
        BaseResource::new(&pairs)
    }

    fn labels(text: &str) -> Vec<Attribute<'_>> {
        let pairs = text.split_whitespace().map(|pair| pair.split_once('=').unwrap());
        pairs.map(|(name, value)| (name, AttributeValue::Text(value))).collect()
    }

    fn shown(attributes: &[Attribute<'_>]) -> String {
        let pairs = attributes.iter().map(|(key, value)| match value {
            AttributeValue::Text(text) => format!("{key}={text}"),
            other => panic!("{other:?}"),
        });
        pairs.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn labels_that_name_a_program_become_attributes_and_labels_again() {
        let all =
            base(&["service.namespace=n", "service.name=s", "a.b=c", "service.instance.id=i"]);
        let some = base(&["a.b=c"]);
        let none = base(&[]);
        for (base, series, resource, rest) in [
            (&none, "a=1 b=2", "", "a=1 b=2"),
            (
                &none,
                "a=1 instance=h:9 job=app z=2",
                "service.name=app service.instance.id=h:9",
                "a=1 z=2",
            ),
            (&none, "job=shop/cart", "service.namespace=shop service.name=cart", ""),
            (&none, "job=a/b/c", "service.namespace=a service.name=b/c", ""),
            (&none, "job=/b", "service.name=/b", ""),
            (&none, "job=a/", "service.name=a/", ""),
            // An empty value does not count as a label.
            (&none, "instance=i job=", "service.instance.id=i", "job="),
            (&some, "a=1", "a.b=c", "a=1"),
            (&some, "job=app", "a.b=c service.name=app", ""),
            (&all, "a=1", "service.namespace=n service.name=s a.b=c service.instance.id=i", "a=1"),
            (&all, "job=app", "a.b=c service.instance.id=i service.name=app", ""),
            (
                &all,
                "instance=j",
                "service.namespace=n service.name=s a.b=c service.instance.id=j",
                "",
            ),
        ] {
            let all = labels(series);
            let (program, others) = Program::split_labels(&all);
            let attributes = base.attributes(program);
            assert_eq!(shown(&attributes), resource, "{series}");
            let others = others.unwrap_or_else(|| all.clone());
            assert_eq!(shown(&others), rest, "{series}");
            let read = base.read(&attributes);
            assert_eq!(shown(&read.with(&others).unwrap_or(others)), series);
        }
    }

    #[test]
    fn a_label_of_the_base_resource_does_not_differ() {
        let base = base(&["service.namespace=n", "service.name=s", "service.instance.id=i"]);
        for (label, is_base) in [
            ("job=n/s", true),
            ("instance=i", true),
            ("job=s", false),
            ("instance=j", false),
            ("service.name=s", false),
        ] {
            assert_eq!(base.has(&labels(label)[0]), is_base, "{label}");
        }
        assert!(!BaseResource::default().has(&("job", AttributeValue::Text(""))));
    }

    #[test]
    fn a_program_is_in_a_request_once() {
        let hash = SeededState::default();
        let mut resources = Resources::new(Arc::default(), &hash);
        let mut writer = MetricsWriter::new();
        let (one, other) = (labels("job=one"), labels("job=other"));
        for labels in [&one, &other, &one, &one, &other] {
            resources.enter(&mut writer, Program::split_labels(labels).0);
        }
        assert_eq!(resources.numbers.len(), 2);
        writer.finish(&mut Vec::new());
        resources.finished();
        resources.enter(&mut writer, Program::split_labels(&other).0);
        resources.enter(&mut writer, Program::split_labels(&one).0);
        let mut numbers: Vec<usize> = resources.numbers.values().copied().collect();
        numbers.sort_unstable();
        assert_eq!(numbers, [0, 1]);
    }
}
