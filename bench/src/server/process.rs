//! Starts a server, measures its resources, and stops it.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use super::client::{self, Tally};
use crate::{Error, Result};

/// How long a server may take to respond after its start, or to end after SIGTERM.
const PATIENCE: Duration = Duration::from_secs(10);

/// A server that can be started.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    /// The subject of its records.
    pub subject: String,
    /// The program and its arguments, in which `{port}` and `{state}` are replaced by the port to
    /// listen on and the file for the count.
    pub command: Vec<String>,
}

impl Program {
    /// A program from a command line, which is split at spaces.
    pub fn new(subject: &str, command: &str) -> Program {
        let command = command.split_whitespace().map(String::from).collect();
        Program { subject: subject.into(), command }
    }

    /// Parses `SUBJECT=COMMAND`.
    pub fn parse(text: &str) -> std::result::Result<Program, String> {
        let wanted = "SUBJECT=COMMAND, where the command holds {port} and {state}";
        let (subject, command) = text.split_once('=').ok_or(wanted)?;
        if subject.is_empty() || !command.contains("{port}") || !command.contains("{state}") {
            return Err(wanted.into());
        }
        Ok(Program::new(subject, command))
    }

    /// Starts the server with its state in a folder, on a free port or on the given one, on all
    /// cores or on the given one, and waits until it responds.
    pub fn start(&self, folder: &Path, port: Option<u16>, core: Option<usize>) -> Result<Running> {
        let port = port.map_or_else(free_port, Ok)?;
        let state = folder.join("state").display().to_string();
        let fill =
            |text: &String| text.replace("{port}", &port.to_string()).replace("{state}", &state);
        let words: Vec<String> = self.command.iter().map(fill).collect();
        let mut command = on_core(core, &words);
        let log = folder.join("log");
        let output = File::options().create(true).append(true).open(&log);
        let output = output.map_err(Error::file("write", &log))?;
        let errors = output.try_clone().map_err(Error::file("write", &log))?;
        command.current_dir(crate::root()).stdin(Stdio::null()).stdout(output).stderr(errors);
        end_with_us(&mut command);
        let child = command
            .spawn()
            .map_err(|error| self.failed(format!("cannot be started: {error}"), &log))?;

        let pid = child.id();
        let mut running = Running {
            child: Mutex::new(child),
            pid,
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            probes: Tally::default(),
            first_count: 0,
        };
        let started = Instant::now();
        loop {
            if let Some(status) = running.ended() {
                return Err(self.failed(format!("ended with {status} at its start"), &log));
            }
            match client::ask(running.address) {
                Ok(count) => {
                    running.probes.sent += 1;
                    running.probes.answered += 1;
                    running.first_count = count;
                    return Ok(running);
                }
                // Without a connection, nothing was sent.
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {}
                Err(error) if started.elapsed() > PATIENCE => {
                    return Err(self.failed(format!("does not respond well: {error}"), &log));
                }
                Err(_) => running.probes.sent += 1,
            }
            if started.elapsed() > PATIENCE {
                return Err(self.failed("does not listen".into(), &log));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn failed(&self, problem: String, log: &Path) -> Error {
        let said = fs::read_to_string(log).unwrap_or_default();
        let tail: Vec<&str> = said.lines().rev().take(5).collect();
        let tail: Vec<&str> = tail.into_iter().rev().collect();
        let said = if tail.is_empty() { String::new() } else { format!("\n{}", tail.join("\n")) };
        Error::command(self.command.join(" "), format!("{problem}{said}"))
    }
}

/// A running server. Dropping it kills the server; the kernel also kills it when the thread that
/// started it ends for any reason.
#[derive(Debug)]
pub struct Running {
    child: Mutex<Child>,
    pid: u32,
    address: SocketAddr,
    probes: Tally,
    first_count: u64,
}

impl Running {
    /// The address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The port on which it listens.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// The requests that probed whether it responds.
    pub fn probes(&self) -> Tally {
        self.probes
    }

    /// The count in the first response after the start, which includes that probe.
    pub fn first_count(&self) -> u64 {
        self.first_count
    }

    /// The user and system time of all its threads, with the resolution of a clock tick (10 ms).
    pub fn cpu_time(&self) -> Result<Duration> {
        let path = self.proc("stat");
        let text = fs::read_to_string(&path).map_err(Error::file("read", &path))?;
        let ticks = parse_stat(&text).ok_or_else(|| {
            Error::line(path.display().to_string(), 1, "no processor times in this line")
        })?;
        let rate = rustix::param::clock_ticks_per_second() as f64;
        Ok(Duration::from_secs_f64(ticks as f64 / rate))
    }

    /// The peak resident memory so far, in bytes.
    pub fn peak_memory(&self) -> Result<u64> {
        let path = self.proc("status");
        let text = fs::read_to_string(&path).map_err(Error::file("read", &path))?;
        parse_peak(&text)
            .ok_or_else(|| Error::line(path.display().to_string(), 1, "no VmHWM in this file"))
    }

    /// Sends SIGKILL and waits for the end.
    pub fn kill(&self) {
        let mut child = self.child();
        // Either fails only if the process has ended.
        let _ = child.kill();
        let _ = child.wait();
    }

    /// Sends SIGTERM and waits for the end; sends SIGKILL if that takes too long.
    pub fn stop(self) -> Result<()> {
        if let Some(pid) = Pid::from_raw(self.pid as i32) {
            // This fails only if the process has ended.
            let _ = rustix::process::kill_process(pid, Signal::TERM);
        }
        let asked = Instant::now();
        while self.ended().is_none() {
            if asked.elapsed() > PATIENCE {
                self.kill();
                let problem = format!("does not end within {PATIENCE:?} after SIGTERM");
                return Err(Error::command(format!("process {}", self.pid), problem));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    fn ended(&self) -> Option<std::process::ExitStatus> {
        self.child().try_wait().ok().flatten()
    }

    fn child(&self) -> std::sync::MutexGuard<'_, Child> {
        // A panic while holding the lock leaves the child unchanged.
        self.child.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn proc(&self, file: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{file}", self.pid))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A command that runs on one core, if one is given.
pub(super) fn on_core(core: Option<usize>, words: &[String]) -> Command {
    let taskset = core.map(|core| ["taskset".into(), "-c".into(), core.to_string()]);
    let all: Vec<&String> = taskset.iter().flatten().chain(words).collect();
    let mut all = all.into_iter();
    let mut command = Command::new(all.next().map_or("", |word| word));
    command.args(all);
    command
}

/// Makes the kernel kill the process when the thread that starts it ends for any reason.
pub(crate) fn end_with_us(command: &mut Command) {
    let ask = || Ok(rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?);
    // SAFETY: between fork and exec, the closure makes one system call and does not allocate.
    unsafe { command.pre_exec(ask) };
}

/// A port on which no process listens. If another process takes it before the server does, the
/// server reports that.
pub(crate) fn free_port() -> Result<u16> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map(|address| address.port())
        .map_err(|error| Error::command("bind 127.0.0.1:0", format!("no free port: {error}")))
}

/// utime + stime, the fields 14 and 15 of stat in proc(5), in clock ticks. The name before them may
/// contain spaces and brackets.
fn parse_stat(text: &str) -> Option<u64> {
    let (_, after_name) = text.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

/// VmHWM of status in proc(5), in bytes.
fn parse_peak(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_proc_files() {
        let stat = "42 (a) b) S 1 42 42 0 -1 4194560 100 0 0 0 250 31 0 0 20 0 5 0";
        assert_eq!(parse_stat(stat), Some(281));
        assert_eq!(parse_stat("42 (a"), None);
        assert_eq!(parse_peak("Name:\tx\nVmHWM:\t    4300 kB\n"), Some(4300 * 1024));
    }

    #[test]
    fn parses_a_program() {
        let program = Program::parse("my server=bin/x -p {port} -s={state}").unwrap();
        assert_eq!(program.subject, "my server");
        assert_eq!(program.command, ["bin/x", "-p", "{port}", "-s={state}"]);
        assert!(Program::parse("bin/x {port}").is_err());
        assert!(Program::parse("x=bin/x {port}").is_err());
    }

    #[test]
    fn a_server_that_cannot_start_says_why() {
        let folder = tempfile::tempdir().unwrap();
        let error = |command: &str| {
            let program = Program::new("s", command);
            program.start(folder.path(), None, None).unwrap_err().to_string()
        };
        let missing = error("no-such-program-here {port} {state}");
        assert!(missing.contains("cannot be started"), "{missing}");
        let ended = error("ls --no-such-option {port} {state}");
        assert!(ended.contains("at its start\nls: "), "{ended}");
    }
}
