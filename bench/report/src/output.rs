//! The output files of a benchmark: `NAME.jsonl` for its figures, and `NAME.machine.json`.

use std::fs;
use std::path::{Path, PathBuf};

use crate::machine::Machine;
use crate::record::{self, Record};
use crate::{Error, Result, profile};

/// The folder of the figures and reports in a checkout.
pub fn default_folder() -> PathBuf {
    crate::root().join("docs/benchmarks")
}

/// The path of a benchmark's records.
pub fn records_path(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.jsonl"))
}

/// The path of the description of the machine.
pub fn machine_path(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.machine.json"))
}

/// The figures of one benchmark, written as they are measured.
pub struct Output {
    path: PathBuf,
}

impl Output {
    /// Writes the description of the machine, and starts an empty file of records.
    pub fn create(folder: &Path, name: &str) -> Result<Output> {
        fs::create_dir_all(folder).map_err(Error::file("make the folder", folder))?;
        Machine::collect().write(&machine_path(folder, name))?;
        let path = records_path(folder, name);
        fs::write(&path, "").map_err(Error::file("write", &path))?;
        Ok(Output { path })
    }

    /// Like [`Output::create`], but keeps all records of an earlier run that are not replaced. This
    /// way, you can measure the parts of a benchmark one by one. The description of the machine is
    /// replaced by the last one.
    pub fn replace(
        folder: &Path,
        name: &str,
        is_replaced: impl Fn(&Record) -> bool,
    ) -> Result<Output> {
        let path = records_path(folder, name);
        let mut kept = if path.exists() { record::read(&path)? } else { Vec::new() };
        kept.retain(|record| !is_replaced(record));
        let output = Output::create(folder, name)?;
        output.push(&kept)?;
        Ok(output)
    }

    /// Like [`Output::create`], for a benchmark that is run with each profile.
    pub fn of_profile(folder: &Path, name: &str) -> Result<Output> {
        Output::create(folder, &profile::records_name(name))
    }

    /// Adds records.
    pub fn push(&self, records: &[Record]) -> Result<()> {
        record::append(&self.path, records)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Label;

    #[test]
    fn a_part_replaces_its_own_records() {
        let folder = tempfile::tempdir().unwrap();
        let record = |case: &str, value: f64| Label::new(case, "quipu", "time", "ns").of(&[value]);
        let all = Output::replace(folder.path(), "a", |_| true).unwrap();
        all.push(&[record("top/1", 1.0), record("worst", 2.0)]).unwrap();
        let part = Output::replace(folder.path(), "a", |it| it.case.starts_with("top/")).unwrap();
        part.push(&[record("top/1", 3.0)]).unwrap();
        let records = record::read(&records_path(folder.path(), "a")).unwrap();
        assert_eq!(records, [record("worst", 2.0), record("top/1", 3.0)]);
    }
}
