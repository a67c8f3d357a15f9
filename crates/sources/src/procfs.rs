//! Lists the open files and mappings of processes, from `/proc`. You can only see the processes
//! that your user may inspect.

use std::fs;
use std::path::{Path, PathBuf};

use super::segment_file::FileId;

/// Returns the ids of all processes.
pub fn processes() -> impl Iterator<Item = u32> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// An open file of a process.
#[derive(Debug)]
pub struct OpenFile {
    link: PathBuf,
}

/// Returns the open files of a process.
pub fn open_files(pid: u32) -> impl Iterator<Item = OpenFile> {
    let links = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    links.map(|entry| OpenFile { link: entry.path() })
}

impl OpenFile {
    /// Returns the identity of the file. This never waits for the file's own file system, because
    /// this may hang.
    pub fn id(&self) -> Option<FileId> {
        id_of(&self.link)
    }

    /// Returns the link in `/proc`. You can open the file through this link even after it was
    /// removed.
    pub fn link(&self) -> &Path {
        &self.link
    }
}

#[cfg(target_os = "linux")]
fn id_of(link: &Path) -> Option<FileId> {
    use rustix::fs::{AtFlags, CWD, StatxFlags, makedev, statx};

    let data = statx(CWD, link, AtFlags::STATX_DONT_SYNC, StatxFlags::INO).ok()?;
    Some((makedev(data.stx_dev_major, data.stx_dev_minor), data.stx_ino))
}

#[cfg(not(target_os = "linux"))]
fn id_of(link: &Path) -> Option<FileId> {
    fs::metadata(link).ok().as_ref().map(crate::segment_file::file_id)
}

/// A line of `/proc/PID/maps`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mapping<'a> {
    /// The start and end addresses in hexadecimal, separated by a dash.
    pub range: &'a str,
    /// The permissions, such as `rw-s`.
    pub permissions: &'a str,
    /// The device in hexadecimal, such as `00:1b`.
    pub device: &'a str,
    /// The inode number of the file; 0 if there is no file.
    pub inode: u64,
    /// The path of the file, or a name in brackets; can be empty.
    pub path: &'a str,
}

impl<'a> Mapping<'a> {
    /// Parses a line.
    pub fn parse(line: &'a str) -> Option<Self> {
        let mut rest = line;
        let mut field = || {
            let (field, after) = rest.trim_start().split_once(' ')?;
            rest = after;
            Some(field)
        };
        let (range, permissions, _offset) = (field()?, field()?, field()?);
        let (device, inode) = (field()?, field()?.parse().ok()?);
        let path = rest.trim_start();
        Some(Self { range, permissions, device, inode, path })
    }

    /// Returns whether this maps a file.
    pub fn has_file(&self) -> bool {
        self.inode != 0
    }

    /// Returns the identity of the mapped file. On some file systems, such as btrfs and overlayfs,
    /// `stat` returns a different device.
    #[cfg(target_os = "linux")]
    pub fn file(&self) -> Option<FileId> {
        let (major, minor) = self.device.split_once(':')?;
        let number = |text| u32::from_str_radix(text, 16).ok();
        let device = rustix::fs::makedev(number(major)?, number(minor)?);
        self.has_file().then_some((device, self.inode))
    }

    /// Returns `None`, because only Linux offers such lists.
    #[cfg(not(target_os = "linux"))]
    pub fn file(&self) -> Option<FileId> {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;
    use crate::segment_file::file_id;

    #[test]
    fn lines_of_mappings_are_read() {
        let line = "7f00-7f10 rw-s 00000000 00:1b 77    /dev/shm/a b.quipu (deleted)";
        let mapping = Mapping::parse(line).unwrap();
        assert_eq!((mapping.device, mapping.has_file()), ("00:1b", true));
        assert_eq!(mapping.file(), Some((0x1b, 77)));
        assert_eq!(mapping.path, "/dev/shm/a b.quipu (deleted)");
        let anonymous = Mapping::parse("7f00-7f10 rw-p 00000000 00:00 0 ").unwrap();
        assert_eq!((anonymous.file(), anonymous.path), (None, ""));
        for other in ["", "7f00", "7f00-7f10 rw-p 0 00:00", "7f00-7f10 rw-p 0 00:00 x "] {
            assert_eq!(Mapping::parse(other), None, "{other}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn open_files_are_told_apart() {
        let own = std::process::id();
        assert!(processes().any(|pid| pid == own));
        let file = tempfile::NamedTempFile::new().unwrap();
        let read_only = std::fs::File::open(file.path()).unwrap();
        let id = file_id(&read_only.metadata().unwrap());
        let found = open_files(own).filter(|open| open.id() == Some(id));
        let mut found: Vec<PathBuf> = found.map(|open| open.link).collect();
        found.sort();
        let link = |fd: i32| PathBuf::from(format!("/proc/{own}/fd/{fd}"));
        let (first, second) = (file.as_file().as_raw_fd(), read_only.as_raw_fd());
        let mut expected = vec![link(first), link(second)];
        expected.sort();
        assert_eq!(found, expected);
    }
}
