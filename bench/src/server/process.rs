//! A process that a benchmark starts: its output, its resources, and its end.

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::{Error, Result};

/// A running process. Dropping it kills the process; the kernel also kills it when the thread that
/// started it ends for any reason.
#[derive(Debug)]
pub struct Process {
    child: Mutex<Child>,
    pid: u32,
    /// The command line, for errors.
    command: String,
    log: PathBuf,
}

impl Process {
    /// Starts a program in a folder, on all cores or on the given one. Its output is appended to a
    /// file.
    pub fn start(
        words: &[String],
        core: Option<usize>,
        folder: &Path,
        log: &Path,
    ) -> Result<Process> {
        let mut command = on_core(core, words);
        let output = File::options().create(true).append(true).open(log);
        let output = output.map_err(Error::file("write", log))?;
        let errors = output.try_clone().map_err(Error::file("write", log))?;
        command.current_dir(folder).stdin(Stdio::null()).stdout(output).stderr(errors);
        end_with_us(&mut command);
        let line = words.join(" ");
        let child = command
            .spawn()
            .map_err(|error| failed(&line, &format!("cannot be started: {error}"), log))?;
        let pid = child.id();
        Ok(Process { child: Mutex::new(child), pid, command: line, log: log.into() })
    }

    /// Returns the user and system time of all its threads, with the resolution of a clock tick (10
    /// ms).
    pub fn cpu_time(&self) -> Result<Duration> {
        let path = self.proc("stat");
        let text = fs::read_to_string(&path).map_err(Error::file("read", &path))?;
        let ticks = parse_stat(&text).ok_or_else(|| {
            Error::line(path.display().to_string(), 1, "no processor times in this line")
        })?;
        let rate = rustix::param::clock_ticks_per_second() as f64;
        Ok(Duration::from_secs_f64(ticks as f64 / rate))
    }

    /// Returns the same time to the nanosecond, including threads that already ended.
    pub fn exact_cpu_time(&self) -> Result<Duration> {
        exact_cpu_time(self.pid)
            .map_err(|error| self.failed(&format!("its processor time: {error}")))
    }

    /// Returns the process ID.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The resident memory, in bytes.
    pub fn memory(&self) -> Result<u64> {
        self.status("VmRSS:")
    }

    /// The peak resident memory so far, in bytes.
    pub fn peak_memory(&self) -> Result<u64> {
        self.status("VmHWM:")
    }

    /// Sends SIGKILL and waits for the end.
    pub fn kill(&self) {
        let mut child = self.child();
        // Both fail only if the process already ended.
        let _ = child.kill();
        let _ = child.wait();
    }

    /// Sends SIGTERM and waits for the end; sends SIGKILL if this takes too long.
    pub fn stop(&self, patience: Duration) -> Result<()> {
        if let Some(pid) = Pid::from_raw(self.pid as i32) {
            // This fails only if the process already ended.
            let _ = rustix::process::kill_process(pid, Signal::TERM);
        }
        let asked = Instant::now();
        while self.ended().is_none() {
            if asked.elapsed() > patience {
                self.kill();
                return Err(self.failed(&format!("does not end within {patience:?} after SIGTERM")));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Returns its status after its end.
    pub fn ended(&self) -> Option<ExitStatus> {
        self.child().try_wait().ok().flatten()
    }

    /// Returns an error about the process, with the last lines that it printed.
    pub(crate) fn failed(&self, problem: &str) -> Error {
        failed(&self.command, problem, &self.log)
    }

    fn child(&self) -> std::sync::MutexGuard<'_, Child> {
        // A panic while holding the lock leaves the child unchanged.
        self.child.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn proc(&self, file: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{file}", self.pid))
    }

    fn status(&self, field: &str) -> Result<u64> {
        let path = self.proc("status");
        let text = fs::read_to_string(&path).map_err(Error::file("read", &path))?;
        parse_status(&text, field).ok_or_else(|| {
            Error::line(path.display().to_string(), 1, format!("no {field} in this file"))
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The user and system time of a process so far, to the nanosecond.
pub(crate) fn exact_cpu_time(pid: u32) -> io::Result<Duration> {
    let mut clock = 0;
    // SAFETY: the clock outlives the call.
    match unsafe { libc::clock_getcpuclockid(pid as libc::pid_t, &raw mut clock) } {
        0 => {}
        code => return Err(io::Error::from_raw_os_error(code)),
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the time outlives the call.
    match unsafe { libc::clock_gettime(clock, &raw mut time) } {
        0 => Ok(Duration::new(time.tv_sec as u64, time.tv_nsec as u32)),
        _ => Err(io::Error::last_os_error()),
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

fn failed(command: &str, problem: &str, log: &Path) -> Error {
    let said = fs::read_to_string(log).unwrap_or_default();
    let tail: Vec<&str> = said.lines().rev().take(5).collect();
    let tail: Vec<&str> = tail.into_iter().rev().collect();
    let said = if tail.is_empty() { String::new() } else { format!("\n{}", tail.join("\n")) };
    Error::command(command, format!("{problem}{said}"))
}

/// Returns utime + stime, the fields 14 and 15 of stat in proc(5), in clock ticks. The name before
/// them can contain spaces and brackets.
fn parse_stat(text: &str) -> Option<u64> {
    let (_, after_name) = text.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(user + system)
}

/// A size of status in proc(5), in bytes.
fn parse_status(text: &str, field: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(field))?;
    let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse().ok()?;
    Some(kibibytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_is_that_of_the_process() {
        let before = exact_cpu_time(std::process::id()).unwrap();
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(3) {}
        let used = exact_cpu_time(std::process::id()).unwrap() - before;
        assert!(used > Duration::ZERO && used.as_secs() < 60, "{used:?}");
        let mut ended = Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        assert!(exact_cpu_time(ended.id()).is_err());
    }

    #[test]
    fn reads_proc_files() {
        let stat = "42 (a) b) S 1 42 42 0 -1 4194560 100 0 0 0 250 31 0 0 20 0 5 0";
        assert_eq!(parse_stat(stat), Some(281));
        assert_eq!(parse_stat("42 (a"), None);
        let status = "Name:\tx\nVmHWM:\t    4300 kB\nVmRSS:\t 42 kB\n";
        assert_eq!(parse_status(status, "VmHWM:"), Some(4300 * 1024));
        assert_eq!(parse_status(status, "VmRSS:"), Some(42 * 1024));
        assert_eq!(parse_status(status, "VmSwap:"), None);
    }
}
