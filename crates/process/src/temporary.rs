//! Files with temporary names, which are removed even if a signal ends the command.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;
use signal_hook::{flag, low_level};

use crate::signals::not_ignored;

/// A temporary file. It is removed when this value is dropped, and when the process receives
/// SIGINT, SIGTERM or SIGHUP.
#[derive(Debug)]
pub struct Temporary(PathBuf);

impl Temporary {
    /// Creates a temporary file next to another file. Only this user can read it. Removes the files
    /// of processes that were killed while they wrote next to the same file.
    ///
    /// # Errors
    /// Returns the system's error, without a path. Add the path of the other file, because users do
    /// not know the temporary name.
    pub fn next_to(path: &Path) -> io::Result<(Self, File)> {
        watch()?;
        remove_stale(path);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        // We hold the lock until the name is stored, because a signal handler must find the name of
        // each existing file.
        let mut names = names();
        let mut number = 0;
        loop {
            let mut name = path.as_os_str().to_owned();
            name.push(format!("{INFIX}{}-{number}", std::process::id()));
            let name = PathBuf::from(name);
            match options.open(&name) {
                Ok(file) => {
                    names.push(name.clone());
                    return Ok((Self(name), file));
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < 100 => {
                    number += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the path. You can rename the file, or give it another name.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let mut names = names();
        let _ = fs::remove_file(&self.0);
        names.retain(|name| *name != self.0);
    }
}

/// The part of a temporary name between the name of the other file, and the process ID with a
/// number.
const INFIX: &str = ".unfinished-";
/// The time without a change after which a file can be stale. A process of another machine or
/// container can seem to have ended, while it waits for its input.
const STALE: Duration = Duration::from_secs(24 * 3600);
/// The maximum number of entries of a directory that are examined for stale files.
const MAX_ENTRIES: usize = 100_000;

/// Removes the temporary files next to this path whose processes have ended. Ignores failures,
/// because such a file costs only space.
fn remove_stale(path: &Path) {
    let Some(name) = path.file_name() else { return };
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let Ok(entries) = fs::read_dir(parent.unwrap_or(Path::new("."))) else { return };
    for entry in entries.take(MAX_ENTRIES).flatten() {
        let other = entry.file_name();
        let rest = other.as_bytes().strip_prefix(name.as_bytes());
        let rest = rest.and_then(|rest| rest.strip_prefix(INFIX.as_bytes()));
        let rest = rest.and_then(|rest| std::str::from_utf8(rest).ok()).unwrap_or_default();
        // Only names that this module writes: a user can have a file with a longer name.
        let parts = rest.split_once('-').filter(|(process, number)| {
            [process, number].iter().all(|part| part.bytes().all(|byte| byte.is_ascii_digit()))
        });
        let Some(process) = parts.and_then(|(process, _)| process.parse().ok()) else { continue };
        let is_old = || {
            let data = entry.metadata().ok()?;
            Some(data.is_file() && data.modified().ok()?.elapsed().ok()? >= STALE)
        };
        if has_ended(process) && is_old() == Some(true) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Returns whether there is no process with this ID.
fn has_ended(process: i32) -> bool {
    let process = Pid::from_raw(process);
    process.is_some_and(|process| test_kill_process(process) == Err(Errno::SRCH))
}

/// The names of all existing temporary files.
static NAMES: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

fn names() -> MutexGuard<'static, Vec<PathBuf>> {
    // No change of the list can panic halfway.
    NAMES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a thread, once per process. After a signal, it removes the files, and then ends the
/// process with the same signal.
fn watch() -> io::Result<()> {
    static WATCHED: OnceLock<Result<(), io::ErrorKind>> = OnceLock::new();
    let watched = WATCHED.get_or_init(|| start().map_err(|error| error.kind()));
    watched.map_err(io::Error::from)
}

fn start() -> io::Result<()> {
    // Because of this handler, exceeding the file size limit (`ulimit -f`) fails the write instead
    // of killing the process.
    flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)))?;
    let ends = not_ignored(&[SIGINT, SIGTERM, SIGHUP]);
    let seen = Arc::new(AtomicBool::new(false));
    for &number in &ends {
        // The order matters: the first signal finds the flag unset. The second one ends the process
        // at once, even if a file system hangs.
        flag::register_conditional_shutdown(number, 128 + number, Arc::clone(&seen))?;
        flag::register(number, Arc::clone(&seen))?;
    }
    let mut signals = Signals::new(ends)?;
    let wait = move || {
        let Some(number) = signals.forever().next() else { return };
        let names = names();
        names.iter().for_each(|name| drop(fs::remove_file(name)));
        // We hold the lock until the end, so no other file can be created.
        let _ = low_level::emulate_default_handler(number);
        low_level::exit(128 + number);
    };
    thread::Builder::new().name("signals".into()).spawn(wait).map(drop)
}

/// Syncs the directory of a file, so a new file name survives a power loss.
pub fn sync_directory(path: &Path) -> io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn the_file_of_a_killed_process_is_removed_by_the_next_one() {
        let directory = tempfile::tempdir().unwrap();
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let (ended, own) = (child.id(), std::process::id());
        let create = |name: String, age: u64| {
            let file = File::create(directory.path().join(name)).unwrap();
            file.set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
        };
        let old = 2 * STALE.as_secs();
        create(format!("state{INFIX}{ended}-0"), old);
        // A running process, a file in use, another target, and names that only begin alike.
        create(format!("state{INFIX}{own}-7"), old);
        create(format!("state{INFIX}{ended}-1"), 0);
        create(format!("other{INFIX}{ended}-0"), old);
        create(format!("state{INFIX}{ended}-backup"), old);
        create(format!("state{INFIX}{ended}"), old);
        drop(Temporary::next_to(&directory.path().join("state")).unwrap());
        assert!(!directory.path().join(format!("state{INFIX}{ended}-0")).exists());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 5);
    }

    #[test]
    fn a_temporary_file_has_a_name_of_its_own_until_it_is_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state.quipu");
        let (one, _) = Temporary::next_to(&path).unwrap();
        let (other, _) = Temporary::next_to(&path).unwrap();
        assert!(one.path() != other.path() && one.path().exists() && other.path().exists());
        fs::rename(one.path(), &path).unwrap();
        drop((one, other));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        let missing = Temporary::next_to(&directory.path().join("none/state.quipu"));
        assert!(!missing.unwrap_err().to_string().contains("unfinished"));
    }
}
