//! Copies families with the same series and other numbers, for sources that change only in their
//! values.

use quipu::snapshot::Number;

use super::{OneSeries, OneValue, RecordedFamily};

impl RecordedFamily {
    /// Returns the number of series.
    pub fn series_count(&self) -> usize {
        self.series.len()
    }

    /// Returns whether each series consists of a single number.
    pub fn is_of_numbers(&self) -> bool {
        let mut values = self.series.iter().map(|one| &one.value);
        values.all(|value| matches!(value, OneValue::Number(_, None)))
    }

    /// Returns the same family with other numbers, in the order of the series. Returns `None` if
    /// the numbers run out.
    pub fn with_numbers(&self, mut next: impl FnMut() -> Option<Number>) -> Option<Self> {
        let mut series = Vec::with_capacity(self.series.len());
        for one in &self.series {
            let value = OneValue::Number(next()?, None);
            let OneSeries { group, ref texts, escape_free, start, .. } = *one;
            series.push(OneSeries { group, texts: texts.clone(), escape_free, start, value });
        }
        Some(Self {
            name: self.name.clone(),
            help: self.help.clone(),
            unit: self.unit.clone(),
            labels: self.labels.clone(),
            texts: self.texts.clone(),
            series,
            ..*self
        })
    }

    /// Returns whether the other family contains the same series, regardless of their values.
    pub fn has_series_of(&self, other: &Self) -> bool {
        let head = |one: &Self| (one.kind, one.bare, one.overflows, one.series.len());
        head(self) == head(other)
            && (&self.name, &self.help, &self.unit) == (&other.name, &other.help, &other.unit)
            && self.labels == other.labels
            && self.texts == other.texts
    }
}
