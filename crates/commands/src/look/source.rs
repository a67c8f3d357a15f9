//! The targets that `quipu top`, `diff` and `get` can read: files, directories, processes and URLs.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use quipu_segment::inspect::open_regular;
use quipu_segment::printable;

use super::client_files::ClientFiles;
use super::{Look, exposition, processes, segment};
use quipu_client::Text;
use quipu_client::fetch::{fetch, fetch_protobuf, with_path};
use quipu_client::url_text::without_password;
use quipu_sources::places::{self, Kind, SourceEntry};
use quipu_sources::segment_file::{SegmentFile, begins_like_one};

/// A target on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// A segment, or a saved exposition.
    File(PathBuf),
    /// A directory with segments and files of other clients.
    Directory(PathBuf),
    /// The URL of an exposition.
    Url(String),
    /// A process that mapped segments.
    Process(u32),
}

/// A target that is read repeatedly, with the state between two looks.
pub(crate) struct Source {
    target: Target,
    /// The readers of directories with files of other clients.
    files: HashMap<PathBuf, ClientFiles>,
    /// Whether the file was ever a segment. A damaged segment is still read like a segment.
    was_segment: bool,
    protobuf: Protobuf,
}

/// Whether a server shows more in protobuf than in the text formats, for example the buckets of
/// native histograms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protobuf {
    /// Unknown, because no histogram without buckets was seen yet.
    Unknown,
    ShowsMore,
    ShowsNoMore,
}

/// The daemon's default address.
const DAEMON: &str = "http://127.0.0.1:8081";
/// The time limit of a request.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum size of a saved exposition in bytes.
const MAX_TEXT: u64 = 256 << 20;
/// The maximum number of segments, and of directories with files of other clients.
const MAX_SOURCES: usize = 1000;

impl Target {
    /// Parses an argument. Without an argument, this is the daemon at its default address.
    pub(crate) fn parse_or_daemon(argument: Option<&OsStr>) -> Self {
        argument.map_or_else(|| Self::Url(with_path(DAEMON)), Self::parse)
    }

    /// Parses an argument. A URL without a path gets the path `/metrics`. A number means a process,
    /// and `HOST:PORT` a server, unless there is a file with this name. Anything else is a path.
    pub(crate) fn parse(argument: &OsStr) -> Self {
        let path = PathBuf::from(argument);
        let text = argument.to_str().unwrap_or_default();
        if text.starts_with("http://") || text.starts_with("https://") {
            return Self::Url(with_path(text));
        }
        if path.is_dir() {
            Self::Directory(path)
        } else if path.exists() {
            Self::File(path)
        } else if let Ok(pid) = text.parse() {
            Self::Process(pid)
        } else if is_host_and_port(text) {
            Self::Url(with_path(&format!("http://{text}")))
        } else {
            Self::File(path)
        }
    }

    /// Returns the name to show.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::File(path) | Self::Directory(path) => printable(path).to_string(),
            Self::Url(url) => printable(&without_password(url)).to_string(),
            Self::Process(pid) => format!("process {pid}"),
        }
    }
}

impl Source {
    pub(crate) fn new(target: Target) -> Self {
        let files = HashMap::new();
        Self { target, files, was_segment: false, protobuf: Protobuf::Unknown }
    }

    /// Reads all series of the target.
    ///
    /// # Errors
    /// Returns an error that begins with the name of the target. The next look can succeed.
    pub(crate) fn look(&mut self) -> Result<Look, String> {
        let mut look = Look::at(self.target.name());
        let result = match &self.target {
            Target::File(path) => read_file(path, &mut self.was_segment, &mut look),
            Target::Directory(path) => read_directory(path, &mut self.files, &mut look),
            Target::Url(url) => read_url(url, &mut self.protobuf, &mut look),
            Target::Process(pid) => read_process(*pid, &mut look),
        };
        result.map_err(|error| format!("{}: {}", self.target.name(), printable(&error)))?;
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
    // A pipe, a device or a socket is refused without waiting.
    let file = open_regular(path).map_err(|error| error.to_string())?;
    *was_segment |= begins_like_one(&file).unwrap_or(false);
    if *was_segment {
        return segment::read(file, path, look);
    }
    let length = file.metadata().map_err(|error| error.to_string())?.len();
    if length > MAX_TEXT {
        return Err(format!("it is not a segment, and too large for text: {length} bytes"));
    }
    let mut bytes = Vec::new();
    file.take(MAX_TEXT).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    exposition::read(&Text::of_bytes(bytes), look)
}

/// Returns whether an argument is the address of a server without a scheme; a path may follow.
fn is_host_and_port(text: &str) -> bool {
    let authority = text.split('/').next().unwrap_or_default();
    authority
        .rsplit_once(':')
        .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
}

/// Reads the sources that the daemon would find in a directory, under the same names.
fn read_directory(
    path: &Path,
    files: &mut HashMap<PathBuf, ClientFiles>,
    look: &mut Look,
) -> Result<(), String> {
    let places::Scan { sources: mut found, faults, is_cut, .. } = places::scan_path(path);
    if found.is_empty() {
        return Err(faults.into_iter().next().map_or_else(
            || {
                "it has no segments (*.quipu), and no files of prometheus_client (such as \
                 counter_1.db) or of Ruby's DirectFileStore (such as metric_x___1.bin)"
                    .into()
            },
            |(_, message)| message,
        ));
    }
    for (path, message) in faults {
        look.add_problem(format!("{}: {message}", printable(&path)));
    }
    if is_cut {
        look.add_target_problem("there are more files than are looked at");
    }
    if found.len() > MAX_SOURCES {
        let message = format!("only {MAX_SOURCES} of {} sources are shown", found.len());
        look.add_target_problem(&message);
        found.truncate(MAX_SOURCES);
    }
    let mut names = HashSet::new();
    for SourceEntry { path, root, name, kind, .. } in found {
        // We add a number, because a segment and a directory can share a name.
        let name = match names.insert(name.clone()) {
            true => name,
            false => path.to_string_lossy().into_owned(),
        };
        look.set_source(Some(name));
        match kind {
            Kind::Segment => {
                if let Err(error) = read_found_segment(&root, &path, look) {
                    look.add_problem(format!("{}: {error}", printable(&path)));
                }
            }
            Kind::Directory => {
                let open = || ClientFiles::new(&path, &root);
                files.entry(path.clone()).or_insert_with(open).read(look);
            }
        }
    }
    look.set_source(None);
    match look.problems.first() {
        // No file was readable.
        Some(problem) if look.families.is_empty() => Err(problem.clone()),
        _ => Ok(()),
    }
}

/// Opens and reads a segment from a directory.
fn read_found_segment(root: &Path, path: &Path, look: &mut Look) -> Result<(), String> {
    read_open_file(
        SegmentFile::open_below(root, path).map_err(|error| error.to_string())?,
        path,
        look,
    )
}

/// Reads a segment from its open file.
fn read_open_file(file: SegmentFile, path: &Path, look: &mut Look) -> Result<(), String> {
    match file.is_segment() {
        // We use the open file, because its path may name another file by now.
        Ok(true) => segment::read(file.into_file(), path, look),
        // An empty file is normal, because its process has only just created it.
        Ok(false) if file.is_empty() => Ok(()),
        Ok(false) => Err("it is not a segment".into()),
        Err(error) => Err(error.to_string()),
    }
}

fn read_process(pid: u32, look: &mut Look) -> Result<(), String> {
    let mut count = 0;
    let mut lost = None;
    for (name, file) in processes::mapped(pid)? {
        let Some(file) = file else {
            if Path::new(processes::without_mark(&name)).extension() == Some("quipu".as_ref()) {
                let reason = "was removed or replaced, or this user may not read it: run as root";
                let message = format!("{}: the file {reason}", printable(&name));
                look.add_problem(message.clone());
                lost = Some(message);
            }
            continue;
        };
        if !begins_like_one(&file).unwrap_or(false) {
            continue;
        }
        count += 1;
        if count > MAX_SOURCES {
            look.add_target_problem(&format!("only {MAX_SOURCES} segments are shown"));
            break;
        }
        look.set_source(Some(name.clone()));
        if let Err(error) = segment::read(file, Path::new(&name), look) {
            look.add_problem(format!("{}: {error}", printable(&name)));
        }
    }
    match (count, lost) {
        (0, Some(message)) => Err(message),
        (0, None) => Err("it has mapped no segment: name the file, a directory, or a URL".into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs;

    use super::*;

    #[test]
    fn arguments_are_files_directories_urls_or_processes() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("77");
        fs::write(&file, "a 1\n").unwrap();
        let parse = |text: &OsStr| Target::parse(text);
        assert_eq!(parse(directory.path().as_ref()), Target::Directory(directory.path().into()));
        assert_eq!(parse(file.as_ref()), Target::File(file.clone()));
        assert_eq!(parse("4000000".as_ref()), Target::Process(4_000_000));
        assert_eq!(parse("http://x/metrics".as_ref()), Target::Url("http://x/metrics".into()));
        assert_eq!(parse("none.quipu".as_ref()), Target::File("none.quipu".into()));
        for (text, url) in [
            ("127.0.0.1:8081", "http://127.0.0.1:8081/metrics"),
            ("[::1]:80/m", "http://[::1]:80/m"),
            ("https://host", "https://host/metrics"),
        ] {
            assert_eq!(parse(text.as_ref()), Target::Url(url.into()), "{text}");
        }
        for text in [":80", "a:b", "a/b:80"] {
            assert_eq!(parse(text.as_ref()), Target::File(text.into()), "{text}");
        }
        assert_eq!(Target::parse_or_daemon(None).name(), "http://127.0.0.1:8081/metrics");
    }

    #[test]
    fn an_open_file_is_read_although_its_path_names_another_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        for (name, metric) in [("a.quipu", "jobs"), ("secret", "secrets")] {
            let registry = quipu::Registry::open(path(name)).unwrap();
            registry.counter(metric, "").unwrap().inc();
        }
        let file = SegmentFile::open_below(directory.path(), &path("a.quipu")).unwrap();
        fs::remove_file(path("a.quipu")).unwrap();
        std::os::unix::fs::symlink("secret", path("a.quipu")).unwrap();
        let mut look = Look::default();
        read_open_file(file, &path("a.quipu"), &mut look).unwrap();
        let names: Vec<&str> = look.families.iter().map(|family| &*family.name).collect();
        assert_eq!(names, ["jobs_total"]);
        let mut look = Look::default();
        assert!(read_found_segment(directory.path(), &path("a.quipu"), &mut look).is_err());
    }

    #[test]
    fn errors_name_the_target_that_cannot_be_read() {
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
        for url in ["http://127.0.0.1:1/", "https://127.0.0.1:1/"] {
            let error = look(Target::Url(url.into()));
            assert!(error.contains(url) && error.contains("refused"), "{error}");
        }
    }
}
