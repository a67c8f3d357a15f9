//! Runs the daemon as a child process with its own directory and address. You can kill it by
//! dropping it.

mod client;
pub(crate) mod lines;
mod load;
mod model;
mod random;
mod received;

use std::cell::RefCell;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use serde_json::Value;
use tempfile::TempDir;

pub(crate) use client::{Client, Response};
pub(crate) use load::Load;
pub(crate) use model::Events;
pub(crate) use random::Random;
pub(crate) use received::Received;

/// The time limit of every wait. After it, the test fails.
pub(crate) const DEADLINE: Duration = Duration::from_secs(120);

/// A directory for the files of one test, and a loopback address that no other test uses.
///
/// This address makes it safe to reuse a port, and to send to a closed port, because no other
/// daemon can get it in the meantime.
pub(crate) struct Home {
    directory: TempDir,
    host: String,
    runs: AtomicU32,
}

impl Home {
    pub(crate) fn new() -> Home {
        static HOMES: AtomicU32 = AtomicU32::new(1);
        // On Linux, all of 127/8 is local. The process id separates concurrent test processes.
        let (process, home) = (std::process::id(), HOMES.fetch_add(1, Ordering::Relaxed));
        let (part, home) = (home / 250, home % 250 + 1);
        assert!(part < 4, "more homes than addresses: count on in another octet");
        let host = format!("127.{}.{}.{home}", 64 + part * 32 + process / 250 % 32, process % 250);
        Home { directory: tempfile::tempdir().unwrap(), host, runs: AtomicU32::new(0) }
    }

    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.path("state.quipu")
    }

    /// Returns the address for this home's daemons.
    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    /// Returns the names of the files in the directory, except the home's own files, sorted.
    pub(crate) fn files(&self) -> Vec<String> {
        let names = fs::read_dir(self.directory.path()).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|name| !name.starts_with("run-")).collect();
        names.sort();
        names
    }

    /// Creates a command for the binary. This command ignores settings in the environment of the
    /// tests.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_quipu"));
        for (name, _) in std::env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"QUIPU_") {
                command.env_remove(name);
            }
        }
        command.current_dir(self.directory.path()).stdin(Stdio::null());
        command
    }

    /// Starts a daemon on any free port, and waits until it serves.
    pub(crate) fn start(&self, arguments: &[&str]) -> Daemon {
        let daemon = self.launch(arguments);
        daemon.wait_for("started");
        daemon
    }

    /// Starts a daemon without waiting.
    pub(crate) fn launch(&self, arguments: &[&str]) -> Daemon {
        let listen = format!("{}:0", self.host);
        let mut command = self.command();
        command.arg("serve").args(arguments);
        // These defaults suit most tests: a long window, so that counts don't expire, and a small
        // table.
        for (flag, value) in [
            ("--state", "state.quipu"),
            ("--listen", &listen),
            ("--window", "1h"),
            ("--keys", "16"),
            ("--log-format", "json"),
        ] {
            if !arguments.contains(&flag) {
                command.args([flag, value]);
            }
        }
        self.spawn(command)
    }

    /// Runs `quipu serve` with exactly these arguments until it exits by itself.
    pub(crate) fn run(&self, arguments: &[&str]) -> Ended {
        let mut command = self.command();
        command.arg("serve").args(arguments);
        self.finish(command)
    }

    /// Runs a command until it exits by itself.
    pub(crate) fn finish(&self, command: Command) -> Ended {
        self.spawn(command).wait()
    }

    /// Expects the daemon to refuse to start with these arguments, and to print each of the parts.
    pub(crate) fn expect_refusal(&self, arguments: &[&str], code: i32, parts: &[&str]) {
        let ended = self.run(arguments);
        assert_eq!(ended.status.code(), Some(code), "{arguments:?}: {}", ended.stderr);
        for part in parts {
            assert!(ended.stderr.contains(part), "{arguments:?}: no {part:?} in {}", ended.stderr);
        }
        assert_eq!(ended.stdout, "", "{arguments:?}");
    }

    /// Starts a command without waiting.
    pub(crate) fn spawn(&self, mut command: Command) -> Daemon {
        let run = self.runs.fetch_add(1, Ordering::Relaxed);
        let stdout = self.path(&format!("run-{run}.out"));
        let stderr = self.path(&format!("run-{run}.err"));
        command.stdout(File::create(&stdout).unwrap()).stderr(File::create(&stderr).unwrap());
        Daemon { child: RefCell::new(command.spawn().unwrap()), stdout, stderr }
    }
}

/// A running daemon.
pub(crate) struct Daemon {
    child: RefCell<Child>,
    stdout: PathBuf,
    stderr: PathBuf,
}

/// The exit status and the output of a process.
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Daemon {
    /// Returns the first listening address of the daemon.
    pub(crate) fn address(&self) -> SocketAddr {
        self.wait_for("listening")["address"].as_str().unwrap().parse().unwrap()
    }

    pub(crate) fn connect(&self) -> Client {
        Client::connect(self.address()).unwrap()
    }

    /// Sends a `GET` request on a new connection.
    pub(crate) fn get(&self, target: &str) -> Response {
        self.connect().request("GET", target).unwrap()
    }

    /// Scrapes the metrics in a format.
    pub(crate) fn scrape(&self, accept: &str) -> Response {
        let mut client = self.connect();
        let request = format!("GET /metrics HTTP/1.1\r\nHost: quipu\r\nAccept: {accept}\r\n\r\n");
        client.send(request).unwrap();
        client.read_response().unwrap()
    }

    /// Sends a `POST` request without a body on a new connection.
    pub(crate) fn post(&self, target: &str) -> Response {
        self.connect().request("POST", target).unwrap()
    }

    /// Sends a `POST` request with these header fields and a body on a new connection.
    pub(crate) fn post_body(&self, target: &str, fields: &[(&str, &str)], body: &[u8]) -> Response {
        self.connect().post(target, fields, body).unwrap()
    }

    /// Returns the count in the response to a `GET` request.
    pub(crate) fn count(&self, target: &str) -> u64 {
        self.get(target).count()
    }

    /// Returns the value of a sample. The name includes the labels, like in the exposition.
    pub(crate) fn sample(&self, name: &str) -> f64 {
        let text = self.get("/metrics").text();
        let found = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        found.unwrap_or_else(|| panic!("no {name} in {text}")).parse().unwrap()
    }

    /// Returns the complete lines of the log so far.
    pub(crate) fn log(&self) -> Vec<String> {
        let text = fs::read_to_string(&self.stderr).unwrap();
        let end = text.rfind('\n').map_or(0, |end| end + 1);
        text[..end].lines().map(str::to_owned).collect()
    }

    /// Returns the first event whose message begins with `message`, if it was logged.
    pub(crate) fn event(&self, message: &str) -> Option<Value> {
        self.log().iter().find_map(|line| {
            let event: Value = serde_json::from_str(line).ok()?;
            event["message"].as_str()?.starts_with(message).then_some(event)
        })
    }

    /// Waits for the first event whose message begins with `message`.
    #[track_caller]
    pub(crate) fn wait_for(&self, message: &str) -> Value {
        let found = poll(|| {
            // This order matters, because the log is complete if we read it after the process has
            // exited.
            let ended = self.child.borrow_mut().try_wait().unwrap().is_some();
            let event = self.event(message);
            (ended || event.is_some()).then_some(event)
        });
        let found = found.flatten();
        found.unwrap_or_else(|| panic!("no {message:?} in the log: {:#?}", self.log()))
    }

    /// Waits until the daemon starts or exits. Returns whether it started.
    pub(crate) fn starts(&self) -> bool {
        let known = poll(|| {
            let ended = self.child.borrow_mut().try_wait().unwrap().is_some();
            let started = self.event("started").is_some();
            (ended || started).then_some(started)
        });
        known.expect("it neither starts nor exits")
    }

    /// Returns the log event about the opened state.
    pub(crate) fn opened(&self) -> Value {
        self.wait_for("opened the state")
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child.borrow()), signal).unwrap();
    }

    /// Returns the process ID.
    pub(crate) fn id(&self) -> u32 {
        self.child.borrow().id()
    }

    /// Limits the number of open files of the process. Files that are already open stay open.
    pub(crate) fn limit_files(&self, files: u64) {
        let pid = Pid::from_child(&self.child.borrow());
        let limit = Rlimit { current: Some(files), maximum: Some(1 << 10) };
        prlimit(Some(pid), Resource::Nofile, limit).unwrap();
    }

    /// Limits the size of the files of the process, which simulates a full disk.
    pub(crate) fn limit_file_size(&self, bytes: u64) {
        let pid = Pid::from_child(&self.child.borrow());
        let limit = Rlimit { current: Some(bytes), maximum: None };
        prlimit(Some(pid), Resource::Fsize, limit).unwrap();
    }

    /// Kills the process, like the system when it runs out of memory.
    pub(crate) fn kill(self) {
        self.signal(Signal::KILL);
        self.wait();
    }

    /// Stops the daemon cleanly.
    pub(crate) fn stop(self) {
        self.signal(Signal::TERM);
        let ended = self.wait();
        assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
    }

    /// Waits until the daemon exits by itself.
    pub(crate) fn wait(self) -> Ended {
        let status = poll(|| self.child.borrow_mut().try_wait().unwrap());
        let read = |path: &Path| fs::read_to_string(path).unwrap();
        let (stdout, stderr) = (read(&self.stdout), read(&self.stderr));
        let status = status.unwrap_or_else(|| panic!("it does not end: {stderr}"));
        Ended { status, stdout, stderr }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Ignore the errors, because both calls fail after the process exited.
        let child = self.child.get_mut();
        let _ = child.kill();
        let _ = child.wait();
        if thread::panicking() {
            eprintln!("{}", fs::read_to_string(&self.stderr).unwrap_or_default());
        }
    }
}

/// Retries until there is a result, or until the deadline.
pub(crate) fn poll<T>(mut attempt: impl FnMut() -> Option<T>) -> Option<T> {
    let begun = Instant::now();
    loop {
        if let Some(found) = attempt() {
            return Some(found);
        }
        if begun.elapsed() > DEADLINE {
            return None;
        }
        thread::sleep(Duration::from_millis(2));
    }
}

/// Waits until the condition holds.
pub(crate) fn wait_until(expectation: &str, mut condition: impl FnMut() -> bool) {
    assert!(poll(|| condition().then_some(())).is_some(), "waited in vain: {expectation}");
}

/// Returns the path of a program on `PATH`. If it is missing, the failure names the package to
/// install.
pub(crate) fn program(name: &str, package: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .map(|directory| directory.join(OsStr::new(name)))
        .find(|path| path.is_file());
    found.unwrap_or_else(|| panic!("{name} is not on PATH: install the package {package}"))
}
