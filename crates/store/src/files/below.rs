//! Opens files below a directory without following symbolic links on the way, because other users
//! can write to the directory, and replace a file by a link.

use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::path::{Component, Path};

use rustix::fs::{CWD, Mode, OFlags, open, openat};
use rustix::io::Errno;

/// Opens a file or a directory. Symbolic links are only followed up to `root`, which `path` begins
/// with.
///
/// # Errors
/// The errors of the system, and a link below `root`.
#[doc(hidden)]
pub fn open_below(root: &Path, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::CLOEXEC;
    let outside = || io::Error::new(ErrorKind::InvalidInput, "it is not below its directory");
    let rest = path.strip_prefix(root).map_err(|_| outside())?;
    let mut names = rest.components().peekable();
    if names.peek().is_none() {
        return Ok(open(path, flags, Mode::empty())?);
    }
    let through = THROUGH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut directory = match root.as_os_str().is_empty() {
        true => openat(CWD, ".", through, Mode::empty())?,
        false => open(root, through, Mode::empty())?,
    };
    while let Some(name) = names.next() {
        let Component::Normal(name) = name else { return Err(outside()) };
        let flags = if names.peek().is_some() { through } else { flags };
        directory = open_in(&directory, name, flags)?;
    }
    Ok(directory)
}

/// Opens an entry of a directory, if it is not a symbolic link.
pub(super) fn open_in(
    directory: &OwnedFd,
    name: impl rustix::path::Arg,
    flags: OFlags,
) -> io::Result<OwnedFd> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(directory, name, flags, Mode::empty()).map_err(|error| match error {
        // For a directory that is a link, FreeBSD and macOS use other codes than Linux.
        Errno::LOOP => io::Error::new(ErrorKind::NotADirectory, LINK),
        error => error.into(),
    })
}

const LINK: &str = "it is a symbolic link, which is not followed here";

/// How a directory is opened to open its entries. Where the system supports this, it needs no right
/// to list the directory.
#[cfg(any(target_os = "linux", target_os = "android"))]
const THROUGH: OFlags = OFlags::PATH;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const THROUGH: OFlags = OFlags::RDONLY;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_are_followed_up_to_the_root_alone() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path();
        fs::create_dir_all(home.join("real/inside")).unwrap();
        fs::write(home.join("real/inside/file"), "").unwrap();
        fs::write(home.join("secret"), "").unwrap();
        symlink(home.join("real"), home.join("root")).unwrap();
        symlink("inside", home.join("real/link")).unwrap();
        symlink("../../secret", home.join("real/inside/leak")).unwrap();
        let root = home.join("root");
        let open = |path: &str| open_below(&root, &root.join(path), OFlags::RDONLY);
        open("inside/file").unwrap();
        open("").unwrap();
        for (path, part) in
            [("inside/leak", "symbolic link"), ("link/file", ""), ("inside/none", "No such")]
        {
            let error = open(path).unwrap_err().to_string();
            assert!(error.contains(part), "{path}: {error}");
        }
        for path in ["../secret", "inside/../../secret"] {
            assert_eq!(open(path).unwrap_err().kind(), ErrorKind::InvalidInput, "{path}");
        }
        assert!(open_below(&root, home, OFlags::RDONLY).is_err());
    }
}
