//! A parse cache for StatsD lines. A program sends the same metrics again and again, and only the
//! values differ. The cache therefore stores the result of converting one line, and reuses it for
//! all lines that differ only in values.
//!
//! The common part of such lines is called their *form*. Two lines share a form if they use the
//! same name, the same class of type, and tags with the same names in the same order. Everything
//! that depends on these is then equal: the family, the scale of values, and the source of each
//! label's value. For a line with a cached form, we skip the mapping, the sorting and the checks of
//! labels, and find the series by the values of the tags.
//!
//! A form contains no series (see [`FamilyHandle`]), so it stays valid when series are created or
//! removed. If the series of a line does not exist, for example because it is new, the line is
//! handled without the cache. Each listener has a separate cache. A form is cached after a line of
//! this form was accepted. The size of the cache is bounded: see [`MissCounter`].

use std::collections::HashMap;
use std::ptr;

use quipu::intake::FamilyHandle;
use quipu_segment::hash::SeededState;
use quipu_wire::remote::statsd::StatsdSample;

use crate::listeners::MissCounter;
use crate::listeners::mapping::MetricClass;

/// The cached forms of one listener.
#[derive(Default)]
pub(super) struct LineFormCache {
    misses: MissCounter,
    /// The forms by class and name.
    known: [HashMap<Box<str>, Vec<LineForm>, SeededState>; 3],
    /// The total number of forms.
    count: usize,
}

/// The result of converting one line, without its values.
///
/// We also tried a record for each series, found by all bytes of a line except its values. In a
/// prototype, this was faster with 1,000 series (0.20 us a line, compared with 0.33 us for the
/// family only), but no faster with 100,000. Such a record takes 280 bytes per series, and must
/// notice each change of the series.
pub(super) struct LineForm {
    /// The family of the series.
    pub(super) handle: FamilyHandle,
    /// The factor to multiply each value by.
    pub(super) scale: Option<f64>,
    /// The names of the tags, in the order of the line.
    tags: Box<[Box<str>]>,
    /// The source of each label's value, sorted by the names of the labels.
    labels: Box<[LabelSource]>,
}

/// The source of a label's value.
enum LabelSource {
    /// The value of the tag with this index.
    Tag(usize),
    /// A fixed value from the mapping.
    Text(Box<str>),
}

/// The values of the tags of a line, except tags without a name or a value.
#[derive(Default)]
pub(super) struct TagValues<'a> {
    values: [&'a str; MAX_TAGS],
    /// The number of tags without a name or a value.
    pub(super) faults: u64,
}

/// The maximum number of tags, and of labels, in a cached form.
const MAX_TAGS: usize = 16;
/// The maximum total length of a name and its tag names in a cached form, in bytes.
const MAX_NAMES: usize = 256;
/// The maximum number of forms in a cache.
const MAX_FORMS: usize = 8192;
/// The maximum number of forms with the same name.
const MAX_FORMS_OF_NAME: usize = 8;

impl LineFormCache {
    /// Returns the cached form of a line, if any, and writes the values of the line's tags to
    /// `values`.
    #[inline]
    pub(super) fn find<'f, 'a>(
        &'f self,
        sample: &StatsdSample<'a>,
        class: MetricClass,
        values: &mut TagValues<'a>,
    ) -> Option<&'f LineForm> {
        let forms = self.known[class as usize].get(name_of(sample)?)?;
        forms.iter().find(|form| form.matches(sample, values))
    }

    /// Returns whether to cache the form of a line that is not cached: its name and tags must be
    /// short enough, and there must be space. This costs no more than the lookup.
    pub(super) fn admits(&mut self, sample: &StatsdSample<'_>, class: MetricClass) -> bool {
        let Some(name) = name_of(sample) else { return false };
        let of_name = self.known[class as usize].get(name).map_or(0, Vec::len);
        if of_name >= MAX_FORMS_OF_NAME || self.count >= MAX_FORMS {
            if !self.misses.count_miss() {
                return false;
            }
            *self = Self::default();
        }
        let (mut count, mut bytes) = (0, 0);
        sample.tags().flatten().all(|(name, _)| {
            (count, bytes) = (count + 1, bytes + name.len());
            count <= MAX_TAGS && bytes <= MAX_NAMES
        })
    }

    /// Caches the form of a line that was accepted with these labels, sorted by name. Call this
    /// only after [`LineFormCache::admits`] returned true.
    #[cold]
    pub(super) fn add(
        &mut self,
        sample: &StatsdSample<'_>,
        class: MetricClass,
        labels: &[(&str, &str)],
        scale: Option<f64>,
        handle: FamilyHandle,
    ) {
        let Some(name) = name_of(sample) else { return };
        // We skip labels without a value, because the intake omits them.
        let labels = labels.iter().filter(|(_, value)| !value.is_empty());
        let labels: Box<[_]> = labels.map(|(_, value)| LabelSource::find(value, sample)).collect();
        let tags = sample.tags().flatten().map(|(name, _)| name.into()).collect();
        if labels.len() > MAX_TAGS {
            return;
        }
        self.count += 1;
        let forms = self.known[class as usize].entry(name.into()).or_default();
        forms.push(LineForm { handle, scale, tags, labels });
    }
}

/// Returns the name of a line, if it is short and contiguous in memory.
#[inline]
fn name_of<'a>(sample: &StatsdSample<'a>) -> Option<&'a str> {
    let name = sample.name;
    (name.tail.is_empty() && name.head.len() <= MAX_NAMES).then_some(name.head)
}

impl LineForm {
    /// Returns whether the tags of a line have the names of this form. Writes their values to
    /// `values`.
    #[inline]
    fn matches<'a>(&self, sample: &StatsdSample<'a>, values: &mut TagValues<'a>) -> bool {
        values.faults = 0;
        let mut wanted = self.tags.iter().zip(&mut values.values);
        for tag in sample.tags() {
            let Ok((name, value)) = tag else {
                values.faults += 1;
                continue;
            };
            match wanted.next() {
                Some((wanted, place)) if **wanted == *name => *place = value,
                _ => return false,
            }
        }
        wanted.next().is_none()
    }

    /// Returns the values of the labels of a line with this form, sorted by label name. `room` is a
    /// reused buffer.
    #[inline]
    pub(super) fn labels<'r, 'a>(
        &'a self,
        tags: &TagValues<'a>,
        room: &'r mut [&'a str; MAX_TAGS],
    ) -> &'r [&'a str] {
        for (value, source) in room.iter_mut().zip(&self.labels) {
            *value = match source {
                LabelSource::Tag(at) => tags.values.get(*at).copied().unwrap_or_default(),
                LabelSource::Text(text) => text,
            };
        }
        room.get(..self.labels.len()).unwrap_or_default()
    }
}

impl LabelSource {
    /// Returns the source of a label's value: the tag whose memory it shares, or else the mapping.
    fn find(value: &str, sample: &StatsdSample<'_>) -> Self {
        let mut tags = sample.tags().flatten();
        match tags.position(|(_, tag)| ptr::eq(tag, value)) {
            Some(at) => Self::Tag(at),
            None => Self::Text(value.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use quipu::Registry;
    use quipu::intake::{InputValue, Intake, Limits, Metric, Mode};
    use quipu_wire::remote::statsd::{StatsdLine, StatsdLines, Tags};

    use super::*;

    fn sample(line: &str) -> StatsdSample<'_> {
        match StatsdLines::new(line.as_bytes(), Tags::ALL).next() {
            Some(Ok(StatsdLine::Sample(sample))) => sample,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn the_number_and_the_length_of_forms_are_bounded() {
        let registry = Registry::new();
        let mut intake = Intake::new(&registry, Limits::default()).unwrap();
        let (metric, increment) = (Metric::new("m"), InputValue::Counter(1.0));
        intake.take(metric, &[], &increment, Mode::Add, None).unwrap();
        let handle = intake.handle(metric, &[], &increment, Mode::Add).unwrap();
        let mut forms = LineFormCache::default();
        let find = |forms: &LineFormCache, line: &str| {
            forms.find(&sample(line), MetricClass::Counter, &mut TagValues::default()).is_some()
        };
        let take = |forms: &mut LineFormCache, line: &str| {
            let is_known = find(forms, line);
            if !is_known && forms.admits(&sample(line), MetricClass::Counter) {
                forms.add(&sample(line), MetricClass::Counter, &[], None, handle.clone());
                assert!(find(forms, line));
            }
            is_known
        };
        let check = |forms: &LineFormCache| {
            let lengths = || forms.known.iter().flat_map(HashMap::values).map(Vec::len);
            assert!(forms.count <= MAX_FORMS && forms.count == lengths().sum::<usize>());
            assert!(lengths().max() <= Some(MAX_FORMS_OF_NAME));
        };
        // One name with too many forms does not displace the forms of other names.
        assert!(!take(&mut forms, "a:1|c"));
        for round in 0..3 {
            let lines = (0..=MAX_FORMS_OF_NAME).map(|n| format!("often:1|c|#t{n}:v"));
            let known = lines.filter(|line| take(&mut forms, line)).count();
            assert_eq!(known, if round == 0 { 0 } else { MAX_FORMS_OF_NAME });
        }
        assert!(take(&mut forms, "a:1|c"));
        // More forms than the cache can hold, repeated in the same order.
        for round in 0..3 {
            let lines = (0..MAX_FORMS + MAX_FORMS / 4).map(|n| format!("n{n}:1|c"));
            let known = lines.filter(|line| take(&mut forms, line)).count();
            assert_eq!(known, if round == 0 { 0 } else { MAX_FORMS - MAX_FORMS_OF_NAME - 1 });
            check(&forms);
        }
        // Other forms replace the first ones, which do not return.
        let others = (0..).map(|n| format!("m{}:1|c", n % MAX_FORMS));
        let looks = others.take_while(|line| !take(&mut forms, line)).count();
        assert!(looks < 20 * MAX_FORMS, "{looks}");
        check(&forms);
        let many: String = (0..=MAX_TAGS).map(|tag| format!("t{tag}:v,")).collect();
        let long = "x".repeat(MAX_NAMES + 1);
        for line in [format!("a:1|c|#{many}"), format!("{long}:1|c"), format!("a:1|c|#{long}:v")] {
            assert!(!forms.admits(&sample(&line), MetricClass::Counter), "{line}");
        }
    }
}
