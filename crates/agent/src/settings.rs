//! Declares the settings of the watched segments, checks them, and converts them to `Options`.
//! Each setting is a flag, an environment variable and a key of the settings file.

use std::path::Path;

use quipu_process::flags;
use quipu_process::settings::{Unusable, in_range, set};
use quipu_process::size::Size;
use quipu_process::time::Time;
use quipu_segment::printable;

use crate::{Options, Pattern};

flags! {
    /// The flags of the watched segments.
    #[command(next_help_heading = "Segments of other programs")]
    pub struct SegmentFlags {
        /// Segment file, directory with such files, or pattern of paths, whose metrics are shown;
        /// may be given several times [default: none]
        #[arg(long, env = "QUIPU_SEGMENTS", value_name = "PATH", value_delimiter = '\n')]
        #[serde(deserialize_with = "quipu_process::settings::list")]
        segments: Vec<String>,

        /// Pattern of paths that gives labels to the metrics of a file, such as
        /// /run/quipu/{app}/{instance}.quipu; may be given several times [default: none]
        #[arg(long, env = "QUIPU_SEGMENTS_LABELS", value_name = "PATTERN", value_delimiter = '\n')]
        #[serde(deserialize_with = "quipu_process::settings::list")]
        segments_labels: Vec<Pattern>,

        /// Time that the last values of a segment are shown after its last process has closed the
        /// file, or the file was removed; without this setting, they are shown as long as the file
        /// exists [default: none]
        #[arg(long, env = "QUIPU_SEGMENTS_KEEP", value_name = "TIME")]
        segments_keep: Time,

        /// Maximum number of segment files and directories that are watched [default: 1000]
        #[arg(long, env = "QUIPU_SEGMENTS_COUNT", value_name = "COUNT")]
        segments_count: Size<usize> = Size(1000),

        /// Maximum bytes that all watched segments together can use; the largest ones that do not
        /// fit are omitted [default: 1073741824]
        #[arg(long, env = "QUIPU_SEGMENTS_BYTES", value_name = "BYTES")]
        segments_bytes: Size<u64> = Size(1 << 30),
    }
}

impl SegmentFlags {
    /// Checks the flags, and returns the options of the agent. `own` is the daemon's state file,
    /// which is not shown, and `record` is the maximum number of recorded segments.
    ///
    /// # Errors
    /// Fails for an invalid pattern, or for a number out of its bounds.
    pub fn resolve(&self, own: &Path, record: Option<usize>) -> Result<Options, Unusable> {
        let places = self.segments.clone().unwrap_or_default();
        for place in &places {
            let reason = match glob::Pattern::new(place) {
                Ok(_) if place.contains("**") => {
                    format!("{place:?} has \"**\", of any depth; write a * for each directory")
                }
                Ok(_) if !place.is_empty() => continue,
                Ok(_) => "the path is empty; name a directory or a file".to_owned(),
                Err(error) => format!("{place:?} cannot be a pattern of paths: {error}"),
            };
            return Err(Unusable::new("segments", reason));
        }
        Ok(Options {
            places,
            labels: self.segments_labels.clone().unwrap_or_default(),
            keep: self.segments_keep.map(|keep| keep.0),
            most: in_range("segments-count", self.segments_count, 1, 1 << 20)?,
            bytes: set(self.segments_bytes).0.min(1 << 40),
            record,
            own: own.to_owned(),
        })
    }
}

impl Options {
    /// Returns warnings about settings that are valid but probably mistakes.
    pub fn warnings(&self) -> impl Iterator<Item = String> {
        self.places.iter().filter_map(|place| doubtful(place))
    }
}

/// Returns a warning about a path that is probably a mistake. This does not access the path,
/// because its file system can hang.
fn doubtful(place: &str) -> Option<String> {
    let shown = printable(place);
    if place.starts_with('~') {
        return Some(format!(
            "--segments: {shown} begins with ~, which only a shell expands: write the whole path"
        ));
    }
    (place.contains(":/") || place.contains(",/")).then(|| {
        format!(
            "--segments: {shown} is taken as one path: give each by a --segments of its own, on a \
             line of its own in QUIPU_SEGMENTS, or in an array of the settings file"
        )
    })
}
