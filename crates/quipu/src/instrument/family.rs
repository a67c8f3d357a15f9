//! Families: all series of one metric, found by their labels.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use quipu_segment::series::{
    self, KeyWriter, Label, Schema, SeriesCells, SeriesHandle, SideAllocations, View,
};

use crate::description::Description;
use crate::error::Error;
use crate::label::LabelGroup;
use crate::read::Source;
use crate::registry::{Register, Scope};

/// A kind of instrument that can have families. The instruments of this crate implement it.
pub trait Instrument: Sized {
    /// What all series of a family share, such as bucket bounds.
    type Shared: Clone + Send + Sync;

    /// Writes kind, cells and settings into the schema of a family.
    ///
    /// # Errors
    /// If the description has invalid settings.
    #[doc(hidden)]
    fn describe(description: &Description, schema: &mut Schema) -> Result<(), Error>;

    /// Reads back what [`Instrument::describe`] wrote.
    ///
    /// # Errors
    /// If the settings in the segment are damaged.
    #[doc(hidden)]
    fn shared(series: &series::Family) -> Result<Self::Shared, Error>;

    /// Creates the instrument of one series.
    #[doc(hidden)]
    fn bound(bound: SeriesHandle, shared: &Self::Shared) -> Self;

    /// Binds an instrument to the series of these labels.
    #[doc(hidden)]
    fn bind(
        series: &series::Family,
        shared: &Self::Shared,
        labels: impl Fn(&mut KeyWriter<'_>),
    ) -> Self {
        Self::bound(series.bind(labels), shared)
    }

    /// Removes the series of these labels.
    ///
    /// # Errors
    /// Those of the segment.
    #[doc(hidden)]
    fn remove(
        series: &series::Family,
        shared: &Self::Shared,
        labels: impl Fn(&mut KeyWriter<'_>),
    ) -> Result<bool, quipu_segment::Error> {
        if series.is_dense()
            && let Ok(Some(place)) = series.find(&labels)
        {
            Self::clear_side(series, shared, &place);
        }
        series.remove(labels)
    }

    /// Clears what a series has beside its cells.
    #[doc(hidden)]
    fn clear_side(_: &series::Family, _: &Self::Shared, _: &SeriesCells<'_>) {}

    /// What series have beside their cells, if anything.
    #[doc(hidden)]
    fn sides(_: &Self::Shared) -> Option<Arc<dyn SideAllocations>> {
        None
    }

    /// The label that the instrument itself writes, if any.
    #[doc(hidden)]
    fn own_label(_: &Self::Shared) -> Option<&'static str> {
        None
    }
}

/// A metric with labels. Clones share it.
///
/// `L` is a struct that derives [`LabelGroup`], or an array of texts such as `[&str; 2]` for labels
/// whose names are known at run time only.
pub struct Family<I: Instrument, L> {
    pub(crate) series: series::Family,
    pub(crate) shared: I::Shared,
    labels: PhantomData<fn(L)>,
}

impl<I: Instrument, L: LabelGroup> Family<I, L> {
    /// Binds an instrument to the series of these labels. Creates the series, at zero, if there is
    /// none.
    ///
    /// Keep the instrument if the labels do not change: an update through it costs one addition.
    pub fn with<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K) -> I {
        I::bind(&self.series, &self.shared, |key| labels.encode(key))
    }

    /// Removes the series of these labels; returns false if there is none. If its labels are used
    /// again, the series starts at zero.
    ///
    /// # Errors
    /// Those of a segment in a file.
    pub fn remove<K: LabelGroup<Identity = L::Identity>>(&self, labels: &K) -> Result<bool, Error> {
        let removed = I::remove(&self.series, &self.shared, |key| labels.encode(key));
        removed.map_err(|error| Error::segment(self.name(), error))
    }

    /// Removes the series for which `keep` returns false. `keep` is called with the pairs of label
    /// names and values. Returns the number of removed series.
    ///
    /// # Errors
    /// Those of a segment in a file.
    pub fn retain(&self, mut keep: impl FnMut(&[(&str, &str)]) -> bool) -> Result<u64, Error> {
        let removed = self.series.retain(|view| {
            let mut pairs = pairs(self.series.schema(), self.series.groups(), view);
            pairs.retain(|(name, _)| Some(*name) != I::own_label(&self.shared));
            let is_kept = view.overflow || keep(&pairs);
            if !is_kept && self.series.is_dense() {
                I::clear_side(&self.series, &self.shared, &view.place);
            }
            is_kept
        });
        removed.map_err(|error| Error::segment(self.name(), error))
    }

    /// Removes all series. Returns their number.
    ///
    /// # Errors
    /// Those of a segment in a file.
    pub fn clear(&self) -> Result<u64, Error> {
        self.retain(|_| false)
    }

    /// The name of the metric, without suffixes that the formats add.
    pub fn name(&self) -> &str {
        &self.series.schema().name
    }

    /// The number of series, expired ones included.
    pub fn len(&self) -> u64 {
        self.series.len()
    }

    /// Whether there is no series.
    pub fn is_empty(&self) -> bool {
        self.series.is_empty()
    }

    /// The number of updates that were counted in the overflow series.
    pub fn overflowed(&self) -> u64 {
        self.series.overflowed()
    }

    /// Returns the family as a source for scrapes without the registry: see [`Description::apart`].
    ///
    /// # Errors
    /// If the family's settings in the segment are damaged.
    pub fn source(&self) -> Result<Source, Error> {
        Source::new(&self.series)
    }

    #[inline]
    pub(crate) fn key<K>(labels: &K) -> impl Fn(&mut KeyWriter<'_>)
    where
        K: LabelGroup<Identity = L::Identity>,
    {
        |key| labels.encode(key)
    }
}

impl<I: Instrument, L> Clone for Family<I, L> {
    fn clone(&self) -> Self {
        let (series, shared) = (self.series.clone(), self.shared.clone());
        Self { series, shared, labels: PhantomData }
    }
}

impl<I: Instrument, L> fmt::Debug for Family<I, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.series.fmt(f)
    }
}

impl<I: Instrument, L: LabelGroup> Register for Family<I, L> {
    fn register(scope: &Scope<'_>, description: Description) -> Result<Self, Error> {
        let series = scope.family::<I>(&description, L::LABELS, L::COUNT)?;
        let shared = shared::<I>(&series)?;
        Ok(Self { series, shared, labels: PhantomData })
    }
}

/// What all handles of a family share.
fn shared<I: Instrument>(series: &series::Family) -> Result<I::Shared, Error> {
    let shared = I::shared(series)?;
    if let Some(sides) = I::sides(&shared) {
        series.set_side_allocations(sides);
    }
    Ok(shared)
}

/// Creates a family without labels of its own, and binds an instrument to its only series.
pub(crate) fn single<I: Instrument>(
    scope: &Scope<'_>,
    description: &Description,
) -> Result<I, Error> {
    let series = scope.family::<I>(description, &[], description.labels.len())?;
    let shared = shared::<I>(&series)?;
    let own = I::own_label(&shared);
    let is_open = |label: &&Label| label.values.is_none() && Some(&*label.name) != own;
    if let Some(label) = series.schema().labels.iter().find(is_open) {
        let what = format!("it has the label {:?} without a value: register a family", label.name);
        return Err(Error::invalid(&series.schema().name, what));
    }
    // Each constant label of the scope has a single value, of index 0.
    let constant = series.schema().labels.iter().filter(|label| label.values.is_some()).count();
    Ok(I::bind(&series, &shared, |key| (0..constant).for_each(|_| key.index(0, 1))))
}

/// The label names and values of a series.
fn pairs<'a>(schema: &'a Schema, groups: u32, view: &View<'a>) -> Vec<(&'a str, &'a str)> {
    let mut texts = crate::snapshot::Texts::new(view.texts);
    let (mut rest, mut radix) = (view.group, groups);
    let pairs = schema.labels.iter().map(|label| {
        let value = match &label.values {
            Some(values) => {
                radix /= u32::try_from(values.len()).unwrap_or(u32::MAX).max(1);
                let index = rest / radix.max(1);
                rest %= radix.max(1);
                values.get(index as usize).map_or("", String::as_str)
            }
            None => texts.next().unwrap_or(""),
        };
        (label.name.as_str(), value)
    });
    pairs.collect()
}
