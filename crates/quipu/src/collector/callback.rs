//! Callbacks: a scrape calls a function of the program for the value of a gauge or a counter.

use crate::collector::Collector;
use crate::snapshot::{FamilyHeader, Kind, Label, Series, Sink, Texts, Value};

/// A gauge or a counter whose value is the result of a function.
pub(crate) struct Callback {
    name: String,
    help: String,
    unit: String,
    kind: Kind,
    /// The names of the constant labels.
    labels: Vec<String>,
    /// The values of the constant labels, encoded like [`Texts`].
    texts: Vec<u8>,
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
        let labels = labels.into_iter().map(|(name, _)| name).collect();
        Self { name, help, unit, kind, labels, texts, value, reset: None }
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
        let labels: Vec<Label<'_>> = self.labels.iter().map(|name| Label::new(name)).collect();
        let header = FamilyHeader::new(self.kind, &self.name, &self.help);
        let family = header.unit(&self.unit).with_labels(&labels);
        sink.family(&family);
        let value = (self.value)();
        let value = match self.kind {
            Kind::Counter => Value::counter(value),
            _ => Value::gauge(value),
        };
        sink.series(&family, &Series::new(Texts::new(&self.texts), value));
    }
}
