//! Labels: typed sets of names and values that distinguish the series of a family.
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
//! let requests: CounterFamily<Request<'static>> =
//!     registry.register(Description::new("requests", "Requests by user."))?;
//! requests.inc(&Request { method: Method::Get, user: "ada" });
//! requests.inc(&Request { method: Method::Post, user: "bert" });
//! assert!(registry.text().contains("requests_total{method=\"get\",user=\"ada\"} 1"));
//! # Ok::<(), quipu::Error>(())
//! ```
//!
//! A group of another type than the family's, or with a duplicate label, does not compile:
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
//! If you know the values of a label at compile time (enums, `bool`), it is of *fixed cardinality*:
//! its values fold into one number. All others are *dynamic*: each series stores their strings. A
//! string label becomes fixed if you pass its values to
//! [`Description::values`](crate::Description::values) at registration. A response shows the fixed
//! labels of a series first, then the dynamic ones, each in the order of the group.

pub(crate) mod concatenated;
mod indices;
mod value;
mod writer;

pub(crate) use indices::Indices;
pub use value::DisplayValue;
pub(crate) use value::encode_text;
pub use writer::LabelWriter;

use quipu_segment::series::CachedSeries;

use crate::snapshot::Label;

/// The value of one label. Derive it for an enum or for a struct around one value, or implement it
/// by hand:
///
/// ```
/// use quipu::label::LabelWriter;
/// use quipu::{CounterFamily, Description, LabelGroup, LabelValue, Registry};
///
/// /// The class of a status code: one of three values.
/// struct Class(u16);
///
/// impl Class {
///     fn number(&self) -> u32 {
///         match self.0 {
///             200..400 => 0,
///             400..500 => 1,
///             _ => 2,
///         }
///     }
/// }
///
/// impl LabelValue for Class {
///     const VALUES: Option<&'static [&'static str]> = Some(&["ok", "client_error", "error"]);
///
///     fn encode(&self, writer: &mut LabelWriter<'_>) {
///         writer.index(self.number());
///     }
///
///     fn index(&self) -> Option<u32> {
///         Some(self.number())
///     }
/// }
///
/// /// A version: any text.
/// struct Version {
///     major: u32,
///     minor: u32,
/// }
///
/// impl LabelValue for Version {
///     fn encode(&self, writer: &mut LabelWriter<'_>) {
///         writer.display(format_args!("{}.{}", self.major, self.minor));
///     }
/// }
///
/// #[derive(LabelGroup)]
/// struct Response {
///     class: Class,
///     version: Version,
/// }
///
/// let registry = Registry::new();
/// let responses: CounterFamily<Response> =
///     registry.register(Description::new("responses", "Responses by class."))?;
/// responses.inc(&Response { class: Class(404), version: Version { major: 2, minor: 1 } });
/// let labels = [("class", "client_error"), ("version", "2.1")];
/// assert_eq!(registry.value("responses_total", &labels), Some(1.0));
/// # Ok::<(), quipu::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a label value",
    note = "for a type of yours, derive LabelValue",
    note = "for any type with Display, such as f64, pass quipu::label::DisplayValue(value)",
    note = "for types of the crate http, enable the feature `http`"
)]
pub trait LabelValue {
    /// The values by index, if you know them at compile time; else `None`.
    const VALUES: Option<&'static [&'static str]> = None;

    /// Writes exactly one value: by [`LabelWriter::index`] for a type with [`LabelValue::VALUES`],
    /// by [`LabelWriter::text`] or [`LabelWriter::display`] for any other.
    fn encode(&self, writer: &mut LabelWriter<'_>);

    /// Returns the index of this value, for a type with [`LabelValue::VALUES`]. State sets and
    /// macros such as [`counter!`](crate::counter) look up values by index. If a type has values
    /// but does not implement this method, they search for the value that it encodes, which is
    /// slower.
    fn index(&self) -> Option<u32> {
        None
    }
}

/// A typed set of labels. Derive it for a struct whose fields are the labels.
///
/// ```
/// use quipu::{GaugeFamily, LabelGroup, Description, Registry};
///
/// #[derive(LabelGroup)]
/// struct Disk<'a> { device: &'a str, is_full: bool }
///
/// assert_eq!(Disk::COUNT, 2);
/// assert_eq!(Disk::LABELS[0].name, "device");
/// let registry = Registry::new();
/// let disks: GaugeFamily<Disk> = registry.register(Description::new("disk_bytes", ""))?;
/// disks.set(&Disk { device: "sda", is_full: false }, 1e12);
/// assert_eq!(disks.get(&Disk { device: "sda", is_full: false }), Some(1e12));
/// # Ok::<(), quipu::Error>(())
/// ```
pub trait LabelGroup {
    /// This type with `'static` lifetimes. A family accepts each group with its identity, so the
    /// lifetime of a group does not matter.
    type Identity: 'static;

    /// The labels, in the order that [`LabelGroup::encode`] writes their values. Empty for an array
    /// of strings, whose names you set with [`Description::labels`](crate::Description::labels).
    const LABELS: &'static [Label<'static>];

    /// The number of values that [`LabelGroup::encode`] writes.
    const COUNT: usize = Self::LABELS.len();

    /// Writes all values in the order of the labels.
    fn encode(&self, writer: &mut LabelWriter<'_>);

    /// Returns where the series of these labels was last found, if this is cached: updates look
    /// there first. For language bindings.
    #[doc(hidden)]
    #[inline(always)]
    fn cached(&self) -> Option<&CachedSeries> {
        None
    }
}

/// No labels.
impl LabelGroup for () {
    type Identity = ();
    const LABELS: &'static [Label<'static>] = &[];

    #[inline]
    fn encode(&self, _: &mut LabelWriter<'_>) {}
}

/// Labels whose names are only known at run time: the values, in the order of the names.
impl<S: AsRef<str>, const N: usize> LabelGroup for [S; N] {
    type Identity = [&'static str; N];
    const LABELS: &'static [Label<'static>] = &[];
    const COUNT: usize = N;

    #[inline]
    fn encode(&self, writer: &mut LabelWriter<'_>) {
        self.iter().for_each(|text| writer.text(text.as_ref()));
    }
}

/// The [`LabelGroup::COUNT`] of a group with one value for each label of the description.
#[doc(hidden)]
pub const ANY: usize = usize::MAX;

/// Labels whose names and number are only known at run time: the values, in the order of the names.
/// If you pass more or fewer values than names, the update is counted in the family's overflow
/// series.
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Values<'a>(pub &'a [&'a str]);

impl LabelGroup for Values<'_> {
    type Identity = Values<'static>;
    const LABELS: &'static [Label<'static>] = &[];
    const COUNT: usize = ANY;

    #[inline]
    fn encode(&self, writer: &mut LabelWriter<'_>) {
        self.0.iter().for_each(|text| writer.text(text));
    }
}

/// Like [`Values`], without a slice: a function that writes one value for each label. It can be
/// called more than once, and must write the same values each time.
///
/// ```
/// use quipu::label::{LabelWriter, Values, WrittenValues};
/// use quipu::{CounterFamily, Description, Registry};
///
/// let registry = Registry::new();
/// let description = Description::new("resets", "Resets.").labels(["vendor", "model"]);
/// let resets: CounterFamily<Values> = registry.register(description)?;
/// resets.inc(&WrittenValues(|writer: &mut LabelWriter<'_>| {
///     writer.text("acme");
///     writer.text("x1");
/// }));
/// assert_eq!(resets.get(&Values(&["acme", "x1"])), Some(1));
/// # Ok::<(), quipu::Error>(())
/// ```
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub struct WrittenValues<F>(pub F);

impl<F: Fn(&mut LabelWriter<'_>)> LabelGroup for WrittenValues<F> {
    type Identity = Values<'static>;
    const LABELS: &'static [Label<'static>] = &[];
    const COUNT: usize = ANY;

    #[inline]
    fn encode(&self, writer: &mut LabelWriter<'_>) {
        (self.0)(writer);
    }
}

impl<G: LabelGroup> LabelGroup for &G {
    type Identity = G::Identity;
    const LABELS: &'static [Label<'static>] = G::LABELS;
    const COUNT: usize = G::COUNT;

    #[inline]
    fn encode(&self, writer: &mut LabelWriter<'_>) {
        (**self).encode(writer);
    }

    #[inline(always)]
    fn cached(&self) -> Option<&CachedSeries> {
        (**self).cached()
    }
}
