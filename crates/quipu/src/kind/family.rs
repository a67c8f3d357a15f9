//! Families: all series of one metric, found by their labels.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use quipu_segment::series::{self, KeyWriter, Label, Schema, SeriesCells, SeriesHandle, View};

use super::metric_kind::MetricKind;
use crate::description::{Description, Setting};
use crate::error::Error;
use crate::label::{Indices, LabelGroup, LabelWriter};
use crate::scope::{Register, Scope};
use crate::scrape::Source;

/// A kind of instrument that can form families. This trait is sealed: only the instruments of this
/// crate implement it.
///
/// ```
/// use quipu::{Counter, Description, Family, Histogram, Instrument, Registry};
///
/// /// Registers a metric with the label `table`.
/// fn by_table<I: Instrument>(registry: &Registry, name: &str) -> Family<I, [&'static str; 1]> {
///     registry.register(Description::new(name, "").labels(["table"])).unwrap()
/// }
///
/// let registry = Registry::new();
/// by_table::<Counter>(&registry, "rows").inc(&["users"]);
/// by_table::<Histogram>(&registry, "sizes").observe(&["users"], 2.0);
/// assert_eq!(registry.value("rows_total", &[("table", "users")]), Some(1.0));
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an instrument",
    note = "a family takes the instrument first: Family<Counter, Labels>"
)]
pub trait Instrument: sealed::Sealed + Sized {
    /// The meaning of the cells, and the settings that all series of a family share, such as bucket
    /// bounds.
    #[doc(hidden)]
    type Kind: MetricKind;

    /// The settings of a description that this kind uses, but not every kind.
    #[doc(hidden)]
    const SETTINGS: &'static [Setting];

    /// Writes cells and settings into the schema of a family.
    ///
    /// # Errors
    /// If the description contains invalid settings.
    #[doc(hidden)]
    fn describe(description: &Description, schema: &mut Schema) -> Result<(), Error>;

    /// Adapts the cells of a complete schema to its labels.
    #[doc(hidden)]
    fn arrange(_: &mut Schema) {}

    /// Creates the instrument of one series.
    #[doc(hidden)]
    fn from_handle(handle: SeriesHandle, kind: &Arc<Self::Kind>) -> Self;

    /// Binds an instrument to the series of these labels.
    #[doc(hidden)]
    fn bind(
        family: &series::Family,
        kind: &Arc<Self::Kind>,
        labels: impl Fn(&mut KeyWriter<'_>),
    ) -> Self {
        Self::from_handle(family.bind(labels), kind)
    }

    /// Removes the series of these labels.
    ///
    /// # Errors
    /// The errors of the segment.
    #[doc(hidden)]
    fn remove(
        family: &series::Family,
        _: &Arc<Self::Kind>,
        labels: impl Fn(&mut KeyWriter<'_>),
    ) -> Result<bool, quipu_segment::Error> {
        family.remove(labels)
    }
}

pub(crate) mod sealed {
    /// Implemented by the instruments of this crate.
    pub trait Sealed {}
}

/// A metric with labels. You can clone it: clones share the series.
///
/// `L` is a struct that derives [`LabelGroup`], or an array of strings such as `[&str; 2]` for
/// labels whose names are only known at run time. Declare text labels as `&'a str`, because a
/// `String` costs an allocation for each update. Write the family's type with `'static`, also in a
/// field of a struct: `CounterFamily<Request<'static>>`. You can still pass labels of any lifetime.
///
/// ```
/// use quipu::{CounterFamily, Description, LabelGroup, Registry};
///
/// #[derive(LabelGroup)]
/// struct Page<'a> {
///     path: &'a str,
/// }
///
/// let registry = Registry::new();
/// let views: CounterFamily<Page<'static>> =
///     registry.register(Description::new("views", "Views.").max_series(1_000))?;
/// let path = String::from("/home");
/// views.inc(&Page { path: &path });
///
/// // An update through a bound instrument does not search for the series.
/// let home = views.bind(&Page { path: &path });
/// home.inc();
/// assert_eq!(views.get(&Page { path: "/home" }), Some(2));
/// assert_eq!(views.get(&Page { path: "/away" }), None);
/// # Ok::<(), quipu::Error>(())
/// ```
pub struct Family<I: Instrument, L> {
    pub(crate) family: series::Family,
    pub(crate) kind: Arc<I::Kind>,
    labels: PhantomData<fn(L)>,
}

impl<I: Instrument, L: LabelGroup> Family<I, L> {
    /// Binds an instrument to the series of these labels. Creates the series, at zero, if it does
    /// not exist.
    ///
    /// Keep the instrument if the labels do not change, because an update through it only costs one
    /// addition.
    #[doc(alias = "get_or_create")]
    #[doc(alias = "with_label_values")]
    pub fn bind<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K) -> I {
        I::bind(&self.family, &self.kind, Self::key(labels))
    }

    /// Removes the series of these labels; returns false if there is none. If you use its labels
    /// again, the series starts at zero.
    ///
    /// # Errors
    /// The errors of a segment in a file.
    pub fn remove<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K) -> Result<bool, Error> {
        let removed = I::remove(&self.family, &self.kind, Self::key(labels));
        removed.map_err(|error| Error::segment(self.name(), error))
    }

    /// Removes the series for which `keep` returns false, and returns their number. `keep` is
    /// called with the pairs of label names and values.
    ///
    /// # Errors
    /// The errors of a segment in a file.
    pub fn retain(&self, mut keep: impl FnMut(&[(&str, &str)]) -> bool) -> Result<u64, Error> {
        let own = self.kind.own_label();
        let removed = self.family.retain(|view| {
            let mut pairs = pairs(self.family.schema(), self.family.groups(), view);
            pairs.retain(|(name, _)| Some(*name) != own);
            view.overflow || keep(&pairs)
        });
        removed.map_err(|error| Error::segment(self.name(), error))
    }

    /// Removes all series. Returns their number.
    ///
    /// # Errors
    /// The errors of a segment in a file.
    pub fn clear(&self) -> Result<u64, Error> {
        self.retain(|_| false)
    }

    /// Returns the name of the metric, without suffixes that the formats add.
    pub fn name(&self) -> &str {
        &self.family.schema().name
    }

    /// Returns the number of series, including expired ones.
    pub fn len(&self) -> u64 {
        self.family.len()
    }

    /// Returns whether there is no series.
    pub fn is_empty(&self) -> bool {
        self.family.is_empty()
    }

    /// Returns the number of updates that were counted in the overflow series.
    pub fn overflowed(&self) -> u64 {
        self.family.overflowed()
    }

    /// Returns the family as a source for scrapes without the registry: see [`Description::apart`].
    ///
    /// # Errors
    /// If the family's settings in the segment are damaged.
    #[doc(hidden)]
    pub fn source(&self) -> Result<Source, Error> {
        Source::new(&self.family)
    }

    /// Changes the cells of the series of these labels, which is created if there is none.
    #[inline(always)]
    pub(crate) fn update<K>(&self, labels: &K, act: impl Fn(SeriesCells<'_>))
    where
        K: LabelGroup<Identity = L::Identity>,
    {
        match labels.cached() {
            None => self.family.update(Self::key(labels), act),
            Some(cached) => self.family.follow(cached, Self::key(labels), act),
        }
    }

    #[inline]
    pub(crate) fn key<K>(labels: &K) -> impl Fn(&mut KeyWriter<'_>)
    where
        K: LabelGroup<Identity = L::Identity>,
    {
        |key| LabelWriter::wrap(key, |writer| labels.encode(writer))
    }
}

impl<I: Instrument, L> Clone for Family<I, L> {
    fn clone(&self) -> Self {
        let (family, kind) = (self.family.clone(), Arc::clone(&self.kind));
        Self { family, kind, labels: PhantomData }
    }
}

impl<I: Instrument, L> fmt::Debug for Family<I, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.family.fmt(f)
    }
}

impl<I: Instrument, L> sealed::Sealed for Family<I, L> {}

impl<I: Instrument, L: LabelGroup> Register for Family<I, L> {
    fn register(scope: &Scope, description: Description) -> Result<Self, Error> {
        let family = scope.family::<I>(&description, L::LABELS, L::COUNT)?;
        let kind = kind_of::<I>(&family)?;
        Ok(Self { family, kind, labels: PhantomData })
    }
}

/// Returns the kind of a family, with the settings in the segment.
fn kind_of<I: Instrument>(family: &series::Family) -> Result<Arc<I::Kind>, Error> {
    let kind = Arc::new(I::Kind::decode(family)?);
    if let Some(allocations) = kind.side_allocations() {
        family.set_side_allocations(allocations);
    }
    Ok(kind)
}

/// Creates a family without dynamic labels, and binds an instrument to its only series.
pub(crate) fn single<I: Instrument>(scope: &Scope, description: &Description) -> Result<I, Error> {
    let family = scope.family::<I>(description, &[], description.labels.len())?;
    let kind = kind_of::<I>(&family)?;
    let own = kind.own_label();
    let is_open = |label: &&Label| label.values.is_none() && Some(&*label.name) != own;
    if let Some(label) = family.schema().labels.iter().find(is_open) {
        let reason =
            format!("it has the label {:?} without a value: register a family", label.name);
        return Err(Error::invalid(&family.schema().name, reason));
    }
    // Each constant label of the scope takes a single value, of index 0.
    let constant = family.schema().labels.iter().filter(|label| label.values.is_some()).count();
    Ok(I::bind(&family, &kind, |key| (0..constant).for_each(|_| key.index(0, 1))))
}

/// Returns the label names and values of a series.
fn pairs<'a>(schema: &'a Schema, groups: u32, view: &View<'a>) -> Vec<(&'a str, &'a str)> {
    let mut texts = crate::snapshot::Texts::new(view.texts);
    let mut indices = Indices::new(view.group, groups);
    let pairs = schema.labels.iter().map(|label| {
        let value = match &label.values {
            Some(values) => values.get(indices.next(values.len())).map_or("", String::as_str),
            None => texts.next().unwrap_or(""),
        };
        (label.name.as_str(), value)
    });
    pairs.collect()
}
