//! A list of relabelling rules, with counters of their effects.

use std::borrow::Cow;
use std::path::Path;

use quipu::{CounterFamily, Description, Registry};
use serde_saphyr::Spanned;

use super::labels::Labels;
use super::relabel::{Outcome, Relabel};
use super::{Counts, Error, Fault, file, number_text, parse, read};

/// The rules in the order of the file. An empty list changes no sample.
#[derive(Debug, Default)]
pub struct Relabelling(Vec<(Relabel, Counts)>);

impl Relabelling {
    /// Reads a file with `write_relabel_configs`, the rules for samples that are sent.
    ///
    /// # Errors
    /// Returns an [`Error`] with the line, the key and the remedy.
    pub fn read(path: &Path) -> Result<Self, Error> {
        read(path, |text| {
            let file: file::WriteFile = parse(text)?;
            Self::new(file.write_relabel_configs)
        })
    }

    pub(super) fn new(rules: Option<Vec<Spanned<file::RelabelConfig>>>) -> Result<Self, Fault> {
        let read = |rule: Spanned<file::RelabelConfig>| {
            let line = Some(rule.referenced.line());
            Ok((Relabel::new(&rule.value).map_err(|reason| (line, reason))?, None))
        };
        rules.unwrap_or_default().into_iter().map(read).collect::<Result<_, _>>().map(Self)
    }

    /// Registers counters for the effects of each rule: changed samples, and dropped samples. The
    /// arguments are their names and help strings.
    ///
    /// # Errors
    /// Fails if there is not enough memory.
    pub fn count(
        &mut self,
        registry: &Registry,
        changed: (&str, &str),
        dropped: (&str, &str),
    ) -> Result<(), quipu::Error> {
        let family = |(name, help)| -> Result<CounterFamily<[String; 2]>, quipu::Error> {
            let about = Description::new(name, help);
            registry.register(about.labels(["rule", "action"]))
        };
        let (changed, dropped) = (family(changed)?, family(dropped)?);
        for (number, (rule, counts)) in (1..).zip(&mut self.0) {
            let labels = [number_text(number), rule.name().to_owned()];
            *counts = Some([changed.bind(&labels), dropped.bind(&labels)]);
        }
        Ok(())
    }

    /// Applies the rules to a series. Returns its labels sorted by name, or `None` if the series is
    /// dropped. The labels include the metric name, unless a rule removed it.
    pub fn series<'a>(
        &self,
        labels: &[(&'a str, &'a str)],
    ) -> Option<Vec<(Cow<'a, str>, Cow<'a, str>)>> {
        let mut labels = Labels::of_series(labels);
        self.apply(&mut labels).then(|| labels.into_sorted())
    }

    /// Applies the rules. Returns false if the sample is dropped.
    pub(super) fn apply(&self, labels: &mut Labels<'_>) -> bool {
        for (rule, counts) in &self.0 {
            let at = match rule.apply(labels) {
                Outcome::Same => continue,
                Outcome::Changed => 0,
                Outcome::Dropped => 1,
            };
            if let Some(counts) = counts {
                counts[at].inc();
            }
            if at == 1 {
                return false;
            }
        }
        true
    }
}
