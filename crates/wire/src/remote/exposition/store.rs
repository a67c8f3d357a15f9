//! The memory of the family that is being read. The next family reuses it.

use alloc::string::String;
use alloc::vec::Vec;

use super::text::Text;
use super::{FamilyType, Limits};

/// A family with its metrics.
#[derive(Debug, Default)]
pub(super) struct Store {
    pub(super) name: Span,
    pub(super) help: Span,
    pub(super) unit: Span,
    pub(super) kind: FamilyType,
    pub(super) slots: Vec<MetricSlot>,
    /// Buckets and quantiles. Once the family is complete, the points of a metric are adjacent.
    pub(super) points: Vec<PointSlot>,
    pub(super) exemplars: Vec<ExemplarSlot>,
    pub(super) natives: Vec<NativeSlot>,
    pub(super) native_buckets: Vec<(i32, f64)>,
    /// Labels. The labels of a metric or an exemplar are adjacent and sorted by name.
    pub(super) pairs: Vec<(Span, Span)>,
    texts: String,
    samples_left: usize,
    limits: Limits,
}

/// A range of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) start: u32,
    pub(super) len: u32,
}

/// A metric: its value and the places of its other parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct MetricSlot {
    pub(super) labels: Span,
    pub(super) form: Form,
    pub(super) value: f64,
    pub(super) count: Option<f64>,
    pub(super) sum: Option<f64>,
    pub(super) has_value: bool,
    pub(super) timestamp_ms: Option<i64>,
    pub(super) created_ms: Option<i64>,
    pub(super) exemplar: Option<u32>,
    pub(super) points: Span,
    pub(super) native: Option<u32>,
}

/// The value type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Counter,
    Gauge,
    Histogram,
    Summary,
    Unknown,
}

/// A bucket or a quantile.
#[derive(Clone, Copy, Debug)]
pub(super) struct PointSlot {
    /// The index of the metric.
    pub(super) slot: u32,
    pub(super) bound: f64,
    pub(super) value: f64,
    pub(super) exemplar: Option<u32>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct ExemplarSlot {
    pub(super) labels: Span,
    pub(super) value: f64,
    pub(super) timestamp_ms: Option<i64>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct NativeSlot {
    pub(super) schema: i32,
    pub(super) zero_threshold: f64,
    pub(super) zero_count: f64,
    pub(super) negative: Span,
    pub(super) positive: Span,
    pub(super) exemplars: Span,
}

/// The error for an exceeded limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Full;

/// The error for two labels with the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Twice;

/// The used lengths of the lists.
#[derive(Clone, Copy)]
pub(super) struct Mark {
    pairs: usize,
    texts: usize,
    exemplars: usize,
}

impl Span {
    pub(super) fn slice<T>(self, list: &[T]) -> &[T] {
        let start = self.start as usize;
        list.get(start..start + self.len as usize).unwrap_or_default()
    }

    /// Returns the range from `start` to the end of a list. The limits keep the lists short enough
    /// for `u32`.
    pub(super) fn since<T>(start: usize, list: &[T]) -> Span {
        Span { start: start as u32, len: (list.len() - start) as u32 }
    }
}

impl FamilyType {
    pub(super) fn form(self) -> Form {
        match self {
            FamilyType::Counter => Form::Counter,
            FamilyType::Gauge | FamilyType::Info | FamilyType::StateSet => Form::Gauge,
            FamilyType::GaugeHistogram | FamilyType::Histogram => Form::Histogram,
            FamilyType::Summary => Form::Summary,
            FamilyType::Unknown => Form::Unknown,
        }
    }
}

impl MetricSlot {
    pub(super) fn new(labels: Span, form: Form) -> MetricSlot {
        MetricSlot {
            labels,
            form,
            value: 0.0,
            count: None,
            sum: None,
            has_value: false,
            timestamp_ms: None,
            created_ms: None,
            exemplar: None,
            points: Span::default(),
            native: None,
        }
    }
}

impl Store {
    pub(super) fn new(limits: Limits) -> Store {
        let mut store = Store { limits: limits.in_range(), ..Store::default() };
        store.clear();
        store
    }

    /// Forgets the family but keeps its memory.
    pub(super) fn clear(&mut self) {
        let Store { slots, points, exemplars, natives, native_buckets, pairs, texts, .. } = self;
        slots.clear();
        points.clear();
        exemplars.clear();
        natives.clear();
        native_buckets.clear();
        pairs.clear();
        texts.clear();
        (self.name, self.help, self.unit) = Default::default();
        self.kind = FamilyType::Unknown;
        self.samples_left = self.limits.samples;
    }

    pub(super) fn text(&self, span: Span) -> &str {
        let start = span.start as usize;
        self.texts.get(start..start + span.len as usize).unwrap_or_default()
    }

    /// Returns the bytes of a string, for comparisons.
    #[inline(always)]
    pub(super) fn bytes(&self, span: Span) -> &[u8] {
        span.slice(self.texts.as_bytes())
    }

    /// Returns the bytes of a label: name and value.
    pub(super) fn pair(&self, (name, value): (Span, Span)) -> &[u8] {
        // A value is stored right after its name.
        self.bytes(Span { start: name.start, len: name.len + value.len })
    }

    /// Counts samples towards the limit: metrics, buckets, quantiles, labels and exemplars.
    pub(super) fn take(&mut self, samples: usize) -> Result<(), Full> {
        self.samples_left = self.samples_left.checked_sub(samples).ok_or(Full)?;
        Ok(())
    }

    /// Returns how many samples the limit still allows.
    pub(super) fn samples_left(&self) -> usize {
        self.samples_left
    }

    pub(super) fn add_str(&mut self, text: &str) -> Result<Span, Full> {
        let start = self.texts.len();
        if text.len() > self.limits.bytes - start {
            return Err(Full);
        }
        self.texts.push_str(text);
        Ok(Span { start: start as u32, len: text.len() as u32 })
    }

    pub(super) fn add_text(&mut self, text: Text<'_>) -> Result<Span, Full> {
        match text.as_str() {
            Some(text) => self.add_str(text),
            None => self.add_str(&text.to_cow()),
        }
    }

    /// Adds a label.
    pub(super) fn add_label(&mut self, name: Text<'_>, value: Text<'_>) -> Result<(), Full> {
        let pair = (self.add_text(name)?, self.add_text(value)?);
        self.pairs.push(pair);
        Ok(())
    }

    pub(super) fn mark(&self) -> Mark {
        let Store { pairs, texts, exemplars, .. } = self;
        Mark { pairs: pairs.len(), texts: texts.len(), exemplars: exemplars.len() }
    }

    /// Removes the labels and exemplars that were added since the mark.
    pub(super) fn back_to(&mut self, mark: Mark) {
        self.pairs.truncate(mark.pairs);
        self.texts.truncate(mark.texts);
        self.exemplars.truncate(mark.exemplars);
    }

    /// Sorts the labels that were added since the mark.
    pub(super) fn sort_labels(&mut self, since: Mark) -> Result<Span, Twice> {
        let Store { pairs, texts, .. } = self;
        let name = |pair: &(Span, Span)| pair.0.slice(texts.as_bytes());
        let added = &mut pairs[since.pairs..];
        if !added.is_sorted_by(|a, b| name(a) < name(b)) {
            added.sort_unstable_by(|a, b| name(a).cmp(name(b)));
            if !added.is_sorted_by(|a, b| name(a) < name(b)) {
                return Err(Twice);
            }
        }
        Ok(Span::since(since.pairs, pairs))
    }

    /// Completes the family: removes metrics without a value, and sorts the buckets and quantiles
    /// by metric and bound. If two share a bound, the first one stays.
    pub(super) fn complete(&mut self) {
        let Store { points, slots, .. } = self;
        if !matches!(self.kind.form(), Form::Histogram | Form::Summary) {
            slots.retain(|slot| slot.has_value);
        }
        let order = |a: &PointSlot, b: &PointSlot| {
            // Bounds are numbers, never NaN.
            a.slot.cmp(&b.slot).then(a.bound.total_cmp(&b.bound))
        };
        if !points.is_sorted_by(|a, b| order(a, b).is_le()) {
            points.sort_by(order);
        }
        points.dedup_by(|b, a| a.slot == b.slot && a.bound == b.bound);
        let mut start = 0;
        for chunk in points.chunk_by(|a, b| a.slot == b.slot) {
            if let Some(slot) = slots.get_mut(chunk[0].slot as usize) {
                slot.points = Span { start, len: chunk.len() as u32 };
            }
            start += chunk.len() as u32;
        }
    }
}
