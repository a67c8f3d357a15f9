//! The counts of all cells, and the file that records them: one JSON object per line.
//!
//! The first line contains the versions of the libraries and tools; each other line is a cell.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// The symbol of a library's functions, and its name in the tables.
pub type Library = (&'static str, &'static str);

/// Quipu's arenas, by policy.
pub const OURS: [Library; 6] = [
    ("quipu_up", "quipu up"),
    ("quipu_down", "quipu down"),
    ("quipu_up_reclaim", "quipu up, reclaiming"),
    ("quipu_down_reclaim", "quipu down, reclaiming"),
    ("quipu_up_keep", "quipu up, keeping"),
    ("quipu_down_keep", "quipu down, keeping"),
];

/// The peers with their default settings.
pub const PEERS: [Library; 4] = [
    ("bump_scope_up", "bump-scope up"),
    ("bump_scope_down", "bump-scope down"),
    ("bumpalo", "bumpalo"),
    ("blink_alloc", "blink-alloc"),
];

/// bump-scope with `SHRINKS` and `CLAIMABLE` false, because then shrinking a block frees no memory.
pub const NO_SHRINK: [Library; 2] = [
    ("bump_scope_up_no_shrink", "bump-scope up, no shrinks"),
    ("bump_scope_down_no_shrink", "bump-scope down, no shrinks"),
];

/// The variants with `DEALLOCATES` false, where freeing a block does not free its memory.
pub const NO_FREE: [Library; 2] = [
    ("bump_scope_up_no_free", "bump-scope up, no frees"),
    ("bump_scope_down_no_free", "bump-scope down, no frees"),
];

/// The peers of a comparison. Each comparison includes the peers of the previous one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd)]
pub enum Peers {
    /// With their default settings.
    Default,
    /// Also bump-scope without shrinks.
    NoShrink,
    /// Also bump-scope without frees.
    NoFree,
}

impl Peers {
    /// All comparisons, in order.
    pub const ALL: [Peers; 3] = [Peers::Default, Peers::NoShrink, Peers::NoFree];

    /// The symbols of the peers.
    pub fn symbols(self) -> impl Iterator<Item = &'static str> {
        let settings = NO_SHRINK.into_iter().filter(move |_| self >= Peers::NoShrink);
        let settings = settings.chain(NO_FREE.into_iter().filter(move |_| self >= Peers::NoFree));
        PEERS.into_iter().chain(settings).map(|(symbol, _)| symbol)
    }
}

/// The counts of one case of one library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// The instructions.
    pub instructions: u64,
    /// The conditional branches.
    pub branches: u64,
}

impl Count {
    /// Returns whether either count is above a limit.
    pub fn exceeds(self, limit: Count) -> bool {
        self.instructions > limit.instructions || self.branches > limit.branches
    }
}

/// The libraries and tools of a measurement: figures of different compilers are not comparable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// The version of the compiler.
    pub rustc: String,
    /// The version of its LLVM.
    pub llvm: String,
    /// The target, such as `x86_64-unknown-linux-gnu`.
    pub target: String,
    /// The C library and its version.
    pub libc: String,
    /// The version of valgrind.
    pub valgrind: String,
    /// The libraries and their versions.
    pub libraries: BTreeMap<String, String>,
}

impl Setting {
    /// Returns whether a count of ours can be compared under both. The versions of the libraries,
    /// which include ours, do not matter.
    pub fn comparable(&self, other: &Setting) -> bool {
        let tools = |setting: &Setting| {
            let Setting { rustc, llvm, target, libc, valgrind, libraries: _ } = setting.clone();
            [rustc, llvm, target, libc, valgrind]
        };
        tools(self) == tools(other)
    }
}

#[derive(Serialize, Deserialize)]
struct Line {
    case: String,
    library: String,
    #[serde(flatten)]
    count: Count,
}

/// The counts of all cells.
#[derive(Clone, Debug, Default)]
pub struct Figures {
    /// The libraries and tools.
    pub setting: Setting,
    /// The counts by case and symbol of the library.
    pub counts: BTreeMap<(String, String), Count>,
}

impl Figures {
    /// Returns one cell. For cases that require a minimum alignment, there is none of blink-alloc.
    pub fn count(&self, case: &str, library: &str) -> Option<Count> {
        if library == "blink_alloc" && case.ends_with("aligned") {
            return None;
        }
        self.counts.get(&(case.to_owned(), library.to_owned())).copied()
    }

    /// Reads the recorded figures.
    pub fn read(path: &Path) -> Result<Figures> {
        let (setting, lines) = read_lines::<Line>(path)?;
        let counts = lines.into_iter().map(|line| ((line.case, line.library), line.count));
        Ok(Figures { setting, counts: counts.collect() })
    }

    /// Records the figures.
    pub fn write(&self, path: &Path) -> Result<()> {
        let line = |((case, library), &count): (&(String, String), &Count)| Line {
            case: case.clone(),
            library: library.clone(),
            count,
        };
        write_lines(path, &self.setting, self.counts.iter().map(line))
    }
}

/// Reads a file with one JSON object per line. The first one is the setting.
pub fn read_lines<T: DeserializeOwned>(path: &Path) -> Result<(Setting, Vec<T>)> {
    let text = fs::read_to_string(path).map_err(Error::file("read", path))?;
    let at = |line: usize| {
        move |error: serde_json::Error| {
            Error::line(path.display().to_string(), line + 1, format!("no figures: {error}"))
        }
    };
    let mut lines = text.lines().enumerate();
    let (_, first) = lines.next().unwrap_or_default();
    let setting = serde_json::from_str(first).map_err(at(0))?;
    let lines = lines.map(|(number, line)| serde_json::from_str(line).map_err(at(number)));
    Ok((setting, lines.collect::<Result<_>>()?))
}

/// Writes the file that [`read_lines`] reads.
pub fn write_lines<T: Serialize>(
    path: &Path,
    setting: &Setting,
    lines: impl IntoIterator<Item = T>,
) -> Result<()> {
    let json =
        |object: serde_json::Result<String>| object.expect("names and counts are JSON") + "\n";
    let mut text = json(serde_json::to_string(setting));
    for line in lines {
        text += &json(serde_json::to_string(&line));
    }
    fs::write(path, text).map_err(Error::file("write", path))
}

/// Returns the lowest instructions and, independently, the lowest branches of some libraries.
pub fn lowest<'a>(
    figures: &Figures,
    case: &str,
    libraries: impl IntoIterator<Item = &'a str>,
) -> Option<Count> {
    libraries.into_iter().filter_map(|library| figures.count(case, library)).reduce(|a, b| Count {
        instructions: a.instructions.min(b.instructions),
        branches: a.branches.min(b.branches),
    })
}
