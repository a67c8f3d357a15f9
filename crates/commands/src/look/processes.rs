//! Finds the files that a process has mapped, in `/proc/PID/maps`.
//!
//! A path in this list can name another file by now, so we compare the device and the inode number
//! of each file that we open.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::path::{Path, PathBuf};

use quipu_segment::inspect::open_regular;

use quipu_sources::procfs::{self, Mapping};
use quipu_sources::segment_file::{FileId, file_id};

/// The maximum number of bytes to read from the list. A mapping takes about a hundred bytes.
const MAX_BYTES: u64 = 32 << 20;
/// The suffix that the kernel appends to the path of a deleted file.
const MARK: &str = " (deleted)";

/// Returns the files that a process has mapped shared, without duplicates. Each has a unique name,
/// derived from its path. The file is `None` if it cannot be opened, or is not a regular file.
pub(super) fn mapped(
    pid: u32,
) -> Result<impl Iterator<Item = (String, Option<File>)> + use<>, String> {
    let failed = |error: io::Error| match error.kind() {
        ErrorKind::NotFound => format!("there is no process {pid}"),
        ErrorKind::PermissionDenied => {
            format!("the mappings of process {pid} cannot be read: run as its user")
        }
        _ => format!("the mappings of process {pid} cannot be read: {error}"),
    };
    let maps = File::open(format!("/proc/{pid}/maps")).map_err(failed)?;
    let mut found = BTreeMap::new();
    for line in BufReader::new(maps.take(MAX_BYTES)).split(b'\n') {
        let line = line.map_err(failed)?;
        let line = String::from_utf8_lossy(&line);
        if let Some((mapping, file)) = parse(&line) {
            let range = || mapping.range.to_owned();
            found.entry((mapping.path.to_owned(), file)).or_insert_with(range);
        }
    }
    let mut names = HashSet::new();
    let mut open = FileOpener::new(pid);
    Ok(found.into_iter().map(move |((path, id), range)| {
        let file = open.file(&path, id, &range);
        // We add a number, because several deleted files can have the same path.
        let name = match names.insert(path.clone()) {
            true => path,
            false => format!("{path}, inode {}", id.1),
        };
        (name, file)
    }))
}

/// Parses a shared mapping of a file, and the identity of this file.
fn parse(line: &str) -> Option<(Mapping<'_>, FileId)> {
    let mapping = Mapping::parse(line)?;
    let is_shared = mapping.permissions.ends_with('s') && mapping.path.starts_with('/');
    mapping.file().filter(|_| is_shared).map(|file| (mapping, file))
}

/// Removes the suffix of a deleted file.
pub(super) fn without_mark(path: &str) -> &str {
    path.strip_suffix(MARK).unwrap_or(path)
}

/// Opens the files of mappings.
struct FileOpener {
    pid: u32,
    /// The links to the open files of the process, by path and inode number.
    links: Option<HashMap<(String, u64), PathBuf>>,
}

impl FileOpener {
    fn new(pid: u32) -> Self {
        Self { pid, links: None }
    }

    /// Opens the mapped file, even if its path now names another file.
    fn file(&mut self, path: &str, id: FileId, range: &str) -> Option<File> {
        let pid = self.pid;
        let is_same = |found: FileId| found == id;
        let at = |path: &str| open_if(Path::new(&format!("/proc/{pid}/root{path}")), is_same);
        // The name of a file can itself end with this suffix, while the path without the suffix now
        // names another file.
        let found = at(path).or_else(|| path.strip_suffix(MARK).and_then(at));
        // The file was deleted, or the list contains another device. This needs more privileges.
        let of_range = || open_if(Path::new(&format!("/proc/{pid}/map_files/{range}")), |_| true);
        found.or_else(of_range).or_else(|| self.by_link(path, id.1))
    }

    /// Opens a file through the link to an open file of the process with this path and inode
    /// number.
    fn by_link(&mut self, path: &str, inode: u64) -> Option<File> {
        let links = self.links.get_or_insert_with(|| links(self.pid));
        let link = links.get(&(path.to_owned(), inode))?;
        open_if(link, |found| found.1 == inode)
    }
}

/// Returns the links to the open files of a process, by path and inode number.
fn links(pid: u32) -> HashMap<(String, u64), PathBuf> {
    let all = procfs::open_files(pid).filter_map(|open| {
        let (_, inode) = open.id()?;
        let path = fs::read_link(open.link()).ok()?;
        // We escape line feeds like the list of mappings.
        let path = path.to_string_lossy().replace('\n', "\\012");
        Some(((path, inode), open.link().to_owned()))
    });
    all.collect()
}

/// Opens a path if it names the expected regular file. Does not open other files, because opening a
/// device or a pipe can have effects.
fn open_if(path: &Path, is_meant: impl Fn(FileId) -> bool) -> Option<File> {
    let before = fs::metadata(path).ok()?;
    if !before.is_file() || !is_meant(file_id(&before)) {
        return None;
    }
    let file = open_regular(path).ok()?;
    let is_same = file_id(&file.metadata().ok()?) == file_id(&before);
    is_same.then_some(file)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn shared_mappings_of_files_are_found() {
        let line = "7f00-7f10 rw-s 00000000 00:1b 77    /dev/shm/a b.quipu (deleted)";
        let (mapping, file) = parse(line).unwrap();
        assert_eq!((mapping.range, file), ("7f00-7f10", (0x1b, 77)));
        assert_eq!(mapping.path, "/dev/shm/a b.quipu (deleted)");
        assert_eq!(without_mark(mapping.path), "/dev/shm/a b.quipu");
        for other in [
            "7f00-7f10 rw-p 00000000 00:1b 77    /lib/x.so",
            "7f00-7f10 rw-s 00000000 00:1b 0 ",
            "7f00-7f10 rw-p 00000000 00:00 0    [stack]",
            "",
            "7f00",
        ] {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    #[test]
    fn a_file_is_opened_only_if_it_is_the_one_that_is_mapped() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a\n.quipu");
        let text = path.to_str().unwrap().replace('\n', "\\012");
        let (pid, none) = (std::process::id(), "0-0");
        let held = File::create(&path).unwrap();
        let id = file_id(&held.metadata().unwrap());
        let is_held = |found: Option<File>| file_id(&found.unwrap().metadata().unwrap()) == id;
        // The escaped path in the list does not lead to the file.
        assert!(is_held(FileOpener::new(pid).file(&text, id, none)));
        assert!(is_held(FileOpener::new(pid).file(path.to_str().unwrap(), id, none)));
        // Another device, for example on btrfs.
        assert!(is_held(FileOpener::new(pid).file(&text, (id.0 + 1, id.1), none)));
        fs::remove_file(&path).unwrap();
        fs::write(&path, "other").unwrap();
        let marked = format!("{text}{MARK}");
        assert!(is_held(FileOpener::new(pid).file(&marked, id, none)));
        assert!(FileOpener::new(pid).file(path.to_str().unwrap(), id, none).is_none());
        drop(held);
        assert!(FileOpener::new(pid).file(&marked, id, none).is_none());
    }
}
