//! The trait [`SlidingWindow`], which all windows implement, and functions that save a window to a
//! file and load it.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use self::sealed::Sealed;
use crate::error::Error;

/// A counter of the events in a sliding window.
///
/// The trait is sealed: [`BucketedWindow`](crate::BucketedWindow),
/// [`ExactWindow`](crate::ExactWindow) and [`ConstantWindow`](crate::ConstantWindow) implement it.
///
/// ```
/// use std::time::Duration;
/// use quipu_window::{ConstantWindow, ExactWindow, SlidingWindow};
///
/// let minute = Duration::from_secs(60);
/// let windows: [Box<dyn SlidingWindow>; 2] =
///     [Box::new(ExactWindow::new(minute)?), Box::new(ConstantWindow::new(minute)?)];
/// for window in windows {
///     window.inc();
///     assert_eq!(window.add_and_count(2), 3);
///     assert_eq!(window.rate(), 0.05);
/// }
/// # Ok::<(), quipu_window::Error>(())
/// ```
pub trait SlidingWindow: Sealed {
    /// Returns the length of the window.
    fn window(&self) -> Duration;

    /// Counts `n` events now.
    fn add(&self, n: u64);

    /// Counts one event now.
    fn inc(&self) {
        self.add(1);
    }

    /// Returns the events of the window that ends now.
    fn count(&self) -> u64;

    /// Counts `n` events now, and returns the events of the window, including them.
    fn add_and_count(&self, n: u64) -> u64 {
        self.add(n);
        self.count()
    }

    /// Returns the events per second, over the window that ends now.
    fn rate(&self) -> f64 {
        self.count() as f64 / self.window().as_secs_f64()
    }

    /// Forgets all events.
    fn reset(&self);

    /// Writes the state that [`SlidingWindow::load`] needs to continue. Other threads can continue
    /// to count during this call.
    ///
    /// # Errors
    /// The errors of the writer.
    fn save(&self, out: &mut dyn Write) -> Result<(), Error>;

    /// Replaces all events by the saved ones, except events that expired since. Clones of a counter
    /// share its events, so you must not use any of them during this call.
    ///
    /// # Errors
    /// The errors of the reader, and a [malformed](Error::is_malformed) input, which no counter of
    /// this kind writes. On an error, the counter is unchanged.
    fn load(&mut self, input: &mut dyn Read) -> Result<LoadReport, Error>;
}

pub(crate) mod sealed {
    /// Implemented by the windows of this crate.
    pub trait Sealed {}
}

/// The result of loading: how many saved events a window counts again, and how many it does not.
///
/// ```
/// use std::time::Duration;
/// use quipu_window::clock::TestClock;
/// use quipu_window::{ExactWindow, SlidingWindow};
///
/// let clock = TestClock::new();
/// let mut window = ExactWindow::with_clock(Duration::from_secs(60), clock.clone())?;
/// window.inc();
/// clock.advance(Duration::from_secs(50));
/// window.inc();
/// let mut saved = Vec::new();
/// window.save(&mut saved)?;
///
/// clock.advance(Duration::from_secs(20));
/// let report = window.load(&mut &saved[..])?;
/// assert_eq!((report.counted, report.expired), (1, 1));
/// # Ok::<(), quipu_window::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct LoadReport {
    /// Events that the window now counts.
    pub counted: u64,
    /// Events that were too old.
    pub expired: u64,
    /// Events with a time in the future, for example because the wall clock was set back.
    pub future: u64,
    /// Bytes after the last complete event.
    pub ragged_bytes: u64,
}

/// Saves a window to a file. This replaces the whole file: even if this process dies, the file
/// contains either its old or its new content. The system writes it to the disk some time later; if
/// you need it there now, use [`save_file_synced`].
///
/// ```
/// use std::time::Duration;
/// use quipu_window::{ExactWindow, SlidingWindow, load_file, save_file};
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("logins");
/// let mut logins = ExactWindow::new(Duration::from_secs(60))?;
/// logins.add(3);
/// save_file(&logins, &path)?;
/// logins.reset();
/// assert_eq!(load_file(&mut logins, &path)?.counted, 3);
/// # Ok::<(), quipu_window::Error>(())
/// ```
///
/// # Errors
/// The errors of the file system, with the name of the file.
pub fn save_file(
    window: &(impl SlidingWindow + ?Sized),
    path: impl AsRef<Path>,
) -> Result<(), Error> {
    replace(path.as_ref(), |out| window.save(out), |_| Ok(()))
}

/// Like [`save_file`], and the file also survives a power loss.
///
/// # Errors
/// The errors of the file system, with the name of the file.
pub fn save_file_synced(
    window: &(impl SlidingWindow + ?Sized),
    path: impl AsRef<Path>,
) -> Result<(), Error> {
    let path = path.as_ref();
    replace(path, |out| window.save(out), File::sync_data)?;
    let directory = path.parent().filter(|parent| *parent != Path::new(""));
    let sync = File::open(directory.unwrap_or(Path::new("."))).and_then(|d| d.sync_all());
    sync.map_err(|error| Error::from(error).in_file(path))
}

/// Writes a draft in the same directory, and renames it to the file's name.
fn replace(
    path: &Path,
    save: impl FnOnce(&mut dyn Write) -> Result<(), Error>,
    finish: impl FnOnce(&File) -> io::Result<()>,
) -> Result<(), Error> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    // A number for each draft, because two threads can save at once.
    static DRAFTS: AtomicU64 = AtomicU64::new(0);
    let number = DRAFTS.fetch_add(1, Ordering::Relaxed);
    name.push(format!(".{}-{number}.new", std::process::id()));
    let draft = path.with_file_name(name);
    let write = || -> Result<(), Error> {
        let file = File::options().write(true).create(true).truncate(true).open(&draft)?;
        let mut out = BufWriter::with_capacity(BUFFER, file);
        save(&mut out)?;
        let file = out.into_inner().map_err(io::IntoInnerError::into_error)?;
        finish(&file)?;
        Ok(fs::rename(&draft, path)?)
    };
    // Makes a limit on the size of files an error, instead of a signal that kills the application.
    #[cfg(unix)]
    let result = quipu_segment::without_size_signal(write);
    #[cfg(not(unix))]
    let result = write();
    result.map_err(|error| {
        // If the incomplete draft cannot be removed either, you can recognize it as a draft by its
        // name.
        let _ = fs::remove_file(&draft);
        error.in_file(path)
    })
}

/// Loads a window from a file. A missing file counts as a file without events: the window is then
/// empty.
///
/// # Errors
/// The errors of the file system and of [`SlidingWindow::load`], with the name of the file. On an
/// error, the counter is unchanged.
pub fn load_file(
    window: &mut (impl SlidingWindow + ?Sized),
    path: impl AsRef<Path>,
) -> Result<LoadReport, Error> {
    let path = path.as_ref();
    let mut load = || match File::open(path) {
        Ok(file) => window.load(&mut BufReader::with_capacity(BUFFER, file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => window.load(&mut io::empty()),
        Err(error) => Err(error.into()),
    };
    load().map_err(|error| error.in_file(path))
}

const BUFFER: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exact::ExactWindow;

    #[test]
    fn a_file_is_whole_or_as_it_was() {
        // In the Go packages, the file was truncated before it was written.
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state");
        let window = ExactWindow::new(Duration::from_secs(60)).unwrap();
        window.add(17);
        // Miri cannot sync a directory.
        let save = if cfg!(miri) { save_file } else { save_file_synced };
        save(&window, &path).unwrap();
        let whole = fs::read(&path).unwrap();
        assert_eq!(whole.len(), 17 * 8);
        let fail = |out: &mut dyn Write| {
            out.write_all(&[b'x'; 2 * BUFFER])?;
            Err(io::Error::other("the disk is on fire").into())
        };
        let message = replace(&path, fail, |_| Ok(())).unwrap_err().to_string();
        assert!(message.contains(&path.display().to_string()), "{message}");
        assert!(message.contains("on fire"), "{message}");
        assert_eq!(fs::read(&path).unwrap(), whole);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "no draft is left");
    }
}
