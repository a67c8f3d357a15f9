//! Scans the configured paths for sources: segment files and multi-process directories.
//!
//! A *place* is one configured path: a file, a directory, or a pattern of paths. In a directory,
//! files whose names end in `.quipu` are segments, down to two levels of subdirectories. A
//! directory with files such as `counter_1.db` or `metric_x___1.bin` is itself a source. Symbolic
//! links are followed only in the configured path; in a pattern, only before the first component
//! with a special character. Links inside of directories and in the matches of a pattern are not
//! followed, because other users may be able to write there.
//!
//! A [`Scan`] contains whether it is complete. If not, there may be more sources.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use glob::{MatchOptions, Pattern};
use quipu_store::files::{Directories, open_below};
use rustix::fs::{AtFlags, Dir, FileType, OFlags, Stat, statat};

use crate::segment_file::{FileId, file_id};

/// A source that a scan found: a segment file or a multi-process directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceEntry {
    /// The path of the source.
    pub path: PathBuf,
    /// The beginning of the path, where symbolic links may be followed.
    pub root: PathBuf,
    /// The path below the configured path, without the suffix `.quipu`.
    pub name: String,
    /// The directory of the source below the configured path; empty for the configured path itself.
    pub branch: String,
    /// The kind of the source.
    pub kind: Kind,
    /// The identity of the file or directory at the time of the scan.
    pub id: FileId,
    /// The modification time.
    pub modified: Option<SystemTime>,
    /// Whether the file was read and does not begin like a segment.
    pub is_junk: bool,
}

/// The kind of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A segment file.
    Segment,
    /// A directory with files from several processes.
    Directory,
}

/// The result of a scan.
#[derive(Debug)]
pub struct Scan {
    /// The sources in the order of the configured paths, and of their names.
    pub sources: Vec<SourceEntry>,
    /// The directories where sources can appear later.
    pub directories: BTreeSet<PathBuf>,
    /// The paths that could not be read, with the reasons.
    pub faults: Vec<(PathBuf, String)>,
    /// Whether the scan stopped at its limit of directory entries.
    pub is_cut: bool,
    /// Whether the scan may have missed sources.
    pub is_incomplete: bool,
    /// The number of directory entries that may still be examined.
    entries: usize,
}

/// A path to examine.
#[derive(Debug, Clone, Copy)]
struct Place<'a> {
    path: &'a Path,
    /// The beginning of the path, which is not a part of the source's name.
    base: &'a Path,
    /// See [`SourceEntry::root`].
    root: &'a Path,
}

/// The error of a configured path that does not exist, or does not exist yet.
pub const NOT_THERE: &str = "nothing is there";
const LINK: &str = "a pattern led to it, and it is a symbolic link; name it, or its target";
/// The maximum depth of subdirectories.
const DEPTH: usize = 2;
/// The maximum number of directory entries to examine below one configured path.
const MAX_ENTRIES: usize = 100_000;
/// The maximum number of directories to watch.
const MAX_DIRECTORIES: usize = 4096;

/// Scans all configured paths.
pub fn scan(places: &[String]) -> Scan {
    scan_at_most(places, MAX_ENTRIES)
}

/// Scans a single path. Special characters have no meaning here.
pub fn scan_path(path: &Path) -> Scan {
    let mut scan = Scan::at_most(MAX_ENTRIES);
    scan.place(Place { path, base: path, root: path });
    scan
}

/// The segments of a directory, by their names.
#[derive(Debug, Default)]
pub struct SegmentPaths {
    /// The paths that end in `.quipu`, sorted, without the directories below.
    pub paths: Vec<PathBuf>,
    /// Whether the directory contains more entries than a scan reads.
    pub is_cut: bool,
    /// The error that ended the scan, or hid an entry.
    pub error: Option<io::Error>,
}

/// Lists the segments of a directory. An error hides only the entries that it belongs to.
pub fn segment_paths_in(directory: &Path) -> SegmentPaths {
    let mut found = SegmentPaths::default();
    let mut entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) => return SegmentPaths { error: Some(error), ..found },
    };
    for entry in entries.by_ref().take(MAX_ENTRIES) {
        match entry.map(|entry| entry.path()) {
            Ok(path) if path.extension().is_some_and(|end| end == "quipu") => {
                found.paths.push(path)
            }
            Ok(_) => {}
            Err(error) => found.error = Some(error),
        }
    }
    found.paths.sort();
    found.is_cut = entries.next().is_some();
    found
}

fn scan_at_most(places: &[String], entries: usize) -> Scan {
    let mut scan = Scan::at_most(entries);
    for place in places {
        // Each configured path gets the full limit, because a path with too many entries must not
        // affect the others.
        scan.entries = entries;
        let path = Path::new(place);
        match has_special(place) {
            true => scan.pattern(place),
            false => scan.place(Place { path, base: path, root: path }),
        }
    }
    scan
}

/// Describes an error, with a remedy if the user lacks permission.
pub fn explained(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => format!(
            "{error}: this user may not read it. Share a group with its owner, and create files \
             with a mode such as 0660 (quipu inc --mode), as in \
             docs/daemon/segments-of-other-users.md"
        ),
        _ => error.to_string(),
    }
}

/// Returns whether this error means that a path does not exist. Other errors leave this undecided.
pub fn is_absent(error: &io::Error) -> bool {
    let is_loop = error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error());
    is_loop || matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory)
}

/// Returns whether a path does not exist.
pub fn is_missing(path: &Path) -> bool {
    matches!(fs::symlink_metadata(path), Err(error) if is_absent(&error))
}

fn has_special(text: &str) -> bool {
    text.contains(SPECIAL)
}

const SPECIAL: [char; 3] = ['*', '?', '['];

/// Returns the part of a pattern before its first component with a special character.
fn base_of(pattern: &str) -> &Path {
    let end = pattern.find(SPECIAL).unwrap_or(pattern.len());
    let end = pattern[..end].rfind('/').map_or(0, |at| at.max(1));
    Path::new(if end == 0 { "." } else { &pattern[..end] })
}

/// The patterns of file names that a scan can find.
#[derive(Debug)]
pub struct Names(Vec<Pattern>);

impl Names {
    /// Collects the patterns from the configured paths.
    pub fn from_places(places: &[String]) -> Self {
        let mut names = Vec::new();
        for place in places {
            let mut parts = place.split('/').filter(|part| !part.is_empty()).peekable();
            let mut is_past = false;
            while let Some(part) = parts.next() {
                is_past |= has_special(part);
                if is_past || parts.peek().is_none() {
                    // A component of a valid pattern is also a valid pattern.
                    names.extend(Pattern::new(part));
                }
            }
        }
        Self(names)
    }

    /// Returns whether a scan can find a file with this name.
    pub fn has(&self, name: &str) -> bool {
        let end = Path::new(name).extension().and_then(|end| end.to_str());
        matches!(end, Some("quipu" | "db" | "bin")) || self.0.iter().any(|one| one.matches(name))
    }
}

impl Scan {
    fn at_most(entries: usize) -> Self {
        Self {
            sources: Vec::new(),
            directories: BTreeSet::new(),
            faults: Vec::new(),
            is_cut: false,
            is_incomplete: false,
            entries,
        }
    }

    fn pattern(&mut self, pattern: &str) {
        let mut pattern = pattern;
        while let Some(rest) = pattern.strip_prefix("./") {
            pattern = rest.trim_start_matches('/');
        }
        // A path in the working directory does not begin with `.`.
        let base = Some(base_of(pattern)).filter(|base| *base != Path::new("."));
        let base = base.and_then(Path::to_str).unwrap_or("");
        let parts = pattern[base.len()..].split('/');
        let parts: Vec<&str> = parts.filter(|part| !matches!(*part, "" | ".")).collect();
        self.matches(Path::new(base), Path::new(base), &parts);
    }

    /// Examines a directory for matches of the remaining components of a pattern.
    fn matches(&mut self, base: &Path, directory: &Path, parts: &[&str]) {
        let Some((first, rest)) = parts.split_first() else { return };
        let shown = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
        self.watch(shown);
        let names = match has_special(first) {
            true => self.names_in(base, directory, first),
            false => Ok(vec![(*first).to_owned()]),
        };
        let names = match names {
            Ok(names) => names,
            // The path may be created later.
            Err(error) if is_absent(&error) => return,
            Err(error) => return self.fault(shown, &error),
        };
        for name in names {
            let path = directory.join(name);
            if rest.is_empty() {
                // A component without special characters may not exist.
                let is_there = has_special(first) || !is_missing(&path);
                if is_there {
                    self.place(Place { path: &path, base, root: base });
                }
                continue;
            }
            match fs::symlink_metadata(&path) {
                Ok(data) if data.is_dir() => self.matches(base, &path, rest),
                Ok(data) if data.is_symlink() => self.faults.push((path, LINK.to_owned())),
                Ok(_) => {}
                Err(error) if is_absent(&error) => {}
                Err(error) => self.fault(&path, &error),
            }
        }
    }

    /// Returns the names in a directory that match a component of a pattern, sorted.
    fn names_in(&mut self, base: &Path, directory: &Path, part: &str) -> io::Result<Vec<String>> {
        let options = MatchOptions {
            case_sensitive: true,
            require_literal_separator: true,
            require_literal_leading_dot: true,
        };
        // This cannot fail, because the settings were already checked.
        let Ok(part) = Pattern::new(part) else { return Ok(Vec::new()) };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK;
        let file = match directory.as_os_str().is_empty() {
            true => open_below(Path::new("."), Path::new("."), flags)?,
            false => open_below(base, directory, flags)?,
        };
        let mut names = Vec::new();
        for entry in Dir::read_from(&file)? {
            let entry = entry?;
            // Names that are not UTF-8 never match.
            let Ok(name) = entry.file_name().to_str() else { continue };
            if matches!(name, "." | "..") {
                continue;
            }
            if !self.takes_entry() {
                break;
            }
            if part.matches_with(name, options) {
                names.push(name.to_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    /// Examines a configured path, or a match of a pattern.
    fn place(&mut self, place: Place<'_>) {
        let Place { path, base, root } = place;
        // A match can be a symbolic link of another user, so it is not followed.
        let is_named = path == root;
        match if is_named { fs::metadata(path) } else { fs::symlink_metadata(path) } {
            Ok(data) if data.is_dir() => return self.directory(place, DEPTH),
            Ok(data) if data.is_file() => {
                self.add(place, Kind::Segment, file_id(&data), data.modified().ok());
            }
            Ok(data) => {
                let message = match data.is_symlink() {
                    true => LINK,
                    false => "it is neither a file nor a directory",
                };
                self.faults.push((path.to_owned(), message.to_owned()));
            }
            // The path may be created later.
            Err(error) if is_named && error.kind() == io::ErrorKind::NotFound => {
                self.faults.push((path.to_owned(), NOT_THERE.to_owned()));
            }
            Err(error) => self.fault(path, &error),
        }
        if path == base
            && let Some(parent) = path.parent()
        {
            // The file may be created or replaced later.
            self.watch(if parent.as_os_str().is_empty() { Path::new(".") } else { parent });
        }
    }

    fn directory(&mut self, place: Place<'_>, depth: usize) {
        let Place { path, root, .. } = place;
        self.watch(path);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK;
        let opened = open_below(root, path, flags)
            .and_then(|file| Ok((rustix::fs::fstat(&file)?, Dir::read_from(&file)?, file)));
        let (data, entries, file) = match opened {
            Ok(opened) => opened,
            Err(error) => return self.fault(path, &error),
        };
        let (mut segments, mut below, mut may_have_values) = (Vec::new(), Vec::new(), false);
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    self.fault(path, &error.into());
                    break;
                }
            };
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            if !self.takes_entry() {
                break;
            }
            let path = path.join(name);
            let end = path.extension().and_then(|end| end.to_str());
            let is_segment = end == Some("quipu");
            let mut kind = entry.file_type();
            if kind == FileType::Unknown || kind == FileType::RegularFile && is_segment {
                match statat(&file, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(data) => {
                        kind = FileType::from_raw_mode(data.st_mode);
                        if kind == FileType::RegularFile && is_segment {
                            segments.push((path, id_of(&data), modified(&data)));
                            continue;
                        }
                    }
                    Err(error) => {
                        self.fault(&path, &error.into());
                        continue;
                    }
                }
            }
            match (kind, end) {
                (FileType::RegularFile, Some("db" | "bin")) => may_have_values = true,
                (FileType::Directory, _) if depth > 0 => below.push(path),
                _ => {}
            }
        }
        segments.sort_by(|(a, ..), (b, ..)| a.cmp(b));
        below.sort();
        for (path, id, modified) in &segments {
            self.add(Place { path, ..place }, Kind::Segment, *id, *modified);
        }
        if may_have_values {
            match Directories::new([path]).below(root).count_files() {
                Ok(0) => {}
                Ok(_) => self.add(place, Kind::Directory, id_of(&data), None),
                Err(_) if !path.exists() => {}
                Err(_) => self.is_incomplete = true,
            }
        }
        below.iter().for_each(|path| self.directory(Place { path, ..place }, depth - 1));
    }

    /// Records a path that could not be examined. The scan is then incomplete, unless the path does
    /// not exist.
    fn fault(&mut self, path: &Path, error: &io::Error) {
        self.is_incomplete |= !is_absent(error);
        self.faults.push((path.to_owned(), explained(error)));
    }

    fn add(&mut self, place: Place<'_>, kind: Kind, id: FileId, modified: Option<SystemTime>) {
        let Place { path, base, root } = place;
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
        let branch = match (name.split_once('/'), kind) {
            (Some((first, _)), _) => first,
            (None, Kind::Directory) if path != base => name,
            (None, _) => "",
        };
        let (path, root) = (path.to_owned(), root.to_owned());
        let (name, branch) = (name.to_owned(), branch.to_owned());
        self.sources.push(SourceEntry {
            path,
            root,
            name,
            branch,
            kind,
            id,
            modified,
            is_junk: false,
        });
    }

    fn watch(&mut self, path: &Path) {
        if self.directories.len() < MAX_DIRECTORIES {
            self.directories.insert(path.to_owned());
        }
    }

    fn takes_entry(&mut self) -> bool {
        let left = self.entries.checked_sub(1);
        self.entries = left.unwrap_or(0);
        self.is_cut |= left.is_none();
        self.is_incomplete |= self.is_cut;
        left.is_some()
    }
}

fn id_of(data: &Stat) -> FileId {
    // The types of these fields differ between systems.
    #[allow(clippy::unnecessary_cast, reason = "not everywhere")]
    (data.st_dev as u64, data.st_ino as u64)
}

fn modified(data: &Stat) -> Option<SystemTime> {
    let seconds = u64::try_from(data.st_mtime).ok()?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_paths_inside_of_their_place() {
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
            let scan = scan(&[place]);
            let names = scan.sources.into_iter().map(|one| format!("{:?} {}", one.kind, one.name));
            (names.collect::<Vec<_>>(), scan.faults.len())
        };
        let all = ["Segment mail", "Segment web/1", "Directory web"];
        assert_eq!(names(""), (all.map(String::from).into(), 0));
        let inside = ["Segment 1", "Directory web", "Segment a/b/c"];
        assert_eq!(names("web"), (inside.map(String::from).into(), 0));
        assert_eq!(names("link.quipu").0, ["Segment link"]);
        assert_eq!(names("*/*.quipu").0, ["Segment web/1"]);
        assert_eq!(names("w*").0, ["Segment web/1", "Directory web", "Segment web/a/b/c"]);
        assert_eq!(names("none"), (Vec::new(), 1));
        let none = scan(&[root.join("none").to_str().unwrap().to_owned()]);
        assert_eq!((&*none.faults[0].1, none.is_incomplete), (NOT_THERE, false));
        let denied = explained(&io::ErrorKind::PermissionDenied.into());
        assert!(denied.contains("quipu inc --mode"), "{denied}");
        assert_eq!(names("*.quipu"), (vec!["Segment mail".to_owned()], 1));
        assert_eq!(base_of("/run/a*/b"), Path::new("/run"));
        assert_eq!(base_of("/*"), Path::new("/"));
        assert_eq!(base_of("*.quipu"), Path::new("."));
    }

    #[test]
    fn a_pattern_follows_no_links_and_reads_no_directory_twice() {
        let home = tempfile::tempdir().unwrap();
        let root = home.path();
        fs::create_dir_all(root.join("srv/u/run")).unwrap();
        fs::write(root.join("srv/u/run/a.quipu"), "").unwrap();
        for number in 0..20 {
            std::os::unix::fs::symlink(".", root.join(format!("srv/u/{number}"))).unwrap();
        }
        std::os::unix::fs::symlink("srv", root.join("link")).unwrap();
        // A link before the first special character is followed.
        let place = |rest: &str| [root.join("link").join(rest).to_str().unwrap().to_owned()];
        for rest in ["*/run/*.quipu", "u/*/a.quipu", "u/r?n/*"] {
            let scan = scan_at_most(&place(rest), 30);
            let names = scan.sources.iter().map(|one| (one.path.clone(), one.root.clone()));
            let base = base_of(&place(rest)[0]).to_owned();
            let path = root.join("link/u/run/a.quipu");
            assert_eq!(names.collect::<Vec<_>>(), [(path, base)], "{rest}");
            assert!(!scan.is_incomplete);
        }
        let scan = scan_at_most(&place("*/*/*/*/*/*/*/*.quipu"), 30);
        assert_eq!((scan.sources.len(), scan.is_incomplete), (0, false));
        assert_eq!(scan.faults.len(), 20);
        // All entries count, even if they do not match.
        assert!(scan_at_most(&place("u/x*/*"), 20).is_cut);
    }

    #[test]
    fn a_look_that_was_cut_reports_it() {
        let home = tempfile::tempdir().unwrap();
        for number in 0..10 {
            fs::write(home.path().join(format!("{number}.quipu")), "").unwrap();
        }
        let places = [home.path().to_str().unwrap().to_owned()];
        let whole = scan_at_most(&places, 10);
        assert_eq!((whole.sources.len(), whole.is_cut, whole.is_incomplete), (10, false, false));
        let cut = scan_at_most(&places, 9);
        assert_eq!((cut.sources.len(), cut.is_cut, cut.is_incomplete), (9, true, true));
        // The other place is examined nevertheless.
        let other = tempfile::tempdir().unwrap();
        fs::write(other.path().join("a.quipu"), "").unwrap();
        let both = [places[0].clone(), other.path().to_str().unwrap().to_owned()];
        let cut = scan_at_most(&both, 9);
        assert_eq!((cut.sources.len(), cut.is_cut, cut.is_incomplete), (10, true, true));
        // A missing path does not make a scan incomplete.
        assert!(!scan(&["/nowhere/at/all".to_owned()]).is_incomplete);
    }

    #[test]
    fn a_look_finds_the_names_of_its_places() {
        let places = ["/run/quipu", "/srv/*/metrics.x", "web[0-9]"].map(String::from);
        let names = Names::from_places(&places);
        for name in ["a.quipu", "counter_1.db", "x.bin", "quipu", "anything", "metrics.x"] {
            assert!(names.has(name), "{name}");
        }
        let names = Names::from_places(&["/run/quipu".to_owned(), "web[0-9].x".to_owned()]);
        assert!(names.has("web1.x") && names.has("quipu"));
        for name in ["a.tmp", "run", "web.x", "quipu.lock", ""] {
            assert!(!names.has(name), "{name}");
        }
    }
}
