//! Labels: typed sets of names and values, which tell the series of a family apart.
//!
//! ```
//! use quipu::{CounterFamily, Description, LabelGroup, LabelValue, Registry};
//!
//! #[derive(LabelValue)]
//! enum Method {
//!     Get,
//!     Post,
//! }
//!
//! #[derive(LabelGroup)]
//! struct Request<'a> {
//!     method: Method,
//!     user: &'a str,
//! }
//!
//! let registry = Registry::new();
//! let requests: CounterFamily<Request> =
//!     registry.register(Description::new("requests", "Requests by user."))?;
//! requests.inc(&Request { method: Method::Get, user: "ada" });
//! requests.inc(&Request { method: Method::Post, user: "bert" });
//! assert!(registry.text().contains("requests_total{method=\"get\",user=\"ada\"} 1"));
//! # Ok::<(), quipu::Error>(())
//! ```
//!
//! What is no group of the family's, or has a label twice, does not compile:
//!
//! ```compile_fail,E0271
//! # use quipu::{CounterFamily, Description, LabelGroup, Registry};
//! #[derive(LabelGroup)]
//! struct Wanted { kind: bool }
//! #[derive(LabelGroup)]
//! struct Given { kind: bool }
//! let registry = Registry::new();
//! let family: CounterFamily<Wanted> = registry.register(Description::new("c", "")).unwrap();
//! family.inc(&Given { kind: true });
//! ```
//!
//! ```compile_fail,E0080
//! # use quipu::LabelGroup;
//! #[derive(LabelGroup)]
//! struct Inner { kind: bool }
//! #[derive(LabelGroup)]
//! struct Outer {
//!     kind: bool,
//!     #[label(flatten)]
//!     inner: Inner,
//! }
//! let labels = <Outer as LabelGroup>::LABELS;
//! ```
//!
//! Labels whose values are known at compile time (enums, `bool`) are of *fixed cardinality*: their
//! values fold into one number. Any other is *dynamic*: its text is the series' own. A label of
//! texts whose values are known when the family is registered becomes fixed by
//! [`Description::values`](crate::Description::values).

mod concatenated;
mod value;

#[doc(hidden)]
pub use concatenated::Concatenated;

use quipu_segment::series::KeyWriter;

use crate::snapshot::Label;

/// The value of one label.
pub trait LabelValue {
    /// The values by index, where the type has finitely many that are known at compile time.
    const VALUES: Option<&'static [&'static str]> = None;

    /// Writes itself: [`KeyWriter::index`] for a type with [`LabelValue::VALUES`],
    /// [`KeyWriter::text`] for any other. It writes exactly one value.
    fn encode(&self, key: &mut KeyWriter<'_>);

    /// The index of its value, for a type with [`LabelValue::VALUES`].
    fn index(&self) -> Option<u32> {
        None
    }
}

/// A typed set of labels. Derive it for a struct whose fields are the labels.
pub trait LabelGroup {
    /// The same group with all its lifetimes `'static`, so that a family takes groups that borrow
    /// for any time.
    type Identity;

    /// The labels in order. An array of texts has none here: its names come with
    /// [`Description::labels`](crate::Description::labels).
    const LABELS: &'static [Label<'static>];

    /// How many values [`LabelGroup::encode`] writes.
    const COUNT: usize = Self::LABELS.len();

    /// Writes all values in the order of the labels.
    fn encode(&self, key: &mut KeyWriter<'_>);
}

/// No labels.
impl LabelGroup for () {
    type Identity = ();
    const LABELS: &'static [Label<'static>] = &[];

    #[inline]
    fn encode(&self, _: &mut KeyWriter<'_>) {}
}

/// Labels whose names are known at run time only: values in the order of the names.
impl<S: AsRef<str>, const N: usize> LabelGroup for [S; N] {
    type Identity = [&'static str; N];
    const LABELS: &'static [Label<'static>] = &[];
    const COUNT: usize = N;

    #[inline]
    fn encode(&self, key: &mut KeyWriter<'_>) {
        self.iter().for_each(|text| key.text(text.as_ref()));
    }
}

/// The [`LabelGroup::COUNT`] of a group that has as many values as the description has labels.
pub const ANY: usize = usize::MAX;

/// Labels whose names and number are known at run time only: values in the order of the names.
/// Whoever gives more or fewer counts in the family's overflow series.
///
/// ```
/// use quipu::label::Values;
/// use quipu::{CounterFamily, Description, Registry};
///
/// let registry = Registry::new();
/// let names = vec!["code".to_owned(), "path".to_owned()];
/// let requests: CounterFamily<Values> =
///     registry.register(Description::new("requests", "Requests.").labels(names))?;
/// requests.inc(&Values(&["200", "/x"]));
/// assert!(registry.text().contains("requests_total{code=\"200\",path=\"/x\"} 1"));
/// # Ok::<(), quipu::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Values<'a>(pub &'a [&'a str]);

impl LabelGroup for Values<'_> {
    type Identity = Values<'static>;
    const LABELS: &'static [Label<'static>] = &[];
    const COUNT: usize = ANY;

    #[inline]
    fn encode(&self, key: &mut KeyWriter<'_>) {
        self.0.iter().for_each(|text| key.text(text));
    }
}

/// As [`Values`], for whoever has no slice of them: a function that writes one text for each label.
/// It may be called more than once, and writes the same each time.
#[derive(Debug, Clone, Copy)]
pub struct Written<F>(pub F);

impl<F: Fn(&mut KeyWriter<'_>)> LabelGroup for Written<F> {
    type Identity = Values<'static>;
    const LABELS: &'static [Label<'static>] = &[];
    const COUNT: usize = ANY;

    #[inline]
    fn encode(&self, key: &mut KeyWriter<'_>) {
        (self.0)(key);
    }
}

impl<G: LabelGroup> LabelGroup for &G {
    type Identity = G::Identity;
    const LABELS: &'static [Label<'static>] = G::LABELS;
    const COUNT: usize = G::COUNT;

    #[inline]
    fn encode(&self, key: &mut KeyWriter<'_>) {
        (**self).encode(key);
    }
}
