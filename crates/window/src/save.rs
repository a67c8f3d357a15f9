//! The interface that all windows share, and how they are saved to a file and loaded from one.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::error::Error;

/// A counter of the events of a sliding window.
pub trait Window {
    /// The window whose events [`Window::count`] counts.
    fn window(&self) -> Duration;

    /// Counts `n` events now.
    fn add(&self, n: u64);

    /// Counts one event now.
    fn increment(&self) {
        self.add(1);
    }

    /// The events of the window that ends now.
    fn count(&self) -> u64;

    /// Counts `n` events now, and gives the events of the window with them.
    fn add_and_count(&self, n: u64) -> u64 {
        self.add(n);
        self.count()
    }

    /// Events a second, over the window that ends now.
    fn rate(&self) -> f64 {
        self.count() as f64 / self.window().as_secs_f64()
    }

    /// Forgets all events.
    fn reset(&self);

    /// Writes what is needed to go on counting elsewhere, while others go on here.
    ///
    /// # Errors
    /// The writer's.
    fn save(&self, out: &mut dyn Write) -> Result<(), Error>;

    /// Replaces all events by the saved ones, without those that have expired since. Clones of a
    /// counter share its events: none of them may be in use meanwhile.
    ///
    /// # Errors
    /// The reader's, and [`Error::Malformed`] for bytes that no counter of this kind saved; the
    /// counter is then as it was.
    fn load(&mut self, input: &mut dyn Read) -> Result<Loaded, Error>;
}

/// What became of the events of a saved counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Loaded {
    /// Events that the window counts now.
    pub counted: u64,
    /// Events that were too old.
    pub expired: u64,
    /// Events that lay in the future, as after a wall clock was set back.
    pub future: u64,
    /// Bytes behind the last whole event.
    pub ragged: u64,
}

/// Saves a window to a file, which is there whole or as it was before, whatever becomes of this
/// process. It reaches the disk when the system writes it: [`save_file_synced`] waits for that.
///
/// # Errors
/// The file system's, naming the file.
pub fn save_file(window: &(impl Window + ?Sized), path: impl AsRef<Path>) -> Result<(), Error> {
    replace(window, path.as_ref(), |_| Ok(()))
}

/// As [`save_file`], and the file outlives a power loss as well.
///
/// # Errors
/// The file system's, naming the file.
pub fn save_file_synced(
    window: &(impl Window + ?Sized),
    path: impl AsRef<Path>,
) -> Result<(), Error> {
    let path = path.as_ref();
    replace(window, path, File::sync_data)?;
    let directory = path.parent().filter(|parent| *parent != Path::new(""));
    let sync = File::open(directory.unwrap_or(Path::new("."))).and_then(|d| d.sync_all());
    sync.map_err(|error| Error::from(error).in_file(path))
}

/// Writes a draft beside the file, and gives it the file's name.
fn replace(
    window: &(impl Window + ?Sized),
    path: &Path,
    finish: impl FnOnce(&File) -> io::Result<()>,
) -> Result<(), Error> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    // Two threads may save at once.
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
    // A limit on the size of files is an error, and not a signal that ends the application.
    #[cfg(unix)]
    let result = quipu_segment::without_size_signal(write);
    #[cfg(not(unix))]
    let result = write();
    result.map_err(|error| {
        // The draft is worthless; what cannot be removed has a speaking name.
        let _ = fs::remove_file(&draft);
        error.in_file(path)
    })
}

/// Loads a window from a file. A file that is not there holds no events: the window is empty then.
///
/// # Errors
/// The file system's and the format's, naming the file; the counter is then as it was.
pub fn load_file(
    window: &mut (impl Window + ?Sized),
    path: impl AsRef<Path>,
) -> Result<Loaded, Error> {
    let path = path.as_ref();
    let mut load = || match File::open(path) {
        Ok(file) => window.load(&mut BufReader::with_capacity(BUFFER, file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => window.load(&mut io::empty()),
        Err(error) => Err(error.into()),
    };
    load().map_err(|error| error.in_file(path))
}

const BUFFER: usize = 64 << 10;
