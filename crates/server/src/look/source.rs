//! Where a look comes from: a file, a directory, a process, or a URL.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use quipu_segment::printable;

use super::fetch::{fetch_protobuf, with_path};
use super::files::Files;
use super::{Look, Text, exposition, fetch, processes, segment};

/// What an argument of the command line names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// A segment, or an exposition that was saved.
    File(PathBuf),
    /// Segments, and files of other clients.
    Directory(PathBuf),
    /// An exposition.
    Url(String),
    /// The segments that a process has mapped.
    Process(u32),
}

/// Looks at a target again and again.
pub(crate) struct Source {
    target: Target,
    files: Option<Files>,
    /// Whether the file was a segment once: if it is damaged, it stays one.
    was_segment: bool,
    protobuf: Protobuf,
}

/// Whether a server shows more in protobuf than in text: the buckets of native histograms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protobuf {
    /// It had no histogram without buckets so far.
    Unknown,
    ShowsMore,
    ShowsNoMore,
}

/// How long a server may take for a response.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The most bytes of an exposition in a file.
const MAX_TEXT: u64 = 256 << 20;
/// The most entries of a directory that are looked at, and the most segments that are read.
const MAX_ENTRIES: usize = 100_000;
const MAX_SEGMENTS: usize = 1000;

impl Target {
    /// What the argument names: a URL if it begins like one, with the path `/metrics` unless it has
    /// another one; otherwise what is at this path. A
    /// number is a process, unless a file has that name.
    pub(crate) fn parse(argument: &OsStr) -> Self {
        let path = PathBuf::from(argument);
        let text = argument.to_str().unwrap_or_default();
        if text.starts_with("http://") || text.starts_with("https://") {
            return Self::Url(with_path(text));
        }
        match (path.is_dir(), text.parse()) {
            (true, _) => Self::Directory(path),
            (false, Ok(pid)) if !path.exists() => Self::Process(pid),
            _ => Self::File(path),
        }
    }

    /// The name to show.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::File(path) | Self::Directory(path) => printable(path).to_string(),
            Self::Url(url) => printable(url).to_string(),
            Self::Process(pid) => format!("process {pid}"),
        }
    }
}

impl Source {
    pub(crate) fn new(target: Target) -> Self {
        let files = match &target {
            Target::Directory(path) => Some(Files::of(path)),
            _ => None,
        };
        Self { target, files, was_segment: false, protobuf: Protobuf::Unknown }
    }

    /// Looks.
    ///
    /// # Errors
    /// What failed, with the name of the target. The next look may succeed.
    pub(crate) fn look(&mut self) -> Result<Look, String> {
        let mut look = Look::default();
        let looked = match &self.target {
            Target::File(path) => read_file(path, &mut self.was_segment, &mut look),
            Target::Directory(path) => read_directory(path, self.files.as_ref(), &mut look),
            Target::Url(url) => read_url(url, &mut self.protobuf, &mut look),
            Target::Process(pid) => read_process(*pid, &mut look),
        };
        looked.map_err(|error| format!("{}: {}", self.target.name(), printable(&error)))?;
        Ok(look)
    }
}

fn read_url(url: &str, protobuf: &mut Protobuf, look: &mut Look) -> Result<(), String> {
    if *protobuf == Protobuf::ShowsMore
        && let Some(bytes) = fetch_protobuf(url, TIMEOUT)?
    {
        return exposition::read_protobuf(&bytes, look);
    }
    exposition::read(&fetch(url, TIMEOUT)?, look)?;
    if *protobuf == Protobuf::Unknown && look.has_boundless_histograms() {
        *protobuf = Protobuf::ShowsNoMore;
        let mut other = Look::default();
        let is_read = fetch_protobuf(url, TIMEOUT)
            .ok()
            .flatten()
            .is_some_and(|bytes| exposition::read_protobuf(&bytes, &mut other).is_ok());
        if is_read && other.has_exponential_histograms() {
            *protobuf = Protobuf::ShowsMore;
            *look = other;
        }
    }
    Ok(())
}

fn read_file(path: &Path, was_segment: &mut bool, look: &mut Look) -> Result<(), String> {
    let metadata = fs::metadata(path).map_err(|error| error.to_string())?;
    // A pipe would block until another process opens it, too.
    if !metadata.is_file() {
        return Err("it is neither a file nor a directory".into());
    }
    *was_segment |= is_segment(path);
    if *was_segment {
        return segment::read(path, look);
    }
    if metadata.len() > MAX_TEXT {
        return Err(format!(
            "it is not a segment, and too large for text: {} bytes",
            metadata.len()
        ));
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|error| error.to_string())?;
    file.take(MAX_TEXT).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    exposition::read(&Text::of_bytes(bytes), look)
}

/// Whether a file begins like a segment.
fn is_segment(path: &Path) -> bool {
    let mut head = Vec::new();
    let length = quipu_segment::MAGIC.len() as u64;
    let read = File::open(path).and_then(|file| file.take(length).read_to_end(&mut head));
    read.is_ok() && head == quipu_segment::MAGIC
}

fn read_directory(path: &Path, files: Option<&Files>, look: &mut Look) -> Result<(), String> {
    let entries = fs::read_dir(path).map_err(|error| error.to_string())?;
    let paths = entries.take(MAX_ENTRIES).flatten().map(|entry| entry.path());
    // Other files of this size or name are not opened.
    let may_be = |path: &Path| {
        let end = path.extension().and_then(OsStr::to_str).unwrap_or_default();
        !matches!(end, "db" | "bin") && path.is_file()
    };
    let mut segments: Vec<_> = paths.filter(|path| may_be(path) && is_segment(path)).collect();
    segments.sort_unstable();
    let count = files.map_or(Ok(0), Files::count)?;
    if segments.is_empty() && count == 0 {
        return Err(
            "it has no segments, and no files of prometheus_client (such as counter_1.db) \
                    or of Ruby's DirectFileStore (such as metric_x___1.bin)"
                .into(),
        );
    }
    if segments.len() > MAX_SEGMENTS {
        look.problem(format!("only {MAX_SEGMENTS} of {} segments are shown", segments.len()));
        segments.truncate(MAX_SEGMENTS);
    }
    for path in &segments {
        look.set_source(path.file_name().map(|name| name.to_string_lossy().into_owned()));
        if let Err(error) = segment::read(path, look) {
            look.problem(format!("{}: {error}", printable(path)));
        }
    }
    look.set_source(None);
    if let Some(files) = files.filter(|_| count > 0) {
        files.read(look);
    }
    Ok(())
}

fn read_process(pid: u32, look: &mut Look) -> Result<(), String> {
    let mut count = 0;
    for (name, paths) in processes::mapped(pid)? {
        let Some(path) = paths.iter().find(|path| path.is_file() && is_segment(path)) else {
            continue;
        };
        count += 1;
        if count > MAX_SEGMENTS {
            look.problem(format!("only {MAX_SEGMENTS} segments are shown"));
            break;
        }
        look.set_source(Some(name.clone()));
        if let Err(error) = segment::read(path, look) {
            look.problem(format!("{}: {error}", printable(&name)));
        }
    }
    match count {
        0 => Err("it has mapped no segment: name the file, a directory, or a URL".into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn targets_are_told_apart() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("77");
        fs::write(&file, "a 1\n").unwrap();
        let parse = |text: &OsStr| Target::parse(text);
        assert_eq!(parse(directory.path().as_ref()), Target::Directory(directory.path().into()));
        assert_eq!(parse(file.as_ref()), Target::File(file.clone()));
        assert_eq!(parse("4000000".as_ref()), Target::Process(4_000_000));
        assert_eq!(parse("http://x/metrics".as_ref()), Target::Url("http://x/metrics".into()));
        assert_eq!(parse("none.quipu".as_ref()), Target::File("none.quipu".into()));
    }

    #[test]
    fn what_cannot_be_read_is_an_error_with_its_name() {
        let directory = tempfile::tempdir().unwrap();
        let look = |target| Source::new(target).look().map(|_| ()).unwrap_err();
        let path = directory.path().to_owned();
        assert!(look(Target::Directory(path.clone())).contains("it has no segments"));
        assert!(look(Target::File(path.join("none"))).contains("No such file"));
        fs::write(path.join("bad"), [0xff; 4096]).unwrap();
        assert!(look(Target::File(path.join("bad"))).contains("neither a segment nor"));
        assert!(look(Target::Process(4_000_000)).contains("there is no process"));
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        assert!(look(Target::Process(child.id())).contains("it has mapped no segment"));
        child.kill().unwrap();
        child.wait().unwrap();
        let url = look(Target::Url("https://127.0.0.1:1/".into()));
        assert!(url.contains("without TLS"), "{url}");
        let url = look(Target::Url("http://127.0.0.1:1/".into()));
        assert!(url.contains("http://127.0.0.1:1/: ") && url.contains("refused"), "{url}");
    }
}
