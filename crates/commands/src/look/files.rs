//! Looks at the files in which other clients' processes keep their metrics, as `quipu scrape` reads
//! them.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use quipu::collector::Collector;
use quipu_store::files::Directories;

use super::Look;
use super::sink::LookSink;

/// The files of a directory.
pub(super) struct Files {
    directories: Directories,
    warnings: Arc<Mutex<Vec<String>>>,
}

/// The most warnings that are kept: each is given once.
const MAX_WARNINGS: usize = 20;

impl Files {
    /// The files of a directory. Symbolic links are followed up to `root` alone.
    pub(super) fn of(directory: &Path, root: &Path) -> Self {
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

    /// Adds what is in the files.
    pub(super) fn read(&self, look: &mut Look) {
        self.directories.collect(&mut LookSink::new(look));
        for warning in self.warnings.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            look.problem(warning.as_str());
        }
    }
}
