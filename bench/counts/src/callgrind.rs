//! Runs the cells of a table under callgrind, and reads the counts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use quipu_bench_report::counts::figures::{Count, Setting};
use quipu_bench_report::{Error, Result};

/// The counts of a cell.
pub(crate) struct Counted {
    pub(crate) name: String,
    /// The number of operations between entering and leaving the entry function.
    pub(crate) operations: u64,
    pub(crate) total: Count,
    /// The instructions of each function itself, without the functions that it calls.
    pub(crate) functions: BTreeMap<String, u64>,
}

/// The profile of the cells.
#[derive(Clone, Copy)]
pub(crate) enum Profile {
    /// Cargo's default release profile, like most programs.
    Default,
    /// With link-time optimisation, and one codegen unit per crate.
    Lto,
}

impl Profile {
    /// Returns the profile's name in the workspace.
    fn name(self) -> &'static str {
        match self {
            Profile::Default => "default-release",
            Profile::Lto => "release",
        }
    }
}

/// Builds the cells, and counts those of a table.
pub(crate) fn count(root: &Path, table: &str, profile: Profile) -> Result<Vec<Counted>> {
    let mut build = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    build
        .current_dir(root)
        // Incremental compilation divides crates differently, and inlines less.
        .env("CARGO_INCREMENTAL", "0")
        .args(["build", "--locked", "--quiet", "--profile", profile.name()])
        .args(["--package", "quipu-bench-callgrind", "--bin", "cells"]);
    output(&mut build)?;

    let target = target(root);
    let folder = target.join("callgrind").join(table);
    // Remove the results of an earlier run.
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(Error::file("remove", &folder))?;
    }
    fs::create_dir_all(&folder).map_err(Error::file("create", &folder))?;
    let mut valgrind = Command::new("valgrind");
    valgrind
        .args(["--tool=callgrind", "--quiet", "--branch-sim=yes", "--toggle-collect=entry_*"])
        .args(["--compress-strings=no", "--compress-pos=no", "--dump-line=no"])
        .arg(format!("--callgrind-out-file={}/%p", folder.display()))
        .arg(target.join(profile.name()).join("cells"))
        .arg(table);
    let printed = output(&mut valgrind)?;
    printed.lines().map(|line| read(&folder, line)).collect()
}

/// Reads the file of the cell that a line `PID OPERATIONS NAME` names.
fn read(folder: &Path, line: &str) -> Result<Counted> {
    let unexpected = || Error::report(format!("{}: no cell: {line:?}", folder.display()));
    let mut words = line.split(' ');
    let mut word = || words.next().ok_or_else(unexpected);
    let (pid, operations, name) = (word()?, word()?, word()?.to_owned());
    let operations = operations.parse().map_err(|_| unexpected())?;
    let path = folder.join(pid);
    let text = fs::read_to_string(&path).map_err(Error::file("read", &path))?;
    let (total, functions) = parse(&text).ok_or_else(|| {
        Error::report(format!("{} has no counts of {name}: not entered?", path.display()))
    })?;
    Ok(Counted { name, operations, total, functions })
}

/// Parses callgrind's output: the total of instructions (`Ir`) and conditional branches (`Bc`), and
/// the instructions of each function. Returns `None` for an empty count.
fn parse(text: &str) -> Option<(Count, BTreeMap<String, u64>)> {
    let after = |prefix: &str| text.lines().find_map(|line| line.strip_prefix(prefix));
    let events: Vec<&str> = after("events: ")?.split_whitespace().collect();
    let column = |name: &str| events.iter().position(|event| *event == name);
    let (instructions, branches) = (column("Ir")?, column("Bc")?);
    let cost = |costs: &str, column: usize| -> u64 {
        costs.split_whitespace().nth(column).and_then(|cost| cost.parse().ok()).unwrap_or(0)
    };
    let totals = after("summary: ").or_else(|| after("totals: "))?;
    let total =
        Count { instructions: cost(totals, instructions), branches: cost(totals, branches) };

    let mut functions = BTreeMap::<String, u64>::new();
    let (mut function, mut is_call) = ("", false);
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("fn=") {
            function = name;
        } else if line.starts_with("calls=") {
            // The next line contains the cost of the called function.
            is_call = true;
        } else if line.starts_with(|first: char| first.is_ascii_digit()) {
            let own = if is_call { 0 } else { cost(line, instructions + 1) };
            is_call = false;
            if own > 0 {
                *functions.entry(function.to_owned()).or_default() += own;
            }
        }
    }
    (total.instructions > 0).then_some((total, functions))
}

/// The libraries and tools of the measurement.
pub(crate) fn setting(root: &Path) -> Result<Setting> {
    let rustc = output(Command::new("rustc").arg("-vV"))?;
    let field = |name: &str| {
        let line = rustc.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or("unknown").trim().to_owned()
    };
    let valgrind = output(Command::new("valgrind").arg("--version"))
        .map_err(|_| Error::command("valgrind", "is not installed; `make tools` installs it"))?;
    let libc = output(Command::new("getconf").arg("GNU_LIBC_VERSION")).unwrap_or_default();
    let path = root.join("Cargo.lock");
    let lock = fs::read_to_string(&path).map_err(Error::file("read", &path))?;
    let libraries = ["quipu-arena", "bump-scope", "bumpalo", "blink-alloc"];
    let version = |name: &str| {
        let entry = format!("name = \"{name}\"\nversion = \"");
        let version = lock.split_once(&entry)?.1.split('"').next()?;
        Some((name.to_owned(), version.to_owned()))
    };
    Ok(Setting {
        rustc: field("release:"),
        llvm: field("LLVM version:"),
        target: field("host:"),
        libc: libc.trim().to_owned(),
        valgrind: valgrind.trim().to_owned(),
        libraries: libraries.into_iter().filter_map(version).collect(),
    })
}

fn target(root: &Path) -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

fn output(command: &mut Command) -> Result<String> {
    let program = format!("{command:?}");
    match command.output() {
        Ok(output) if output.status.success() => {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        }
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            Err(Error::command(program, format!("failed: {}\n{text}", output.status)))
        }
        Err(error) => Err(Error::command(program, format!("does not start: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_of_calls_are_not_those_of_the_caller() {
        let text = "events: Ir Bc Bcm\nsummary: 17 3 0\n\nfn=entry_a\n0 5 1 0\n\
                    cfn=b\ncalls=1 0\n0 12 2 0\n0 1 0 0\nfn=b\n0 11 2 0\n";
        let (total, functions) = parse(text).expect("there are counts");
        assert_eq!(total, Count { instructions: 17, branches: 3 });
        assert_eq!(functions, BTreeMap::from([("entry_a".into(), 6), ("b".into(), 11)]));
    }

    #[test]
    fn a_function_that_was_not_entered_has_no_counts() {
        assert!(parse("events: Ir Bc\nsummary: 0 0\n").is_none());
        assert!(parse("").is_none());
    }
}
