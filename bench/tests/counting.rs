//! Every contender takes every turn once, and the figures are valid records.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

use quipu_bench::counting::{WORKLOADS, entrants};
use quipu_bench::{output, record};

#[test]
fn all_contenders_take_their_turns() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_counting"));
    command.args(["--quick", "--runs", "1", "--folder"]).arg(folder.path());
    // The contender in Go has its own tests.
    for entrant in entrants() {
        command.args(["--contender", entrant.key]);
    }
    assert!(command.stderr(Stdio::null()).status().unwrap().success());

    let records = record::read(&output::records_path(folder.path(), "counting")).unwrap();
    let subjects: BTreeSet<&str> = records.iter().map(|record| record.subject.as_str()).collect();
    assert_eq!(subjects.len(), entrants().len(), "{subjects:?}");
    let cases: BTreeSet<&str> = records
        .iter()
        .filter(|record| record.subject == "quipu")
        .filter_map(|record| Some(record.case.split_once('/')?.0))
        .collect();
    assert!(cases.len() > WORKLOADS.len(), "{cases:?}");
}

#[test]
fn the_tables_of_the_seed_can_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_counting_seed"));
    command.args(["--quick", "--folder"]).arg(folder.path()).stdout(Stdio::null());
    assert!(command.stderr(Stdio::null()).status().unwrap().success());
    let records = record::read(&output::records_path(folder.path(), "counting-seed")).unwrap();
    // Seven libraries in five groups, one twice in one of them, and time, allocations and bytes.
    assert_eq!(records.len(), 3 * (5 * 7 + 1));
}
