//! Scans for sources again and again, in a separate thread for each group of configured paths,
//! because a file system can hang.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::places::{Scan, scan};
use crate::segment_file::file_id;

/// The configured paths that one thread scans.
#[derive(Debug)]
pub struct Watcher {
    /// The paths as configured.
    pub places: Vec<String>,
    /// The caller's own file, which is not reported as a source.
    except: PathBuf,
    /// The errors of the last scan.
    faults: HashSet<(PathBuf, String)>,
}

/// The maximum number of threads. If there are more paths, some share a thread.
const MAX_THREADS: usize = 32;
/// The maximum number of errors of a scan to remember and report.
const MAX_FAULTS: usize = 10_000;

impl Watcher {
    /// Divides the configured paths among threads. `except` is the caller's own file, which is not
    /// reported as a source.
    pub fn by_thread(places: &[String], except: &Path) -> Vec<Self> {
        let count = places.len().min(MAX_THREADS);
        let each = |first: usize| Self {
            places: places.iter().skip(first).step_by(count).cloned().collect(),
            except: except.to_owned(),
            faults: HashSet::new(),
        };
        (0..count).map(each).collect()
    }

    /// Scans the paths.
    pub fn scan(&self) -> Scan {
        let mut scan = scan(&self.places);
        if let Ok(data) = fs::metadata(&self.except) {
            scan.sources.retain(|entry| entry.id != file_id(&data));
        }
        scan
    }

    /// Returns the errors that the previous scan did not report.
    pub fn new_faults<'l>(&mut self, scan: &'l Scan) -> Vec<&'l (PathBuf, String)> {
        let faults = scan.faults.iter().take(MAX_FAULTS);
        let before = std::mem::replace(&mut self.faults, faults.clone().cloned().collect());
        faults.filter(|fault| !before.contains(*fault)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_beyond_the_number_of_threads_share_them() {
        let places: Vec<String> = (0..70).map(|n| format!("none/{n}")).collect();
        let watchers = Watcher::by_thread(&places, Path::new(""));
        assert_eq!(watchers.len(), MAX_THREADS);
        assert_eq!(watchers[1].places, ["none/1", "none/33", "none/65"]);
        let mut all: Vec<String> = watchers.into_iter().flat_map(|one| one.places).collect();
        all.sort_by_key(|place| place["none/".len()..].parse::<usize>().unwrap());
        assert_eq!(all, places);
    }

    #[test]
    fn a_fault_is_new_once_and_the_callers_file_is_omitted() {
        let home = tempfile::tempdir().unwrap();
        let path = |name: &str| home.path().join(name);
        fs::write(path("a.quipu"), "").unwrap();
        fs::write(path("own.quipu"), "").unwrap();
        let places = [home.path().to_owned(), path("none")].map(|it| it.to_str().unwrap().into());
        let mut watcher = Watcher::by_thread(&places, &path("own.quipu")).remove(0);
        watcher.places = places.into();
        let scan = watcher.scan();
        assert_eq!((scan.sources.len(), &*scan.sources[0].name), (1, "a"));
        assert_eq!(watcher.new_faults(&scan).len(), 1);
        assert_eq!(watcher.new_faults(&scan).len(), 0);
        fs::write(path("none"), "").unwrap();
        let sound = watcher.scan();
        assert_eq!((watcher.new_faults(&sound).len(), watcher.new_faults(&scan).len()), (0, 1));
    }

    #[test]
    fn faults_beyond_those_that_are_remembered_are_not_reported_at_each_look() {
        let mut watcher = Watcher::by_thread(&["none".to_owned()], Path::new("")).remove(0);
        let fault = |n: usize, text: &str| (PathBuf::from(n.to_string()), text.to_owned());
        let mut scan = watcher.scan();
        // The same path can appear with two faults.
        scan.faults = vec![fault(0, "a link"), fault(0, "not there")];
        assert_eq!([(); 2].map(|()| watcher.new_faults(&scan).len()), [2, 0]);
        scan.faults = (0..MAX_FAULTS + 1).map(|n| fault(n, "a link")).collect();
        assert_eq!([(); 2].map(|()| watcher.new_faults(&scan).len()), [MAX_FAULTS - 1, 0]);
    }
}
