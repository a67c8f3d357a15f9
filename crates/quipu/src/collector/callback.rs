//! Callbacks: a gauge or a counter whose value is returned by a function.

use crate::collector::Collector;
use crate::snapshot::{FamilyHeader, Kind, Label, Number, Series, Sink, Texts, Value};

/// A gauge or a counter whose value is the result of a function.
pub(crate) struct Callback {
    name: String,
    help: String,
    unit: String,
    kind: Kind,
    /// The names of its constant labels.
    labels: Vec<String>,
    /// Their values, encoded.
    texts: Vec<u8>,
    escape_free: bool,
    value: Box<dyn Fn() -> f64 + Send + Sync>,
    reset: Option<Box<dyn Fn() + Send + Sync>>,
}

impl Callback {
    pub(crate) fn new(
        name: String,
        help: String,
        unit: String,
        kind: Kind,
        labels: Vec<(String, String)>,
        value: Box<dyn Fn() -> f64 + Send + Sync>,
    ) -> Self {
        let mut texts = Vec::new();
        labels.iter().for_each(|(_, value)| Texts::push(&mut texts, value));
        let escape_free = !texts.iter().any(|byte| matches!(byte, b'"' | b'\\' | b'\n'));
        let labels = labels.into_iter().map(|(name, _)| name).collect();
        Self { name, help, unit, kind, labels, texts, escape_free, value, reset: None }
    }

    /// Sets a function to call when the registry is reset.
    #[cfg(feature = "window")]
    pub(crate) fn on_reset(mut self, reset: impl Fn() + Send + Sync + 'static) -> Self {
        self.reset = Some(Box::new(reset));
        self
    }
}

impl Collector for Callback {
    fn names(&self) -> Vec<String> {
        vec![self.name.clone()]
    }

    fn reset(&self) {
        if let Some(reset) = &self.reset {
            reset();
        }
    }

    fn collect(&self, sink: &mut dyn Sink) {
        let labels: Vec<Label<'_>> =
            self.labels.iter().map(|name| Label { name, values: None }).collect();
        let Self { name, help, unit, kind, .. } = self;
        let family =
            FamilyHeader { name, help, unit, kind: *kind, labels: &labels, groups: 1, bare: false };
        sink.family(&family);
        let number = Number::Float((self.value)());
        let value = match kind {
            Kind::Counter => Value::Counter { total: number, exemplar: None },
            _ => Value::Gauge(number),
        };
        let texts = Texts::new(&self.texts);
        let (group, overflow, start, exemplar) = (0, false, None, None);
        let escape_free = self.escape_free;
        let series = Series { group, texts, escape_free, overflow, start, value, exemplar };
        sink.series(&family, &series);
    }
}
