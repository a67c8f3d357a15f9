//! Forms of lines: what was found out about one line, for all lines that are like it.
//!
//! Lines have the same form if they have the same name, the same class of type, and tags of the same
//! names in the same order; their values and those of their tags differ. All that the name, a mapping
//! and the names of tags decide is the same for them: the family, the scale of values, and from where
//! each label gets its value. So a line of a known form is neither mapped, nor are its labels sorted
//! and their names checked; its series is found by the values of its tags alone.
//!
//! A form knows nothing of series (see [`Prepared`]): it stays right whatever happens to them. A line
//! whose series is not there goes the long way. The table is bounded ([`Recent`]), and belongs to one
//! listener; a form is kept once a line of it was taken.

use std::ptr;

use quipu::intake::Prepared;
use quipu_wire::remote::statsd::Sample;

use super::mapping::Class;
use super::recent::Recent;

/// The forms of the lines of one listener.
#[derive(Default)]
pub(super) struct Forms {
    known: Recent<Form>,
    /// What identifies the form of the current line: the class, the name, and the names of the tags,
    /// with line feeds between them, which none of them has.
    key: String,
}

/// What lines of one form have in common.
///
/// In a prototype, a record for each series, found by all bytes of a line but its values, was faster
/// still with 1,000 series (0.20 us a line, 0.33 with the family alone), and no faster with 100,000. It
/// takes 280 bytes a series, and has to notice each change of what became of that series.
pub(super) struct Form {
    /// The family of their series.
    pub(super) prepared: Prepared,
    /// What their values are multiplied by.
    pub(super) scale: Option<f64>,
    /// From where each label gets its value, in the order of the labels' names.
    labels: Box<[Source]>,
}

/// From where a label gets its value.
enum Source {
    /// From this tag of the line.
    Tag(usize),
    /// From the mapping.
    Text(Box<str>),
}

/// The tags of a line that have a name and a value.
pub(super) struct TagValues<'a> {
    values: [&'a str; MAX_TAGS],
    count: usize,
    /// The number of other tags.
    pub(super) faults: u64,
}

/// The values of the labels of a line, in the order of the labels' names.
pub(super) struct LabelValues<'a> {
    values: [&'a str; MAX_TAGS],
    count: usize,
}

/// The most tags, and labels, of a line whose form is kept.
const MAX_TAGS: usize = 16;
/// The most bytes of a name and the names of tags that are kept.
const MAX_KEY: usize = 512;

impl Forms {
    /// Begins with a line. `None` if it is too long for its form to be kept.
    #[inline]
    pub(super) fn begin<'a>(&mut self, sample: &Sample<'a>, class: Class) -> Option<TagValues<'a>> {
        let key = &mut self.key;
        key.clear();
        key.push(char::from(b'0' + class as u8));
        key.push_str(sample.name.head);
        key.push_str(sample.name.tail);
        let mut tags = TagValues { values: [""; MAX_TAGS], count: 0, faults: 0 };
        for tag in sample.tags() {
            match tag {
                Ok((name, value)) => {
                    *tags.values.get_mut(tags.count)? = value;
                    tags.count += 1;
                    key.push('\n');
                    key.push_str(name);
                }
                Err(_) => tags.faults += 1,
            }
        }
        (key.len() <= MAX_KEY).then_some(tags)
    }

    /// The form of the line that was begun with, if it is known.
    #[inline]
    pub(super) fn find(&mut self) -> Option<&Form> {
        self.known.get(&self.key)
    }

    /// Keeps the form of a line that was taken with these labels, which are in the order of their
    /// names.
    #[cold]
    pub(super) fn add(
        &mut self,
        sample: &Sample<'_>,
        class: Class,
        labels: &[(&str, &str)],
        scale: Option<f64>,
        prepared: Prepared,
    ) {
        let Some(tags) = self.begin(sample, class) else { return };
        // The intake leaves labels without a value out.
        let labels = labels.iter().filter(|(_, value)| !value.is_empty());
        let labels: Box<[Source]> = labels.map(|(_, value)| tags.source_of(value)).collect();
        if labels.len() <= MAX_TAGS && self.find().is_none() {
            let key = self.key.as_str().into();
            self.known.insert(key, Form { prepared, scale, labels });
        }
    }
}

impl Form {
    /// The values of the labels of a line of this form with these tags.
    #[inline]
    pub(super) fn labels<'a>(&'a self, tags: &TagValues<'a>) -> LabelValues<'a> {
        let mut labels = LabelValues { values: [""; MAX_TAGS], count: self.labels.len() };
        for (value, source) in labels.values.iter_mut().zip(&self.labels) {
            *value = match source {
                Source::Tag(at) => tags.values.get(*at).copied().unwrap_or_default(),
                Source::Text(text) => text,
            };
        }
        labels
    }
}

impl LabelValues<'_> {
    #[inline]
    pub(super) fn as_slice(&self) -> &[&str] {
        self.values.get(..self.count).unwrap_or_default()
    }
}

impl TagValues<'_> {
    /// From where a value comes that a label of the line got: from the tag where it lies in the line, or
    /// else from the mapping.
    fn source_of(&self, value: &str) -> Source {
        let is_it = |tag: &&str| ptr::eq(*tag, value);
        match self.values.iter().take(self.count).position(is_it) {
            Some(at) => Source::Tag(at),
            None => Source::Text(value.into()),
        }
    }
}
