//! The instructions of quipu's hottest operations: the recorded figures, and how far a figure may
//! rise above them.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::callgrind::{self, Counted, Profile};
use crate::error::{Error, Result};
use crate::figures::{Setting, read_lines, write_lines};

/// A count fails if it is above the recorded one by more than this share. Tables have a random seed
/// in each run, which changes a count by up to one percent.
const TOLERANCE: f64 = 0.03;

/// The counts of all operations.
pub(crate) struct Hottest {
    setting: Setting,
    operations: Vec<Operation>,
}

/// Instructions per operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Operation {
    name: String,
    instructions: f64,
    branches: f64,
    /// Instructions with link-time optimisation, which are recorded for information alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    with_lto: Option<f64>,
    /// Those in each function itself, if they are at least a tenth of an instruction.
    functions: BTreeMap<String, f64>,
}

/// Counts all operations with the default profile.
pub(crate) fn count(root: &Path) -> Result<Hottest> {
    let counted = callgrind::count(root, "counting", Profile::Default)?;
    let operations = counted.into_iter().map(Operation::of).collect();
    Ok(Hottest { setting: callgrind::setting(root)?, operations })
}

/// Counts all operations with and without link-time optimisation.
pub(crate) fn count_both(root: &Path) -> Result<Hottest> {
    let mut hottest = count(root)?;
    let counted = callgrind::count(root, "counting", Profile::Lto)?;
    for (operation, with_lto) in hottest.operations.iter_mut().zip(counted) {
        operation.with_lto = Some(Operation::of(with_lto).instructions);
    }
    Ok(hottest)
}

impl Operation {
    fn of(counted: Counted) -> Operation {
        let per = |count: u64| (count as f64 / counted.operations as f64 * 10.0).round() / 10.0;
        let functions = counted.functions.into_iter();
        Operation {
            name: counted.name,
            instructions: per(counted.total.instructions),
            branches: per(counted.total.branches),
            with_lto: None,
            functions: functions
                .map(|(name, count)| (name, per(count)))
                .filter(|(_, count)| *count > 0.0)
                .collect(),
        }
    }
}

impl Hottest {
    /// Reads the recorded figures: one JSON object per line, of which the first is the setting.
    pub(crate) fn read(root: &Path) -> Result<Hottest> {
        let (setting, operations) = read_lines(&path(root))?;
        Ok(Hottest { setting, operations })
    }

    /// Records the figures, and writes their table.
    pub(crate) fn write(&self, root: &Path) -> Result<()> {
        write_lines(&path(root), &self.setting, &self.operations)?;
        let path = root.join("docs/benchmarks/hottest.md");
        fs::write(&path, self.document()).map_err(Error::file("write", &path))
    }

    fn document(&self) -> String {
        let Setting { rustc, llvm, target, libc, valgrind, .. } = &self.setting;
        format!(
            "# Instructions of the hottest operations\n\n\
             Counted by callgrind with Cargo's default release profile, loop included. `make \
             test-counts` fails if a count rises by\nmore than {TOLERANCE:.0}%; `make \
             record-counts` writes this page. The last column is for information: with `lto = \
             \"fat\"`\nand `codegen-units = 1`. The sources are in \
             `bench/callgrind/src/counting.rs`. Valgrind has no restartable sequences:\nthe program \
             registers an area for them itself, so that the counted path is the one that users \
             have.\n\nrustc {rustc} (LLVM {llvm}), {target}, {libc}, {valgrind}.\n\n{}\n",
            self.table(),
            TOLERANCE = TOLERANCE * 100.0,
        )
    }

    /// A Markdown table.
    pub(crate) fn table(&self) -> String {
        let head = "| operation | instructions | branches | instructions with LTO |";
        let mut text = format!("{head}\n| --- | ---: | ---: | ---: |");
        for Operation { name, instructions, branches, with_lto, .. } in &self.operations {
            let with_lto = with_lto.map_or("-".into(), |count| format!("{count:.1}"));
            let _ = write!(text, "\n| `{name}` | {instructions:.1} | {branches:.1} | {with_lto} |");
        }
        text
    }

    /// The operations that take more instructions than recorded, as messages that name the
    /// functions.
    pub(crate) fn losses(&self, kept: &Hottest) -> Vec<String> {
        if !self.setting.compare(&kept.setting, "operations") {
            return Vec::new();
        }
        let risen = |now: &&Operation| {
            let before = kept.operations.iter().find(|before| before.name == now.name);
            let before = before.filter(|b| now.instructions > b.instructions * (1.0 + TOLERANCE));
            before.map(|before| message(before, now))
        };
        self.operations.iter().filter_map(|now| risen(&now)).collect()
    }
}

/// What rose, by function, the greatest difference first.
fn message(before: &Operation, now: &Operation) -> String {
    let mut text = format!(
        "{} takes {:.1} instructions, recorded are {:.1}; if that is intended, record the new \
         figures with `make record-counts`. By function:",
        now.name, now.instructions, before.instructions
    );
    let names = before.functions.keys().chain(now.functions.keys());
    let of = |operation: &Operation, name| operation.functions.get(name).copied().unwrap_or(0.0);
    let mut differences: Vec<(f64, &String)> =
        names.map(|name| (of(now, name) - of(before, name), name)).collect();
    differences.sort_by(|a, b| b.0.abs().total_cmp(&a.0.abs()).then(a.1.cmp(b.1)));
    differences.dedup();
    for (difference, name) in differences.into_iter().filter(|(d, _)| d.abs() >= 0.1).take(10) {
        let _ = write!(text, "\n  {difference:+.1} {name}");
    }
    text
}

fn path(root: &Path) -> PathBuf {
    root.join("docs/benchmarks/hottest.jsonl")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hottest(instructions: f64, functions: &[(&str, f64)]) -> Hottest {
        let functions = functions.iter().map(|(name, count)| ((*name).to_owned(), *count));
        Hottest {
            setting: Setting::default(),
            operations: vec![Operation {
                name: "counter".into(),
                instructions,
                branches: 3.0,
                with_lto: None,
                functions: functions.collect(),
            }],
        }
    }

    #[test]
    fn a_rise_within_the_tolerance_passes_and_one_above_names_the_functions() {
        let before = hottest(100.0, &[("add", 60.0), ("find", 40.0)]);
        assert!(hottest(102.9, &[("add", 62.9), ("find", 40.0)]).losses(&before).is_empty());
        let losses = hottest(104.0, &[("add", 59.0), ("find", 45.0)]).losses(&before);
        assert_eq!(losses.len(), 1);
        assert!(losses[0].ends_with("By function:\n  +5.0 find\n  -1.0 add"), "{}", losses[0]);
    }
}
