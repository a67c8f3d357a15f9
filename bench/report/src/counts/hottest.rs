//! The recorded instructions of quipu's hottest operations.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::figures::{Setting, read_lines, write_lines};
use crate::Result;

/// The counts of all operations.
pub struct Hottest {
    /// The tools.
    pub setting: Setting,
    /// The counts, in the order of the table.
    pub operations: Vec<Operation>,
}

/// Instructions per operation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Operation {
    /// The name of the operation.
    pub name: String,
    /// The instructions with Cargo's default release profile.
    pub instructions: f64,
    /// The conditional branches.
    pub branches: f64,
    /// The instructions with link-time optimisation, which are recorded only for information.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub with_lto: Option<f64>,
    /// The instructions of each function itself, if they are at least a tenth of an instruction.
    pub functions: BTreeMap<String, f64>,
}

impl Hottest {
    /// Reads the recorded figures: one JSON object per line. The first is the setting.
    pub fn read(path: &Path) -> Result<Hottest> {
        let (setting, operations) = read_lines(path)?;
        Ok(Hottest { setting, operations })
    }

    /// Records the figures.
    pub fn write(&self, path: &Path) -> Result<()> {
        write_lines(path, &self.setting, &self.operations)
    }

    /// The tools, as a sentence.
    pub fn tools(&self) -> String {
        let Setting { rustc, llvm, target, libc, valgrind, .. } = &self.setting;
        format!("rustc {rustc} (LLVM {llvm}), {target}, {libc}, {valgrind}.")
    }

    /// A Markdown table.
    pub fn table(&self) -> String {
        let head = "| operation | instructions | branches | instructions with LTO |";
        let mut text = format!("{head}\n| --- | ---: | ---: | ---: |");
        for Operation { name, instructions, branches, with_lto, .. } in &self.operations {
            let with_lto = with_lto.map_or("-".into(), |count| format!("{count:.1}"));
            let _ = write!(text, "\n| `{name}` | {instructions:.1} | {branches:.1} | {with_lto} |");
        }
        text
    }
}
