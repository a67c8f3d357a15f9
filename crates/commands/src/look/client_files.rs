//! Reads the metrics files of other clients' processes into a look, like `quipu expose`.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use quipu::collector::Collector;
use quipu_store::files::Directories;

use super::Look;
use super::sink::LookSink;

/// The files of other clients in a directory.
pub(super) struct ClientFiles {
    directories: Directories,
    warnings: Arc<Mutex<Vec<String>>>,
}

/// The maximum number of warnings to store. Each one is reported only once.
const MAX_WARNINGS: usize = 20;

impl ClientFiles {
    /// Creates a reader for a directory. This reader follows no symbolic link out of `root`.
    pub(super) fn new(directory: &Path, root: &Path) -> Self {
        let warnings = Arc::<Mutex<Vec<String>>>::default();
        let kept = Arc::clone(&warnings);
        let directories = Directories::new([directory]).below(root).on_warning(move |warning| {
            let mut warnings = kept.lock().unwrap_or_else(PoisonError::into_inner);
            if warnings.len() < MAX_WARNINGS {
                warnings.push(warning.to_string());
            }
        });
        Self { directories, warnings }
    }

    /// Adds the series in the files.
    pub(super) fn read(&self, look: &mut Look) {
        self.directories.collect(&mut LookSink::new(look));
        for warning in self.warnings.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            look.add_problem(warning.as_str());
        }
    }
}
