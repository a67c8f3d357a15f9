//! The counts of all cells, and the file that records them: one JSON object per line.
//!
//! The first line has the versions of the libraries and tools; each other line is a cell.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// The symbol of a library's functions, and its name in the tables.
pub(crate) type Library = (&'static str, &'static str);

/// Quipu's arenas, by policy.
pub(crate) const OURS: [Library; 6] = [
    ("quipu_up", "quipu up"),
    ("quipu_down", "quipu down"),
    ("quipu_up_reclaim", "quipu up, reclaiming"),
    ("quipu_down_reclaim", "quipu down, reclaiming"),
    ("quipu_up_keep", "quipu up, keeping"),
    ("quipu_down_keep", "quipu down, keeping"),
];

/// The peers with their default settings.
pub(crate) const PEERS: [Library; 4] = [
    ("bump_scope_up", "bump-scope up"),
    ("bump_scope_down", "bump-scope down"),
    ("bumpalo", "bumpalo"),
    ("blink_alloc", "blink-alloc"),
];

/// bump-scope with `SHRINKS` and `CLAIMABLE` false, so that shrinking a block frees nothing.
pub(crate) const NO_SHRINK: [Library; 2] = [
    ("bump_scope_up_no_shrink", "bump-scope up, no shrinks"),
    ("bump_scope_down_no_shrink", "bump-scope down, no shrinks"),
];

/// The same with `DEALLOCATES` false, so that freeing a block does nothing.
pub(crate) const NO_FREE: [Library; 2] = [
    ("bump_scope_up_no_free", "bump-scope up, no frees"),
    ("bump_scope_down_no_free", "bump-scope down, no frees"),
];

/// The peers of a comparison. Each has those of the one before.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd)]
pub(crate) enum Peers {
    Default,
    NoShrink,
    NoFree,
}

impl Peers {
    /// All comparisons, in order.
    pub(crate) const ALL: [Peers; 3] = [Peers::Default, Peers::NoShrink, Peers::NoFree];

    /// The symbols of the peers.
    pub(crate) fn symbols(self) -> impl Iterator<Item = &'static str> {
        let settings = NO_SHRINK.into_iter().filter(move |_| self >= Peers::NoShrink);
        let settings = settings.chain(NO_FREE.into_iter().filter(move |_| self >= Peers::NoFree));
        PEERS.into_iter().chain(settings).map(|(symbol, _)| symbol)
    }
}

/// The counts of one case of one library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Count {
    pub(crate) instructions: u64,
    pub(crate) branches: u64,
}

/// The libraries and tools of a measurement: figures of different compilers are not comparable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Setting {
    pub(crate) rustc: String,
    pub(crate) llvm: String,
    pub(crate) target: String,
    pub(crate) libc: String,
    pub(crate) valgrind: String,
    /// The libraries and their versions.
    pub(crate) libraries: BTreeMap<String, String>,
}

impl Setting {
    /// As [`Setting::comparable`]; if not, says so.
    pub(crate) fn compare(&self, recorded: &Setting, what: &str) -> bool {
        let comparable = self.comparable(recorded);
        if !comparable {
            eprintln!(
                "counts: NOT COMPARED with the recorded {what}, which another compiler, libc or \
                 valgrind counted; `make record-counts` records new ones"
            );
        }
        comparable
    }

    /// Whether a count of ours is comparable under both. The versions of the libraries, which
    /// include ours, do not matter.
    pub(crate) fn comparable(&self, other: &Setting) -> bool {
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
pub(crate) struct Figures {
    pub(crate) setting: Setting,
    /// The counts by case and symbol of the library.
    pub(crate) counts: BTreeMap<(String, String), Count>,
}

impl Figures {
    /// One cell. Blink-alloc has none in cases that require a minimum alignment.
    pub(crate) fn count(&self, case: &str, library: &str) -> Option<Count> {
        if library == "blink_alloc" && case.ends_with("aligned") {
            return None;
        }
        self.counts.get(&(case.to_owned(), library.to_owned())).copied()
    }

    /// Reads the recorded figures.
    pub(crate) fn read(path: &Path) -> Result<Figures> {
        let (setting, lines) = read_lines::<Line>(path)?;
        let counts = lines.into_iter().map(|line| ((line.case, line.library), line.count));
        Ok(Figures { setting, counts: counts.collect() })
    }

    /// Records the figures.
    pub(crate) fn write(&self, path: &Path) -> Result<()> {
        let line = |((case, library), &count): (&(String, String), &Count)| Line {
            case: case.clone(),
            library: library.clone(),
            count,
        };
        write_lines(path, &self.setting, self.counts.iter().map(line))
    }
}

/// Reads a file with one JSON object per line, of which the first is the setting.
pub(crate) fn read_lines<T: DeserializeOwned>(path: &Path) -> Result<(Setting, Vec<T>)> {
    let text = fs::read_to_string(path).map_err(Error::file("read", path))?;
    let broken = |error| Error::Content(path.into(), format!("no figures: {error}"));
    let mut lines = text.lines();
    let setting = serde_json::from_str(lines.next().unwrap_or_default()).map_err(broken)?;
    let lines = lines.map(serde_json::from_str).collect::<serde_json::Result<_>>();
    Ok((setting, lines.map_err(broken)?))
}

/// Writes what [`read_lines`] reads.
pub(crate) fn write_lines<T: Serialize>(
    path: &Path,
    setting: &Setting,
    lines: impl IntoIterator<Item = T>,
) -> Result<()> {
    let broken = |error| Error::Content(path.into(), format!("cannot be written: {error}"));
    let mut text = serde_json::to_string(setting).map_err(broken)? + "\n";
    for line in lines {
        text += &(serde_json::to_string(&line).map_err(broken)? + "\n");
    }
    fs::write(path, text).map_err(Error::file("write", path))
}
