//! The trait [`SlidingWindow`], which all windows implement, and functions to save a window to a
//! file and load it.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::error::Error;

/// A counter of the events in a sliding window.
pub trait SlidingWindow {
    /// The length of the window.
    fn window(&self) -> Duration;

    /// Counts `n` events now.
    fn add(&self, n: u64);

    /// Counts one event now.
    fn increment(&self) {
        self.add(1);
    }

    /// The events of the window that ends now.
    fn count(&self) -> u64;

    /// Counts `n` events now, and returns the events of the window, including them.
    fn add_and_count(&self, n: u64) -> u64 {
        self.add(n);
        self.count()
    }

    /// Events per second, over the window that ends now.
    fn rate(&self) -> f64 {
        self.count() as f64 / self.window().as_secs_f64()
    }

    /// Forgets all events.
    fn reset(&self);

    /// Writes the state that [`SlidingWindow::load`] needs to continue. Other threads may go on
    /// counting meanwhile.
    ///
    /// # Errors
    /// The errors of the writer.
    fn save(&self, out: &mut dyn Write) -> Result<(), Error>;

    /// Replaces all events by the saved ones, except those that have expired since. Clones of a
    /// counter share its events: none of them may be in use meanwhile.
    ///
    /// # Errors
    /// The errors of the reader, and [`Error::Malformed`] for bytes that no counter of this kind
    /// has saved. On an error, the counter is unchanged.
    fn load(&mut self, input: &mut dyn Read) -> Result<LoadReport, Error>;
}

/// What happened to the events of a saved counter.
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
    pub ragged: u64,
}

/// Saves a window to a file. The file is replaced as a whole: even if this process dies, it has
/// either its old or its new content. The system writes it to the disk some time later;
/// [`save_file_synced`] waits for that.
///
/// # Errors
/// The errors of the file system, with the name of the file.
pub fn save_file(
    window: &(impl SlidingWindow + ?Sized),
    path: impl AsRef<Path>,
) -> Result<(), Error> {
    replace(window, path.as_ref(), |_| Ok(()))
}

/// Like [`save_file`], and the file survives a power loss as well.
///
/// # Errors
/// The errors of the file system, with the name of the file.
pub fn save_file_synced(
    window: &(impl SlidingWindow + ?Sized),
    path: impl AsRef<Path>,
) -> Result<(), Error> {
    let path = path.as_ref();
    replace(window, path, File::sync_data)?;
    let directory = path.parent().filter(|parent| *parent != Path::new(""));
    let sync = File::open(directory.unwrap_or(Path::new("."))).and_then(|d| d.sync_all());
    sync.map_err(|error| Error::from(error).in_file(path))
}

/// Writes a draft in the same directory, and renames it to the file's name.
fn replace(
    window: &(impl SlidingWindow + ?Sized),
    path: &Path,
    finish: impl FnOnce(&File) -> io::Result<()>,
) -> Result<(), Error> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    // A number for each draft, because two threads may save at once.
    static DRAFTS: AtomicU64 = AtomicU64::new(0);
    let number = DRAFTS.fetch_add(1, Ordering::Relaxed);
    name.push(format!(".{}-{number}.new", std::process::id()));
    let draft = path.with_file_name(name);
    let write = || -> Result<(), Error> {
        let file = File::options().write(true).create(true).truncate(true).open(&draft)?;
        let mut out = BufWriter::with_capacity(BUFFER, file);
        window.save(&mut out)?;
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
        // If the incomplete draft cannot be removed either, its name tells what it is.
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
