//! Looks for segments, and for directories with files of several processes, at the places of the
//! settings.
//!
//! A place is a file, a directory, or a pattern of paths. In a directory, files whose names end in
//! `.quipu` are segments, at most two directories further down. A directory with files such as
//! `counter_1.db` or `metric_x___1.bin` is a source itself. Symbolic links are followed where a
//! place names them, and not inside of directories, which other users may write to.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use glob::{MatchOptions, glob_with};
use quipu_store::files::Directories;

/// A source that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) path: PathBuf,
    /// Its path inside of the place, without the end `.quipu`.
    pub(super) name: String,
    pub(super) kind: Kind,
}

/// What is at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A segment file.
    Segment,
    /// A directory with files of several processes.
    Directory,
}

/// What a look at all places found.
#[derive(Debug, Default)]
pub(super) struct Look {
    /// In the order of the places, and of the names.
    pub(super) found: Vec<Found>,
    /// The directories in which more may appear.
    pub(super) directories: BTreeSet<PathBuf>,
    /// What could not be looked at, and why.
    pub(super) faults: Vec<(PathBuf, String)>,
    /// Whether there was more than a look takes.
    pub(super) is_cut: bool,
    /// The entries of directories that were looked at.
    entries: usize,
}

/// How far below a directory segments are looked for.
const DEPTH: usize = 2;
/// The most entries of directories in one look, and the most directories that are watched.
const MAX_ENTRIES: usize = 100_000;
const MAX_DIRECTORIES: usize = 4096;

/// Looks at all places.
pub(super) fn look(places: &[String]) -> Look {
    let mut look = Look::default();
    for place in places {
        match place.contains(['*', '?', '[']) {
            true => look.pattern(place),
            false => look.place(Path::new(place), Path::new(place)),
        }
    }
    look
}

/// The part of a pattern before its first component with a special character.
fn base_of(pattern: &str) -> &Path {
    let end = pattern.find(['*', '?', '[']).unwrap_or(pattern.len());
    let end = pattern[..end].rfind('/').map_or(0, |at| at.max(1));
    Path::new(if end == 0 { "." } else { &pattern[..end] })
}

impl Look {
    fn pattern(&mut self, pattern: &str) {
        let base = base_of(pattern);
        self.watch(base);
        let options = MatchOptions {
            case_sensitive: true,
            require_literal_separator: true,
            require_literal_leading_dot: true,
        };
        // The settings were checked: it is a pattern.
        let Ok(paths) = glob_with(pattern, options) else { return };
        for path in paths.flatten() {
            if !self.takes_entry() {
                return;
            }
            if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
                self.watch(parent);
            }
            let base = if path.starts_with(base) { base } else { Path::new("") };
            self.place(&path, base);
        }
    }

    /// A path that a place names, or that a pattern led to.
    fn place(&mut self, path: &Path, base: &Path) {
        match fs::metadata(path) {
            Ok(data) if data.is_dir() => return self.directory(path, base, DEPTH),
            Ok(data) if data.is_file() => self.add(path, base, Kind::Segment),
            Ok(_) => {
                let what = "it is neither a file nor a directory".to_owned();
                self.faults.push((path.to_owned(), what));
            }
            Err(error) => self.faults.push((path.to_owned(), error.to_string())),
        }
        if path == base
            && let Some(parent) = path.parent()
        {
            // It may be made, or replaced, later.
            self.watch(if parent.as_os_str().is_empty() { Path::new(".") } else { parent });
        }
    }

    fn directory(&mut self, path: &Path, base: &Path, depth: usize) {
        self.watch(path);
        let entries = match fs::read_dir(path) {
            Ok(entries) => entries,
            Err(error) => return self.faults.push((path.to_owned(), error.to_string())),
        };
        let (mut segments, mut below, mut may_have_values) = (Vec::new(), Vec::new(), false);
        for entry in entries.flatten() {
            if !self.takes_entry() {
                break;
            }
            let Ok(kind) = entry.file_type() else { continue };
            let path = entry.path();
            let end = path.extension().and_then(|end| end.to_str());
            match end {
                Some("quipu") if kind.is_file() => segments.push(path),
                Some("db" | "bin") if kind.is_file() => may_have_values = true,
                _ if kind.is_dir() && depth > 0 => below.push(path),
                _ => {}
            }
        }
        segments.sort();
        below.sort();
        segments.iter().for_each(|segment| self.add(segment, base, Kind::Segment));
        if may_have_values && Directories::new([path]).count().is_ok_and(|files| files > 0) {
            self.add(path, base, Kind::Directory);
        }
        below.iter().for_each(|path| self.directory(path, base, depth - 1));
    }

    fn add(&mut self, path: &Path, base: &Path, kind: Kind) {
        let inside = path.strip_prefix(base).unwrap_or(path);
        let inside = match (inside.as_os_str().is_empty(), path.file_name()) {
            (true, Some(name)) => Path::new(name),
            _ => inside,
        };
        let name = inside.to_string_lossy();
        let name = match kind {
            Kind::Segment => name.strip_suffix(".quipu").unwrap_or(&name),
            Kind::Directory => &name,
        };
        self.found.push(Found { path: path.to_owned(), name: name.to_owned(), kind });
    }

    fn watch(&mut self, path: &Path) {
        if self.directories.len() < MAX_DIRECTORIES {
            self.directories.insert(path.to_owned());
        }
    }

    fn takes_entry(&mut self) -> bool {
        self.entries += 1;
        self.is_cut |= self.entries > MAX_ENTRIES;
        !self.is_cut
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_inside_of_a_place() {
        let home = tempfile::tempdir().unwrap();
        let root = home.path();
        for name in ["web/1.quipu", "web/a/b/c.quipu", "web/a/b/c/d.quipu", "mail.quipu", "x.txt"] {
            let path = root.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        fs::write(root.join("web/counter_1.db"), "").unwrap();
        std::os::unix::fs::symlink(root.join("mail.quipu"), root.join("link.quipu")).unwrap();
        let names = |place: &str| {
            let place = root.join(place).to_str().unwrap().trim_end_matches('/').to_owned();
            let look = look(&[place]);
            let names = look.found.into_iter().map(|one| format!("{:?} {}", one.kind, one.name));
            (names.collect::<Vec<_>>(), look.faults.len())
        };
        let all = ["Segment mail", "Segment web/1", "Directory web"];
        assert_eq!(names(""), (all.map(String::from).into(), 0));
        let inside = ["Segment 1", "Directory web", "Segment a/b/c"];
        assert_eq!(names("web"), (inside.map(String::from).into(), 0));
        assert_eq!(names("link.quipu").0, ["Segment link"]);
        assert_eq!(names("*/*.quipu").0, ["Segment web/1"]);
        assert_eq!(names("w*").0, ["Segment web/1", "Directory web", "Segment web/a/b/c"]);
        assert_eq!(names("none"), (Vec::new(), 1));
        assert_eq!(base_of("/run/a*/b"), Path::new("/run"));
        assert_eq!(base_of("/*"), Path::new("/"));
        assert_eq!(base_of("*.quipu"), Path::new("."));
    }
}
