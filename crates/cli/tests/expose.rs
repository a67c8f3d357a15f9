//! Compares `quipu expose` with the clients whose files it reads. For Python, we run the real
//! client in real processes. For Ruby, a script writes the format, because Debian does not package
//! the gem. You can install the interpreters with `make test`.
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::time::{Duration, Instant};

#[path = "common/python.rs"]
mod python;

const QUIPU: &str = env!("CARGO_BIN_EXE_quipu");

/// The time limit of every wait. After it, the test fails.
const PATIENCE: Duration = Duration::from_secs(120);

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/expose")
}

fn run(command: &mut Command) -> Output {
    let name = command.get_program().to_owned();
    let output = command.output();
    output.unwrap_or_else(|error| panic!("{name:?}: {error}; `make test` installs it"))
}

fn succeed(command: &mut Command) -> String {
    let output = run(command);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the output of a command that could read only a part of its files.
fn shown_in_part(command: &mut Command) -> String {
    let output = run(command);
    assert_eq!(output.status.code(), Some(3), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn expose() -> Command {
    let mut command = Command::new(QUIPU);
    command.arg("expose").env_remove("PROMETHEUS_MULTIPROC_DIR");
    command
}

/// Returns the error output of a command that must fail.
fn refusal(command: &mut Command) -> String {
    let output = run(command);
    assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

/// A child process that is killed on drop.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn value(text: &str, series: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.rsplit_once(' ').is_some_and(|(s, _)| s == series))?;
    line.rsplit_once(' ')?.1.parse().ok()
}

/// Returns the lines of the application's series.
fn lines(text: &str) -> BTreeSet<&str> {
    let is_own = |line: &&str| !line.starts_with('#') && !line.starts_with("quipu_scrape_");
    text.lines().filter(is_own).collect()
}

#[test]
fn the_page_equals_the_page_of_python() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new(python::with_client());
    succeed(command.arg(scripts().join("python.py")).arg(QUIPU).arg(directory.path()));
}

/// The files can grow and be created while they are read.
#[test]
fn files_that_grow_are_read() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new(python::with_client());
    command.arg(scripts().join("grow.py")).arg(directory.path()).stdout(Stdio::piped());
    let mut writer = Running(command.spawn().unwrap());
    let mut ready = String::new();
    BufReader::new(writer.0.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    let (mut steps, mut series, mut scrapes) = (0.0, 0, 0);
    let deadline = Instant::now() + PATIENCE;
    // The writer can start late.
    while scrapes < 20 || (series <= 100 && Instant::now() < deadline) {
        scrapes += 1;
        let output = run(expose().arg(directory.path()));
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        let found = text.lines().filter(|line| line.starts_with("series_total{")).count();
        let now = value(&text, "steps_total").unwrap();
        assert!(now >= steps && found >= series);
        // The writer counts a step before it creates the step's series.
        assert!(now + 1.0 >= found as f64 || found >= 20_000, "{now} {found}");
        (steps, series) = (now, found);
    }
    assert!(series > 100, "{series}");
}

#[test]
fn the_files_of_ruby_are_shown() {
    let directory = tempfile::tempdir().unwrap();
    let script = scripts().join("ruby.rb");
    let expected = succeed(Command::new("ruby").arg(script).arg(directory.path()));
    let mut command = expose();
    for hint in ["largest=gauge,max", "smallest=gauge,min", "latest=gauge,most_recent"] {
        command.args(["--metric", hint]);
    }
    let text = succeed(command.args(["--metric", "level=gauge"]).arg(directory.path()));
    assert!(expected.lines().count() > 20);
    assert_eq!(lines(&text), expected.lines().collect());
    for kind in [
        "http_requests_total counter",
        "by_process gauge",
        "level gauge",
        "size histogram",
        "wait summary",
        "without_labels untyped",
    ] {
        assert!(text.contains(&format!("# TYPE {kind}\n")), "{kind}\n{text}");
    }
}

/// Builds a file of Python's client with a counter `c` that contains these series.
fn python_file(series: &[(&str, f64)]) -> Vec<u8> {
    let key = |label| format!(r#"["c", "c_total", {{"k": "{label}"}}, "Help."]"#);
    python_entries(series.iter().map(|&(label, value)| (key(label), value)))
}

fn python_entries(entries: impl IntoIterator<Item = (String, f64)>) -> Vec<u8> {
    let mut out = vec![0; 8];
    for (key, value) in entries {
        out.extend_from_slice(&u32::try_from(key.len()).unwrap().to_le_bytes());
        out.extend_from_slice(key.as_bytes());
        out.resize(out.len() + 8 - (key.len() + 4) % 8, b' ');
        out.extend_from_slice(&value.to_le_bytes());
        out.extend_from_slice(&0_f64.to_le_bytes());
    }
    let used = u32::try_from(out.len()).unwrap();
    out[..4].copy_from_slice(&used.to_le_bytes());
    out.resize(64 << 10, 0);
    out
}

/// A damaged file is reported, and does not hide the other files.
#[test]
fn bad_files_are_named_and_the_rest_is_shown() {
    let directory = tempfile::tempdir().unwrap();
    let put = |name: &str, bytes: &[u8]| fs::write(directory.path().join(name), bytes).unwrap();
    let whole = python_file(&[("a", 1.0), ("b", 2.0)]);
    put("counter_1.db", &whole);
    put("counter_2.db", &[]);
    put("counter_3.db", &whole[..90]);
    put("backup.db", b"not ours");
    put("metric_x___4.bin", b"\xff\xff\xff\x7f rubbish");
    put("README", b"nobody's concern");
    fs::create_dir(directory.path().join("counter_5.db")).unwrap();
    let output = run(expose().arg(directory.path()));
    assert_eq!(output.status.code(), Some(3));
    let text = String::from_utf8(output.stdout).unwrap();
    // The entries before the cut count.
    assert_eq!(value(&text, "c_total{k=\"a\"}"), Some(2.0));
    assert_eq!(value(&text, "c_total{k=\"b\"}"), Some(2.0));
    let errors = String::from_utf8(output.stderr).unwrap();
    for (name, reason, count) in [
        ("counter_2.db", "empty", 1.0),
        ("counter_3.db", "truncated", 1.0),
        ("backup.db", "foreign", 1.0),
        ("metric_x___4.bin", "damaged", 1.0),
        ("counter_5.db", "unreadable", 1.0),
    ] {
        assert!(errors.contains(name), "{name}: {errors}");
        let series = format!("quipu_scrape_files_skipped_total{{reason=\"{reason}\"}}");
        assert_eq!(value(&text, &series), Some(count), "{series}\n{text}");
    }
    assert!(!errors.contains("README"));
}

#[test]
fn a_scrape_without_a_readable_file_fails() {
    let directory = tempfile::tempdir().unwrap();
    let put = |name: &str, bytes: &[u8]| fs::write(directory.path().join(name), bytes).unwrap();
    put("counter_1.db", &[]);
    put("metric_x___4.bin", b"\xff\xff\xff\x7f rubbish");
    let output = run(expose().arg(directory.path()));
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("counter_1.db: it is empty"), "{errors}");
    assert!(errors.ends_with("quipu: no metrics: none of the files could be read, see above\n"));
    // A file without entries is readable, and so is a segment without series.
    put("counter_2.db", &python_file(&[]));
    assert_eq!(run(expose().arg(directory.path())).status.code(), Some(3));
    fs::remove_file(directory.path().join("counter_1.db")).unwrap();
    fs::remove_file(directory.path().join("metric_x___4.bin")).unwrap();
    succeed(expose().arg(directory.path()));
    let path = directory.path().join("app.quipu");
    let registry = quipu::Registry::open(&path).unwrap();
    assert_eq!(succeed(expose().arg(&path)), registry.text());
}

/// File names with control characters must not break the messages.
#[test]
fn names_of_files_do_not_break_lines() {
    let directory = tempfile::tempdir().unwrap();
    let inner = directory.path().join("a\nb");
    fs::create_dir(&inner).unwrap();
    assert_eq!(refusal(expose().arg(&inner)).lines().count(), 1);
    fs::write(inner.join("\u{1b}[31m\r.db"), "").unwrap();
    fs::write(inner.join("counter_\n1.db"), "").unwrap();
    let errors = String::from_utf8(run(expose().arg(&inner)).stderr).unwrap();
    assert_eq!(errors.lines().count(), 3, "{errors:?}");
    assert!(errors.contains("a\\nb/\\u{1b}[31m\\r.db"), "{errors:?}");
}

#[test]
fn paths_of_no_use_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("missing");
    assert!(refusal(expose().arg(&missing)).contains("there is no such directory or file"));
    assert!(!missing.exists());
    assert!(refusal(expose().arg(directory.path())).contains("is the application running"));
    let file = directory.path().join("file");
    fs::write(&file, "text").unwrap();
    assert!(refusal(expose().arg(&file)).contains("neither a directory nor a quipu segment"));
    assert!(refusal(&mut expose()).contains("PATH"));
    assert!(refusal(expose().args(["--metric", "a=b", "."])).contains("unknown kind"));
    let help = succeed(expose().arg("--help"));
    assert!(help.contains("Examples:") && help.contains("PROMETHEUS_MULTIPROC_DIR"));
}

#[test]
fn a_segment_is_shown_next_to_its_application() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("app.quipu");
    let registry = quipu::Registry::open(&path).unwrap();
    let jobs = registry.counter("jobs", "Jobs that were done.").unwrap();
    jobs.inc_by(3);
    let text = succeed(expose().arg(&path));
    assert_eq!(text, registry.text());
    jobs.inc();
    // Together with files, where one contains a family of the same name.
    fs::write(directory.path().join("counter_1.db"), python_file(&[("a", 1.0)])).unwrap();
    let jobs_file = "metric_jobs_total___7.bin";
    let mut bytes = vec![32, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, b' ', b' ', b' ', b' '];
    bytes.extend_from_slice(&9_f64.to_le_bytes());
    bytes.extend_from_slice(&[0; 8]);
    fs::write(directory.path().join(jobs_file), bytes).unwrap();
    let output = run(expose().arg(directory.path()));
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success() && errors.contains("app.quipu"), "{errors}");
    let text = succeed(expose().arg(&path).arg(directory.path()));
    assert_eq!(value(&text, "jobs_total"), Some(4.0));
    assert_eq!(value(&text, "c_total{k=\"a\"}"), Some(1.0));
    assert_eq!(value(&text, "quipu_scrape_families_repeated"), Some(1.0));
    assert_eq!(text.matches("# TYPE jobs_total").count(), 1);
    // Another family with the shown name of the counter.
    fs::remove_file(directory.path().join(jobs_file)).unwrap();
    let key = r#"["jobs_total", "jobs_total", {}, "A gauge."]"#;
    let file = python_entries([(key.to_owned(), 7.0)]);
    fs::write(directory.path().join("gauge_max_1.db"), file).unwrap();
    let text = succeed(expose().arg(&path).arg(directory.path()));
    assert_eq!(value(&text, "jobs_total"), Some(4.0));
    assert_eq!(text.matches("# TYPE jobs_total").count(), 1);
    assert_eq!(value(&text, "quipu_scrape_families_repeated"), Some(1.0));
}

#[test]
fn the_segments_of_a_directory_are_shown() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    count(&path("a.quipu"), "a_total");
    count(&path("b.quipu"), "b_total");
    count(&path("other"), "other_total");
    let text = succeed(expose().arg(directory.path()));
    assert_eq!((value(&text, "a_total"), value(&text, "b_total")), (Some(1.0), Some(1.0)));
    assert_eq!(value(&text, "quipu_scrape_families_repeated"), Some(0.0));
    assert!(!text.contains("other_total"), "{text}");
    // A segment that is also named is shown once. The second family of a name is omitted.
    count(&path("b.quipu"), "a_total");
    let output = run(expose().args([&path("b.quipu"), directory.path()]));
    let errors = String::from_utf8(output.stderr).unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success() && errors.contains("a.quipu: families are omitted"),
        "{errors}"
    );
    assert_eq!(text.matches("a_total 1").count(), 1, "{text}");
    // A bad segment is named, and the others are shown. A link does not lead out of the directory.
    let elsewhere = tempfile::tempdir().unwrap();
    count(&elsewhere.path().join("c.quipu"), "c_total");
    std::os::unix::fs::symlink(elsewhere.path().join("c.quipu"), path("c.quipu")).unwrap();
    fs::write(path("b.quipu"), [0xff; 4096]).unwrap();
    let output = run(expose().arg(directory.path()));
    let errors = String::from_utf8(output.stderr).unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(3), "{errors}");
    assert!(
        errors.contains("b.quipu: it is not a segment") && errors.contains("c.quipu"),
        "{errors}"
    );
    assert!(text.contains("a_total 1") && !text.contains("c_total"), "{text}");
    // If nothing can be read, this is a failure.
    fs::remove_file(path("a.quipu")).unwrap();
    fs::remove_file(path("c.quipu")).unwrap();
    let output = run(expose().arg(directory.path()));
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("b.quipu: it is not a segment"), "{errors}");
}

#[test]
fn a_file_with_several_names_is_read_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    count(&path("a.quipu"), "a_total");
    fs::hard_link(path("a.quipu"), path("b.quipu")).unwrap();
    std::os::unix::fs::symlink("a.quipu", path("link")).unwrap();
    for arguments in [vec![directory.path().to_owned()], vec![path("link"), path("b.quipu")]] {
        let output = run(expose().args(&arguments));
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), &*errors), (Some(0), ""), "{arguments:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(text.matches("a_total 1\n").count(), 1, "{text}");
    }
}

/// Adds 1 to a counter in a segment file, like a script.
fn count(path: &Path, series: &str) {
    succeed(Command::new(QUIPU).args(["inc", "--file"]).arg(path).arg(series));
}

#[test]
fn all_variants_of_a_name_are_shown() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.quipu");
    let series = ["a_total", "b", "jobs", "a_total{q=\"1\"}", "jobs_total", "b{q=\"1\",r=\"2\"}"];
    for series in series {
        count(&path, series);
    }
    let registry = quipu::Registry::open(&path).unwrap();
    let text = succeed(expose().arg(&path));
    assert_eq!(text, registry.text());
    for series in series {
        assert_eq!(value(&text, series), Some(1.0), "{series}: {text}");
    }
    for name in ["a_total", "b", "jobs", "jobs_total"] {
        assert_eq!(text.matches(&format!("# TYPE {name} ")).count(), 1, "{name}: {text}");
    }
    // Among several paths, the first one with this name provides all variants.
    let other = directory.path().join("other.quipu");
    for series in ["a_total{q=\"2\"}", "a_total{r=\"3\"}", "c_total"] {
        count(&other, series);
    }
    let output = run(expose().arg(&path).arg(&other));
    let (text, errors) = (output.stdout, String::from_utf8(output.stderr).unwrap());
    let text = String::from_utf8(text).unwrap();
    assert!(text.starts_with(&registry.text()), "{text}");
    assert_eq!(value(&text, "c_total"), Some(1.0), "{text}");
    assert!(!text.contains("a_total{q=\"2\"}") && !text.contains("a_total{r="), "{text}");
    assert_eq!(value(&text, "quipu_scrape_families_repeated"), Some(1.0));
    assert!(errors.contains("other.quipu: families are omitted"), "{errors}");
    assert!(errors.contains("a_total (first in ") && errors.contains("/a.quipu)"), "{errors}");
    assert_eq!(errors.lines().count(), 1, "{errors}");
}

/// Two names can be equal after escaping. Only the first family is shown, and the other one is
/// reported.
#[test]
fn a_family_whose_escaped_name_another_one_has_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    // Two files, because a registry refuses the second name, but it does not know the names in
    // another file.
    let paths = ["a.quipu", "b.quipu"].map(|name| directory.path().join(name));
    for (path, name, value) in [(&paths[0], "size.bytes", 1.0), (&paths[1], "size_bytes", 2.0)] {
        quipu::Registry::open(path).unwrap().gauge(name, "").unwrap().set(value);
    }
    let output = run(expose().args(&paths));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(!text.contains("\nsize_bytes 2\n"), "{text}");
    assert_eq!(value(&text, "quipu_scrape_families_repeated"), Some(1.0));
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("names: size_bytes (first in ") && output.status.success(), "{errors}");
}

/// A command that listens.
struct Endpoint {
    server: Running,
    address: String,
    /// The standard error output before it listened.
    begun: String,
    errors: BufReader<ChildStderr>,
}

impl Endpoint {
    fn start(command: &mut Command) -> Self {
        command.args(["--listen", "127.0.0.1:0"]).stderr(Stdio::piped());
        let mut server = Running(command.spawn().unwrap());
        let mut errors = BufReader::new(server.0.stderr.take().unwrap());
        let mut begun = String::new();
        let address = loop {
            let mut line = String::new();
            assert!(errors.read_line(&mut line).unwrap() > 0, "it ended: {begun}");
            if let Some(rest) = line.trim_end().strip_prefix("quipu: listening on http://") {
                break rest.strip_suffix("/metrics").unwrap().to_owned();
            }
            begun.push_str(&line);
        };
        Self { server, address, begun, errors }
    }

    fn get(&self) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "GET /metrics HTTP/1.0\r\nHost: x\r\n\r\n").unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        assert!(response.starts_with("HTTP/1.0 200"), "{response}");
        response
    }

    /// Stops the command by a signal. Returns its standard error output since it listens.
    fn end(mut self) -> String {
        succeed(Command::new("kill").args(["-TERM", &self.server.0.id().to_string()]));
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            match self.server.0.try_wait().unwrap() {
                Some(status) => break status,
                None => assert!(Instant::now() < deadline, "it goes on after SIGTERM"),
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        assert!(status.success(), "{status}");
        let mut rest = String::new();
        self.errors.read_to_string(&mut rest).unwrap();
        rest
    }
}

/// Returns the number of files that a scrape skipped for this reason.
fn skipped(text: &str, reason: &str) -> Option<f64> {
    value(text, &format!("quipu_scrape_files_skipped_total{{reason=\"{reason}\"}}"))
}

#[test]
fn paths_that_cannot_be_read_keep_no_others_from_being_shown() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    count(&path("good.quipu"), "jobs_total");
    fs::write(path("cut.quipu"), &fs::read(path("good.quipu")).unwrap()[..3000]).unwrap();
    fs::write(path("empty.quipu"), "").unwrap();
    fs::write(path("text"), "text").unwrap();
    fs::create_dir(path("none")).unwrap();
    for names in [["good.quipu", "cut.quipu"], ["missing", "good.quipu"], ["none", "good.quipu"]] {
        let output = run(expose().args(names.map(path)));
        let errors = String::from_utf8(output.stderr).unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(value(&text, "jobs_total"), Some(1.0), "{text}");
        let bad = names.iter().find(|name| **name != "good.quipu").unwrap();
        // A directory without files is not an error.
        let expected = if *bad == "none" { 0 } else { 3 };
        assert_eq!(output.status.code(), Some(expected), "{errors}");
        assert!(errors.contains(bad), "{errors}");
        assert_eq!(errors.lines().count(), 1, "{errors}");
    }
    let names = ["cut.quipu", "empty.quipu", "text", "missing", "good.quipu"].map(path);
    let text = shown_in_part(expose().args(&names));
    for (reason, count) in [("damaged", 1.0), ("empty", 1.0), ("foreign", 1.0), ("unreadable", 1.0)]
    {
        assert_eq!(skipped(&text, reason), Some(count), "{reason}: {text}");
    }
    // A damaged file is skipped next to files of other clients, too.
    fs::write(path("none/counter_1.db"), python_file(&[("a", 1.0)])).unwrap();
    let text = shown_in_part(expose().args(["none", "cut.quipu"].map(path)));
    assert_eq!(value(&text, "c_total{k=\"a\"}"), Some(1.0));
    assert_eq!(skipped(&text, "damaged"), Some(1.0), "{text}");
    // If no file is left, the command fails and names all of them.
    let told = refusal(expose().args(&names[..4]));
    assert_eq!(told.lines().count(), 4, "{told}");
}

/// Each scrape sees files that were replaced, added or removed since the last one.
#[test]
fn an_endpoint_looks_at_its_paths_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let (first, second, late) = (path("a.quipu"), path("b.quipu"), path("late"));
    count(&first, "jobs_total");
    count(&first, "jobs_total");
    let endpoint = Endpoint::start(expose().args([&first, &second, &late]));
    assert!(endpoint.begun.contains("b.quipu: there is no such"), "{}", endpoint.begun);
    let text = endpoint.get();
    assert_eq!((value(&text, "jobs_total"), value(&text, "sent_total")), (Some(2.0), None));
    assert_eq!(skipped(&text, "unreadable"), Some(2.0));
    // A file that replaces another one, a new file, and a directory.
    fs::remove_file(&first).unwrap();
    count(&first, "jobs_total");
    count(&second, "sent_total");
    fs::create_dir(&late).unwrap();
    fs::write(late.join("counter_1.db"), python_file(&[("a", 2.0)])).unwrap();
    let text = endpoint.get();
    assert_eq!(value(&text, "jobs_total"), Some(1.0), "{text}");
    assert_eq!(value(&text, "sent_total"), Some(1.0), "{text}");
    assert_eq!(value(&text, "c_total{k=\"a\"}"), Some(2.0), "{text}");
    assert_eq!(skipped(&text, "unreadable"), Some(2.0));
    // A removed file is no longer shown, and is named once.
    fs::remove_file(&first).unwrap();
    for scrapes in 1..3 {
        let text = endpoint.get();
        assert_eq!(value(&text, "jobs_total"), None, "{text}");
        assert_eq!(skipped(&text, "unreadable"), Some(2.0 + f64::from(scrapes)));
    }
    let errors = endpoint.end();
    assert_eq!(errors.matches("a.quipu: there is no such").count(), 1, "{errors}");
    assert_eq!(errors.matches("b.quipu: it can be read now").count(), 1, "{errors}");
    assert_eq!(errors.lines().count(), 3, "{errors}");
}

#[test]
fn an_endpoint_follows_the_files() {
    let directory = tempfile::tempdir().unwrap();
    let mut command = expose();
    let endpoint = Endpoint::start(command.env("PROMETHEUS_MULTIPROC_DIR", directory.path()));
    assert!(endpoint.begun.contains("is the application running"), "{}", endpoint.begun);
    let get = || endpoint.get();
    assert_eq!(value(&get(), "c_total{k=\"a\"}"), None);
    for processes in 1..4 {
        let name = format!("counter_{processes}.db");
        fs::write(directory.path().join(name), python_file(&[("a", 2.0)])).unwrap();
        assert_eq!(value(&get(), "c_total{k=\"a\"}"), Some(2.0 * f64::from(processes)));
    }
    fs::write(directory.path().join("counter_9.db"), "").unwrap();
    for scrapes in 1..3 {
        let series = "quipu_scrape_files_skipped_total{reason=\"empty\"}";
        assert_eq!(value(&get(), series), Some(f64::from(scrapes)));
    }
    let rest = endpoint.end();
    // A file is named once, no matter how many times it is skipped.
    assert_eq!(rest.matches("counter_9.db").count(), 1, "{rest}");
}

#[test]
fn an_endpoint_serves_at_a_unix_socket() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("counter_1.db"), python_file(&[("a", 2.0)])).unwrap();
    let socket = directory.path().join("metrics.sock");
    let mut command = expose();
    command.arg("--listen").arg(format!("unix:{}", socket.display())).arg(directory.path());
    let mut server = Running(command.stderr(Stdio::piped()).spawn().unwrap());
    let mut errors = BufReader::new(server.0.stderr.take().unwrap());
    let mut line = String::new();
    while !line.starts_with("quipu: listening on unix:") {
        line.clear();
        assert!(errors.read_line(&mut line).unwrap() > 0, "it ended");
    }
    assert!(line.ends_with("/metrics.sock, path /metrics\n"), "{line}");
    let mut client = Command::new("curl");
    client.args(["--silent", "--show-error", "--unix-socket"]).arg(&socket);
    let text = succeed(client.arg("http://app/metrics"));
    assert_eq!(value(&text, "c_total{k=\"a\"}"), Some(2.0));
    succeed(Command::new("kill").args(["-TERM", &server.0.id().to_string()]));
    assert!(server.0.wait().unwrap().success());
    assert!(!socket.exists());
}
