//! A worker: its process, its commands, and the operations it acknowledged.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command as Program, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use clap::ValueEnum;

use crate::model::{Command, Model};

/// The language of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Language {
    Rust,
    Python,
    Ruby,
}

/// The paths of interpreters and workers.
#[derive(Debug, Clone)]
pub(crate) struct Programs {
    pub(crate) python: PathBuf,
    pub(crate) ruby: PathBuf,
    /// The folder with the gem. Its `lib` contains the compiled extension.
    pub(crate) gem: PathBuf,
    /// The folder with `worker.py` and `worker.rb`.
    pub(crate) workers: PathBuf,
    /// The library that changes a process's clock, if it is installed.
    pub(crate) clock: Option<PathBuf>,
    /// The file that collects the workers' warnings.
    pub(crate) log: PathBuf,
}

impl Programs {
    /// Opens the file of warnings for appending, for one process.
    pub(crate) fn open_log(&self) -> io::Result<File> {
        OpenOptions::new().create(true).append(true).open(&self.log)
    }
}

/// The settings of a worker's process. Faults change these.
#[derive(Debug, Clone, Default)]
pub(crate) struct Setting {
    /// The limit on the size of a file, in bytes: `ulimit -f`.
    pub(crate) most_bytes: Option<u64>,
    /// The seconds by which its wall clock is ahead.
    pub(crate) clock_ahead: i64,
}

/// The acknowledgements received from a worker.
#[derive(Debug, Default)]
struct Seen {
    started: AtomicU64,
    in_memory: AtomicU64,
    done: AtomicU64,
    ended: AtomicU64,
    child_done: AtomicU64,
    child_ended: AtomicU64,
}

/// A process that counts.
pub(crate) struct Worker {
    pub(crate) language: Language,
    child: Child,
    input: Option<ChildStdin>,
    seen: Arc<Seen>,
    reader: Option<JoinHandle<()>>,
    current: Option<Command>,
    forked: Option<Command>,
    /// The part of `seen`'s counts that belongs to earlier commands.
    before: u64,
    child_before: u64,
    pub(crate) is_stopped: bool,
}

/// The way a worker ended by itself.
pub(crate) struct Death {
    pub(crate) language: Language,
    pub(crate) status: ExitStatus,
}

impl Worker {
    pub(crate) fn start(
        language: Language,
        programs: &Programs,
        directory: &Path,
        setting: &Setting,
    ) -> io::Result<Self> {
        let mut program = match language {
            Language::Rust => Program::new(std::env::current_exe()?),
            Language::Python => Program::new(&programs.python),
            Language::Ruby => Program::new(&programs.ruby),
        };
        match language {
            Language::Rust => program.arg("worker"),
            Language::Python => program.arg(programs.workers.join("worker.py")),
            Language::Ruby => {
                let library = programs.gem.join("lib");
                program.arg("-I").arg(library).arg(programs.workers.join("worker.rb"))
            }
        };
        program.arg(directory).stdin(Stdio::piped()).stdout(Stdio::piped());
        program.stderr(programs.open_log()?).process_group(0);
        if let Some(clock) = programs.clock.as_ref().filter(|_| setting.clock_ahead != 0) {
            program.env("LD_PRELOAD", clock).env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
            program.env("FAKETIME", format!("{:+}", setting.clock_ahead));
        }
        if let Some(bytes) = setting.most_bytes {
            let limit = libc::rlimit { rlim_cur: bytes, rlim_max: libc::RLIM_INFINITY };
            // SAFETY: The child only makes one system call here.
            unsafe {
                program.pre_exec(move || {
                    match libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) {
                        0 => Ok(()),
                        _ => Err(io::Error::last_os_error()),
                    }
                });
            }
        }
        let mut child = program.spawn()?;
        let input = child.stdin.take();
        let mut output = child.stdout.take().expect("the pipe was asked for");
        let seen = Arc::new(Seen::default());
        let theirs = Arc::clone(&seen);
        let reader = std::thread::spawn(move || {
            let mut bytes = [0; 1 << 12];
            while let Ok(count @ 1..) = output.read(&mut bytes) {
                for byte in &bytes[..count] {
                    let count = match byte {
                        b'.' => &theirs.done,
                        b',' => &theirs.child_done,
                        b'd' => &theirs.ended,
                        b'c' => &theirs.child_ended,
                        b'M' => &theirs.in_memory,
                        _ => &theirs.started,
                    };
                    count.fetch_add(1, Ordering::SeqCst);
                }
            }
        });
        Ok(Self {
            language,
            child,
            input,
            seen,
            reader: Some(reader),
            current: None,
            forked: None,
            before: 0,
            child_before: 0,
            is_stopped: false,
        })
    }

    /// Returns whether the worker can accept a command, because it started and finished the last
    /// one.
    pub(crate) fn is_idle(&self) -> bool {
        self.has_started() && self.is_over(&self.current, &self.seen.ended)
    }

    fn has_started(&self) -> bool {
        self.counts_in_file() || self.counts_in_memory()
    }

    fn counts_in_file(&self) -> bool {
        self.seen.started.load(Ordering::SeqCst) > 0
    }

    pub(crate) fn counts_in_memory(&self) -> bool {
        self.seen.in_memory.load(Ordering::SeqCst) > 0
    }

    fn is_over(&self, command: &Option<Command>, ended: &AtomicU64) -> bool {
        command.is_none() || ended.load(Ordering::SeqCst) > 0
    }

    /// Returns whether a forked child is still counting.
    pub(crate) fn has_child(&self) -> bool {
        !self.is_over(&self.forked, &self.seen.child_ended)
    }

    /// Gives the worker a command. You can only call this if it is idle.
    pub(crate) fn give(&mut self, model: &mut Model, command: Command) -> u64 {
        let acknowledged = self.settle(model);
        self.current = Some(command);
        self.tell("go", command);
        acknowledged
    }

    /// Makes the worker fork a child that runs a command. You can only call this if it is idle and
    /// without a child.
    pub(crate) fn fork(&mut self, model: &mut Model, command: Command) -> u64 {
        let acknowledged = self.settle(model);
        self.forked = Some(command);
        self.tell("fork", command);
        acknowledged
    }

    fn tell(&mut self, verb: &str, Command { tag, seed, count }: Command) {
        if let Some(input) = &mut self.input {
            // A dead worker is noticed in `death`.
            let _ = writeln!(input, "{verb} {tag} {seed} {count}");
        }
    }

    /// Records finished commands in the model. Returns their number of operations.
    pub(crate) fn settle(&mut self, model: &mut Model) -> u64 {
        let mut acknowledged = 0;
        let is_shared = !self.counts_in_memory();
        if self.is_over(&self.current, &self.seen.ended)
            && let Some(command) = self.current.take()
        {
            self.seen.ended.store(0, Ordering::SeqCst);
            self.before = self.seen.done.load(Ordering::SeqCst);
            if is_shared {
                model.apply(command, command.count, false);
                acknowledged += command.count;
            }
        }
        if self.is_over(&self.forked, &self.seen.child_ended)
            && let Some(command) = self.forked.take()
        {
            self.seen.child_ended.store(0, Ordering::SeqCst);
            self.child_before = self.seen.child_done.load(Ordering::SeqCst);
            if is_shared {
                model.apply(command, command.count, false);
                acknowledged += command.count;
            }
        }
        acknowledged
    }

    /// Stops the worker and its child, or lets them continue.
    pub(crate) fn stop(&mut self, is_stopped: bool) {
        self.signal(if is_stopped { libc::SIGSTOP } else { libc::SIGCONT });
        self.is_stopped = is_stopped;
    }

    fn signal(&self, signal: i32) {
        // SAFETY: The group belongs to the child, which was not waited for yet.
        unsafe { libc::kill(-self.child.id().cast_signed(), signal) };
    }

    /// Kills the worker and its child. Returns the number of operations acknowledged by then.
    pub(crate) fn kill(mut self, model: &mut Model) -> io::Result<u64> {
        let mut acknowledged = self.settle(model);
        self.signal(libc::SIGKILL);
        self.input = None;
        self.child.wait()?;
        if let Some(reader) = self.reader.take() {
            // The reader ends when the last process with the pipe ends.
            let _ = reader.join();
        }
        acknowledged += self.settle(model);
        if !self.counts_in_memory() {
            let done = self.seen.done.load(Ordering::SeqCst) - self.before;
            let child_done = self.seen.child_done.load(Ordering::SeqCst) - self.child_before;
            for (command, done) in [(self.current, done), (self.forked, child_done)] {
                if let Some(command) = command {
                    model.apply(command, done, true);
                    acknowledged += done;
                }
            }
        }
        Ok(acknowledged)
    }

    /// Returns how the worker ended by itself. This should never happen.
    pub(crate) fn death(&mut self) -> io::Result<Option<Death>> {
        let language = self.language;
        Ok(self.child.try_wait()?.map(|status| Death { language, status }))
    }
}

impl Death {
    pub(crate) fn in_words(&self) -> String {
        match self.status.signal() {
            Some(signal) => format!("a worker in {:?} died of signal {signal}", self.language),
            None => format!("a worker in {:?} ended with {}", self.language, self.status),
        }
    }
}

/// Runs one of the storm's programs for at most `patience`. Returns its output and exit status, or
/// `None` if it was killed.
pub(crate) fn run_for(
    mut program: Program,
    patience: Duration,
) -> io::Result<Option<(String, ExitStatus)>> {
    let mut child = program.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let mut output = child.stdout.take().expect("the pipe was asked for");
    let text = std::thread::spawn(move || {
        let mut text = String::new();
        output.read_to_string(&mut text).map(|_| text)
    });
    let end = Instant::now() + patience;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break Some(status);
        }
        if Instant::now() > end {
            child.kill()?;
            child.wait()?;
            break None;
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    let text = text.join().map_err(|_| io::Error::other("the output cannot be read"))??;
    Ok(status.map(|status| (text, status)))
}
