//! The rules that need all families: repeated or conflicting names, and mixed units.

use std::collections::{BTreeMap, HashMap, HashSet};

use quipu_wire::remote::exposition::text::TextFormat;
use quipu_wire::remote::exposition::{Family, FamilyType};

use super::findings::{Findings, Rule};
use super::units;

/// The names of all families so far.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// The families with a help.
    helped: HashSet<String>,
    typed: HashSet<String>,
    /// The families, and the lines where they began.
    families: HashMap<String, Option<u64>>,
    /// The family of each sample name.
    samples: HashMap<String, String>,
    /// The families by their name in the base unit: the unit, the name, and the line of each.
    units: BTreeMap<String, Vec<(String, String, Option<u64>)>>,
}

impl Names {
    pub(super) fn has_help(&mut self, name: &str) {
        self.helped.insert(name.to_owned());
    }

    pub(super) fn has_type(&mut self, name: &str) {
        self.typed.insert(name.to_owned());
    }

    /// Returns whether a family declares a help, and whether it declares a type.
    pub(super) fn described(&self, name: &str) -> (bool, bool) {
        (self.helped.contains(name), self.typed.contains(name))
    }

    /// Adds a family. `name` includes the suffix of its samples.
    pub(super) fn add(
        &mut self,
        name: &str,
        family: Family<'_>,
        format: TextFormat,
        line: Option<u64>,
        findings: &mut Findings,
    ) {
        findings.families += 1;
        findings.series += family.metrics().len() as u64;
        if self.families.insert(name.to_owned(), line).is_some() {
            let message = "its lines are in several places, and should follow each other";
            return findings.add(name, Rule::Split, message, line);
        }
        for sample in samples(name, family, format) {
            let other = self.samples.entry(sample.clone()).or_insert_with(|| name.to_owned());
            if other != name {
                let message = format!("it has samples {sample:?}, as the family {other:?} has");
                findings.add(name, Rule::Collision, message, line);
            }
        }
        if let Some((unit, base)) = units::find_unit(name) {
            let key = name.replacen(unit, base, 1);
            let others = self.units.entry(key).or_default();
            others.push((unit.to_owned(), name.to_owned(), line));
        }
    }

    /// Adds the findings that need all families.
    pub(super) fn finish(&mut self, findings: &mut Findings) {
        for families in self.units.values() {
            for (unit, name, line) in families.iter().skip(1) {
                let (first, other, _) = &families[0];
                if unit != first {
                    let message = format!("{other:?} has the same in {first}: use one unit");
                    findings.add(name, Rule::MixedUnits, message, *line);
                }
            }
        }
    }
}

/// Returns the names of a family's samples.
fn samples(name: &str, family: Family<'_>, format: TextFormat) -> Vec<String> {
    let suffixes: &[&str] = match (family.kind(), format) {
        (FamilyType::Histogram, _) => &["_bucket", "_count", "_sum"],
        (FamilyType::GaugeHistogram, _) => &["_bucket", "_gcount", "_gsum"],
        (FamilyType::Summary, _) => &["", "_count", "_sum"],
        _ => &[""],
    };
    let mut names: Vec<_> = suffixes.iter().map(|suffix| format!("{name}{suffix}")).collect();
    if family.metrics().any(|metric| metric.created_ms().is_some()) {
        names.push(format!("{}_created", family.name()));
    }
    names
}
