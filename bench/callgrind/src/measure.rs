//! Runs every case under callgrind, through gungraun, and reads the counts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use serde_json::Value;

use crate::error::{Error, Result};
use crate::figures::{Count, Figures, LIBRARIES, Setting};
use crate::table::TABLES;

/// The version of the runner, which must be that of the library.
const RUNNER: &str = "0.20.0";

/// Counts all cells.
pub(crate) fn all(root: &Path) -> Result<Figures> {
    let setting = setting(root)?;
    let runner = runner(root)?;
    eprintln!("arena-table: counting {} cells, which takes a minute or two", 46 * LIBRARIES.len());
    let package = env!("CARGO_PKG_NAME");
    // Remove the results of an earlier run.
    let folder = target(root).join("gungraun").join(package);
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(Error::file("remove", &folder))?;
    }
    let mut bench = Command::new(cargo());
    bench
        .current_dir(root)
        .env("GUNGRAUN_RUNNER", &runner)
        .args(["bench", "--locked", "--profile", "counted", "--package", package])
        .args(["--bench", "arena", "--", "--save-summary=json", "--parallel"]);
    run(&mut bench)?;

    let mut counts = BTreeMap::new();
    for case in TABLES.iter().flat_map(|table| table.cases) {
        for (library, _) in LIBRARIES {
            let path = folder.join("arena").join(case).join(library).join("summary.json");
            counts.insert(((*case).to_owned(), library.to_owned()), count(&path)?);
        }
    }
    Ok(Figures { setting, counts })
}

/// Reads a summary of gungraun.
fn count(path: &Path) -> Result<Count> {
    let text = fs::read_to_string(path).map_err(Error::file("read", path))?;
    let summary: Value = serde_json::from_str(&text)
        .map_err(|error| Error::Content(path.into(), format!("no summary: {error}")))?;
    let metric = |name: &str| {
        let pointer = format!("/profiles/0/data/total/metrics/{name}/values/new");
        summary.pointer(&pointer).and_then(Value::as_u64).ok_or_else(|| {
            Error::Content(path.into(), format!("no count of {name}: another version of gungraun?"))
        })
    };
    let count = Count { instructions: metric("Ir")?, branches: metric("Bc")? };
    if count.instructions == 0 {
        return Err(Error::Content(path.into(), "counted nothing: no function was entered".into()));
    }
    Ok(count)
}

/// The runner of gungraun, installed if it is missing.
fn runner(root: &Path) -> Result<PathBuf> {
    let folder = target(root).join("tools");
    let runner = folder.join("bin/gungraun-runner");
    let installed = output(Command::new(&runner).arg("--version")).unwrap_or_default();
    if !installed.contains(RUNNER) {
        eprintln!("arena-table: installing gungraun-runner {RUNNER} into {}", folder.display());
        let mut install = Command::new(cargo());
        install
            .args(["install", "--quiet", "--locked", "--force", "gungraun-runner"])
            .args(["--version", &format!("={RUNNER}"), "--root"])
            .arg(&folder);
        run(&mut install)?;
    }
    Ok(runner)
}

/// The libraries and tools of the measurement.
fn setting(root: &Path) -> Result<Setting> {
    let rustc = output(Command::new("rustc").arg("-vV"))?;
    let field = |name: &str| {
        let line = rustc.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap_or("unknown").trim().to_owned()
    };
    let valgrind = output(Command::new("valgrind").arg("--version")).map_err(|_| {
        Error::Program("valgrind".into(), "is not installed; `make tools` installs it".into())
    })?;
    let libc = output(Command::new("getconf").arg("GNU_LIBC_VERSION")).unwrap_or_default();
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cpu = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split(':').nth(1));
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
        cpu: cpu.unwrap_or("unknown").trim().to_owned(),
        libraries: libraries.into_iter().filter_map(version).collect(),
    })
}

fn cargo() -> PathBuf {
    env::var_os("CARGO").map_or_else(|| "cargo".into(), PathBuf::from)
}

fn target(root: &Path) -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

fn run(command: &mut Command) -> Result<()> {
    let program = format!("{command:?}");
    let output = command
        .output()
        .map_err(|error| Error::Program(program.clone(), format!("does not start: {error}")))?;
    if output.status.success() {
        return Ok(());
    }
    let text =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    Err(Error::Program(program, format!("failed: {}\n{}", text[0], text[1])))
}

fn output(command: &mut Command) -> Result<String> {
    let program = format!("{command:?}");
    match command.output() {
        Ok(output) if output.status.success() => {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        }
        Ok(output) => Err(Error::Program(program, format!("failed: {}", output.status))),
        Err(error) => Err(Error::Program(program, format!("does not start: {error}"))),
    }
}
