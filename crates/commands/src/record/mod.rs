//! `quipu record`: runs a flight recorder in the segments of other programs, without changing these
//! programs. `quipu serve --segments-record` runs this command in a separate process.
//!
//! The command joins the processes of a file as a guest: the program opens, repairs and closes its
//! file, and the command does not touch a file that no program keeps open. There are two kinds of
//! threads. For each configured path, one thread finds files and joins them (`files.rs`), because
//! these steps can wait for a disk. A single thread records (`rounds.rs`). It uses only files that
//! responded recently and gives up slow files, but hangs if the file system of a file hangs. A
//! truncated file ends only its own recording.
//!
//! The daemon starts this command as a process, reads its reports (`report.rs`), and kills a
//! process that hangs.

mod files;
pub mod report;
mod rounds;

use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Instant;

use clap::Args;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, iterator};

use crate::output::Error;
use files::{Files, Finder};
use quipu_process::signals::exit_at_second;
use quipu_process::size::parse_in;
use quipu_process::time::Time;
use report::Reporter;
use rounds::{Event, Rounds};

/// Arguments of `quipu record`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  quipu record /run/app.quipu
  quipu record --for 1h /run/quipu '/srv/*/metrics.quipu'
  quipu inspect --history /run/app.quipu
  quipu top --replay /run/app.quipu

It needs write access to the files, and records those that programs share.")]
pub struct Record {
    /// Segment files, directories with such files, and patterns of paths
    #[arg(value_name = "PLACE", required = true)]
    places: Vec<String>,

    /// Ends after this time; without it, with a signal
    #[arg(long = "for", value_name = "TIME")]
    time: Option<Time>,

    /// Maximum bytes that a recording takes in a segment: at most a fourth of the room that its
    /// limit and its disk have left
    #[arg(
        long, value_name = "BYTES", default_value_t = 4 << 20,
        value_parser = |text: &str| parse_in::<u64>(text, LEAST_BYTES..=64 << 20),
    )]
    bytes: u64,

    /// Maximum number of series that are recorded of a segment
    #[arg(
        long, value_name = "COUNT", default_value_t = 1000,
        value_parser = |text: &str| parse_in::<u16>(text, 1..=16_384),
    )]
    series: u16,

    /// Maximum number of segments that are recorded at a time
    #[arg(
        long, value_name = "COUNT", default_value_t = DEFAULT_COUNT,
        value_parser = |text: &str| parse_in::<u16>(text, 1..=MOST_COUNT.into()),
    )]
    count: u16,

    /// Reports to the daemon that started it, and ends with it
    #[arg(long, hide = true)]
    child: bool,

    /// A file that is not recorded: the daemon's own
    #[arg(long, value_name = "FILE", hide = true)]
    except: Option<PathBuf>,
}

/// The minimum size of a recording in bytes.
const LEAST_BYTES: u64 = 256 << 10;
/// The default maximum number of recorded segments, because each one needs a few open files.
pub const DEFAULT_COUNT: u16 = 100;
/// The maximum value for this number.
pub const MOST_COUNT: u16 = 1000;

/// The signals that end the process, unless the daemon started it.
const END: [i32; 3] = [SIGTERM, SIGINT, SIGHUP];

/// Records until a signal arrives, or for the given time.
///
/// # Errors
/// Fails if the system refuses a thread, a signal handler, or the handler for truncated files, if
/// standard output cannot be written, or if the time ends before any file was recorded.
pub fn run(arguments: &Record) -> Result<(), Error> {
    let refused = |action: &'static str| {
        move |error: io::Error| {
            Error::new(format_args!("the system does not let it {action}: {error}"))
        }
    };
    survive_cuts().map_err(refused("survive files that are cut"))?;
    let (sender, events) = mpsc::channel();
    if arguments.child {
        set_name();
        end_with_parent(sender.clone()).map_err(refused("end with its parent"))?;
    } else {
        end_by_signal(sender.clone()).map_err(refused("watch signals"))?;
    }
    let files = Arc::new(Files::default());
    for finder in Finder::for_places(arguments, &files, &sender) {
        thread::Builder::new()
            .name("look".into())
            .spawn(move || finder.run())
            .map_err(refused("start a thread"))?;
    }
    // We drop this sender, because the recording must end after the last scanning thread.
    drop(sender);
    let until = arguments.time.and_then(|time| Instant::now().checked_add(time.0));
    let reporter = match arguments.child {
        true => Reporter::for_daemon().map_err(refused("write to standard output"))?,
        false => Reporter::for_people(),
    };
    let result = Rounds::new(events, Arc::clone(&files), reporter).run(until);
    result.map_err(|error| Error::new(format_args!("standard output: {error}")))?;
    if arguments.child || files.table().has_recorded {
        return Ok(());
    }
    let message = "nothing was recorded: no program had a segment open that can be recorded";
    Err(Error::new(format_args!("{}: {message}", arguments.places.join(", "))))
}

#[cfg(target_os = "linux")]
fn survive_cuts() -> io::Result<()> {
    quipu_segment::survive_cuts()
}

#[cfg(not(target_os = "linux"))]
fn survive_cuts() -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Sets the name of the process for `ps` and `quipu inspect`. The daemon starts it through the link
/// `/proc/self/exe`, so its name would otherwise be `exe`.
fn set_name() {
    // We ignore the error, because a system without this file only shows another name.
    let _ = std::fs::write("/proc/self/comm", "quipu");
}

/// Sends the stop event when the daemon closes standard input. Also makes the kernel end this
/// process when the daemon dies, even if this process is stopped.
fn end_with_parent(sender: Sender<Event>) -> io::Result<()> {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{Signal, set_parent_process_death_signal};
        set_parent_process_death_signal(Some(Signal::KILL))?;
    }
    // We ignore these signals because they can be sent to all processes of a unit, for example, but
    // this process must not end before the daemon, which drains first.
    let ignored = Arc::new(AtomicBool::new(false));
    for number in END {
        flag::register(number, Arc::clone(&ignored))?;
    }
    let watch = move || {
        let mut bytes = [0; 64];
        let mut input = io::stdin();
        // We repeat an interrupted read. After any other end, the daemon is gone.
        while match input.read(&mut bytes) {
            Ok(count) => count > 0,
            Err(error) => error.kind() == io::ErrorKind::Interrupted,
        } {}
        let _ = sender.send(Event::Stop);
    };
    thread::Builder::new().name("parent".into()).spawn(watch).map(drop)
}

/// Sends the stop event on the first signal. The second one ends the process at once.
fn end_by_signal(sender: Sender<Event>) -> io::Result<()> {
    exit_at_second(&END)?;
    let mut signals = iterator::Signals::new(END)?;
    let watch = move || {
        signals.forever().next();
        let _ = sender.send(Event::Stop);
    };
    thread::Builder::new().name("signals".into()).spawn(watch).map(drop)
}
