//! Controls the recorder of the daemon: a thread that runs `quipu record` as a child process, reads
//! its reports, and restarts it when it ends.
//!
//! The recorder is a separate process because it maps files that other programs can truncate, and
//! because it takes part in their locks. If it crashes, the daemon continues to serve, and the
//! system releases the locks. If it sends no report for some seconds, we assume that it hangs, and
//! kill it.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use quipu::collector::Collector;
use quipu::snapshot::Sink;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracing::{debug, info, warn};

use quipu_agent::own::names;
use quipu_commands::record;
use quipu_commands::record::report::{Line, State, StateChange};
use quipu_process::flags;
use quipu_process::settings::{Switch, Unusable, in_range, set};
use quipu_process::size::Size;

flags! {
    /// The settings of the recording.
    #[command(next_help_heading = "Segments of other programs")]
    pub struct RecordingFlags {
        /// Record the segments that programs have open, second by second: after a crash, quipu
        /// inspect --history shows the seconds before it. A process next to the daemon takes
        /// up to 4 MiB of each segment [default: off]
        #[arg(
            long, env = "QUIPU_SEGMENTS_RECORD", value_name = "SWITCH",
            num_args = 0..=1, default_missing_value = "on",
        )]
        segments_record: Switch = Switch::Off,

        /// Maximum number of segments that are recorded at a time, up to 1000 [default: 100]
        #[arg(long, env = "QUIPU_SEGMENTS_RECORD_COUNT", value_name = "COUNT")]
        segments_record_count: Size<usize> = Size(record::DEFAULT_COUNT.into()),
    }
}

impl RecordingFlags {
    /// Returns the maximum number of recorded segments, if recording is on.
    ///
    /// # Errors
    /// Fails for a number out of its bounds.
    pub fn resolve(&self) -> Result<Option<usize>, Unusable> {
        let (flag, most) = ("segments-record-count", record::MOST_COUNT.into());
        let count = in_range(flag, self.segments_record_count, 1, most)?;
        Ok(set(self.segments_record).is_on().then_some(count))
    }
}

/// The options of the recorder.
#[derive(Debug, Clone)]
pub struct Options {
    /// The paths to record: files, directories, and patterns.
    pub places: Vec<String>,
    /// The maximum number of recorded segments.
    pub count: usize,
    /// The daemon's own state file, which is not recorded.
    pub except: PathBuf,
}

/// The running recorder. Dropping this value ends the process and the thread.
#[derive(Debug)]
pub struct Recorder {
    metrics: RecorderMetrics,
    /// Closed when the thread must end.
    wake: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

/// A collector of metrics about the recorder. Clones share the last report.
#[derive(Debug, Clone, Default)]
pub struct RecorderMetrics(Arc<Mutex<RecorderStatus>>);

/// The last report, and whether the process is running.
#[derive(Debug, Clone, Copy, Default)]
struct RecorderStatus {
    is_up: bool,
    restarts: u64,
    counts: [usize; State::ALL.len()],
}

/// The reason why the process must end.
enum EndReason {
    /// The daemon is stopping.
    Stopped,
    /// The process has ended, or is useless, for this reason.
    Failed(String),
}

/// The duration of one wait for a report. The process sends a report every second.
const SLICE: Duration = Duration::from_secs(1);
/// The maximum number of consecutive waits without a report. We count waits instead of time,
/// because the daemon itself can be paused for long.
const MOST_SILENT: u32 = 10;
/// The time limit for the process to end by itself.
const GRACE: Duration = Duration::from_secs(2);
/// The pause before the process is restarted.
const PAUSE: Duration = Duration::from_secs(1);
/// The maximum pause. The pause doubles up to this limit while the process keeps ending early.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// The maximum length of a report in bytes.
const MOST_LINE: usize = 8 << 20;

impl Recorder {
    /// Starts the thread, which starts the process.
    ///
    /// # Errors
    /// Fails if the system provides no thread or descriptor.
    pub fn start(options: Options) -> io::Result<Self> {
        let (wake, woken) = UnixStream::pair()?;
        let metrics = RecorderMetrics::default();
        let thread = Thread { options, metrics: metrics.clone(), woken };
        let thread = thread::Builder::new().name("recorder".into()).spawn(move || thread.run())?;
        Ok(Self { metrics, wake: Some(wake), thread: Some(thread) })
    }

    /// Returns a collector of metrics about the recording.
    pub fn metrics(&self) -> RecorderMetrics {
        self.metrics.clone()
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        drop(self.wake.take());
        if let Some(thread) = self.thread.take() {
            // The thread has already reported its panic.
            let _ = thread.join();
        }
    }
}

/// The state of the thread. The thread lives as long as the daemon, because the system ends the
/// child process together with the thread that started it.
struct Thread {
    options: Options,
    metrics: RecorderMetrics,
    woken: UnixStream,
}

impl Thread {
    fn run(self) {
        let mut pause = PAUSE;
        loop {
            let began = Instant::now();
            let reason = match self.start() {
                Ok(mut child) => {
                    let end = self.watch(&mut child);
                    self.metrics.status().is_up = false;
                    match end {
                        EndReason::Stopped => return stop(child),
                        EndReason::Failed(reason) => {
                            if !self.reap(&mut child) {
                                return;
                            }
                            reason
                        }
                    }
                }
                Err(error) => format!("it cannot be started: {error}"),
            };
            if began.elapsed() >= LONGEST_PAUSE {
                pause = PAUSE;
            }
            warn!(what = %reason, again_in = ?pause, "the process that records segments has ended");
            if self.sleeps_through(pause) {
                return;
            }
            self.metrics.status().restarts += 1;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Waits for this time. Returns true if the daemon stops in the meantime.
    fn sleeps_through(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let mut woken = [PollFd::new(&self.woken, PollFlags::IN)];
            match poll(&mut woken, Timespec::try_from(left).ok().as_ref()) {
                Ok(ready) if ready > 0 => return true,
                _ if left.is_zero() => return false,
                _ => {}
            }
        }
    }

    fn start(&self) -> io::Result<Child> {
        let Options { places, count, except } = &self.options;
        // The running program, even if another version has replaced its file.
        let mut command = Command::new("/proc/self/exe");
        command.arg0("quipu").args(["record", "--child", "--count"]).arg(count.to_string());
        command.arg("--except").arg(except).arg("--").args(places);
        // A separate process group, because the signals of a terminal are meant for the daemon.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.spawn()
    }

    /// Reads the reports of the process, until it ends or must end.
    fn watch(&self, child: &mut Child) -> EndReason {
        let Some(mut output) = child.stdout.take() else { return EndReason::Stopped };
        info!(process = child.id(), "recording the watched segments in a process of its own");
        let mut lines = Lines::default();
        let mut silent = 0;
        loop {
            let mut both =
                [PollFd::new(&output, PollFlags::IN), PollFd::new(&self.woken, PollFlags::IN)];
            if poll(&mut both, Timespec::try_from(SLICE).ok().as_ref()).is_err() {
                // Retry after an interrupt.
                continue;
            }
            let [has_output, is_woken] = both.map(|polled| !polled.revents().is_empty());
            if is_woken {
                return EndReason::Stopped;
            }
            if !has_output {
                silent += 1;
                if silent >= MOST_SILENT {
                    let time = SLICE * MOST_SILENT;
                    let reason = format!("it said nothing for {time:?}: it was stopped, or stuck");
                    return EndReason::Failed(reason);
                }
                continue;
            }
            match lines.read(&mut output) {
                Ok(0) => return EndReason::Failed("it has closed its output".to_owned()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return EndReason::Failed(error.to_string()),
            }
            while let Some(line) = lines.next() {
                silent = 0;
                self.take(line);
            }
        }
    }

    /// Waits until a failed process has ended, because only one may run, and a process that hangs
    /// in a file system cannot be killed. Returns false if the daemon stops in the meantime.
    fn reap(&self, child: &mut Child) -> bool {
        let _ = child.kill();
        let mut pause = Duration::from_millis(5);
        while let Ok(None) = child.try_wait() {
            if self.sleeps_through(pause) {
                return false;
            }
            pause = (pause * 2).min(PAUSE);
        }
        true
    }

    fn take(&self, line: Line) {
        {
            let mut status = self.metrics.status();
            status.is_up = true;
            status.counts = line.counts;
        }
        for StateChange { path, before, state, reason } in line.changes {
            match (before, state) {
                (_, State::Recorded) => info!(%path, "recording a watched segment"),
                (Some(State::Recorded), State::Closed | State::ByProgram) => {
                    info!(%path, what = %reason, "a watched segment is no longer recorded");
                }
                (_, State::Closed | State::ByProgram | State::Exclusive | State::Joined) => {
                    debug!(%path, what = %reason, "a watched segment is not recorded");
                }
                _ => warn!(%path, what = %reason, "a watched segment is not recorded"),
            }
        }
    }
}

/// Ends the process: lets it release its locks, or kills it after a while.
fn stop(mut child: Child) {
    drop(child.stdin.take());
    for time in [GRACE, GRACE] {
        let begun = Instant::now();
        while begun.elapsed() < time {
            match child.try_wait() {
                Ok(None) => thread::sleep(Duration::from_millis(5)),
                _ => return,
            }
        }
        // This wait is limited, because the process can hang in a file system.
        let _ = child.kill();
    }
}

/// The output of the process, split into lines.
#[derive(Default)]
struct Lines {
    bytes: VecDeque<u8>,
    lines: VecDeque<Line>,
}

impl Lines {
    /// Reads the available bytes. Returns their number.
    fn read(&mut self, output: &mut ChildStdout) -> io::Result<usize> {
        let mut buffer = [0; 1 << 14];
        let count = output.read(&mut buffer)?;
        self.add(&buffer[..count])?;
        Ok(count)
    }

    fn add(&mut self, bytes: &[u8]) -> io::Result<()> {
        for &byte in bytes {
            if byte == b'\n' {
                let line = serde_json::from_slice(self.bytes.make_contiguous())?;
                self.bytes.clear();
                self.lines.push_back(line);
            } else if self.bytes.len() < MOST_LINE {
                self.bytes.push_back(byte);
            } else {
                return Err(io::Error::other("it wrote a line without an end"));
            }
        }
        Ok(())
    }

    fn next(&mut self) -> Option<Line> {
        self.lines.pop_front()
    }
}

impl RecorderMetrics {
    fn status(&self) -> MutexGuard<'_, RecorderStatus> {
        // A poisoned mutex is fine, because no change of the status can panic half way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Collector for RecorderMetrics {
    fn names(&self) -> Vec<String> {
        names(self)
    }

    fn collect(&self, sink: &mut dyn Sink) {
        let status = *self.status();
        let help = "Watched segment files, by whether they are recorded, or why not.";
        let mut recorded = sink.gauge("quipu_segments_recorded", help, ["state"]);
        for (state, count) in State::ALL.into_iter().zip(status.counts) {
            // Without the process, no segment is recorded.
            recorded.sample([state.name()], if status.is_up { count } else { 0 });
        }
        let help = "Whether the process runs that records segments.";
        sink.gauge("quipu_segments_recorder_up", help, []).sample([], status.is_up);
        let help = "How often the process that records segments was started again.";
        sink.counter("quipu_segments_recorder_restarts", help, []).sample([], status.restarts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_from_pieces_of_any_size() {
        let change = StateChange {
            path: "a".into(),
            before: None,
            state: State::NoRoom,
            reason: "it is \"full\"\n".into(),
        };
        let line = Line { counts: [1, 0, 0, 0, 0, 0, 2, 0, 0], changes: vec![change] };
        let mut bytes = serde_json::to_vec(&line).unwrap();
        bytes.push(b'\n');
        let all = bytes.repeat(3);
        for size in [1, 7, all.len()] {
            let mut lines = Lines::default();
            all.chunks(size).for_each(|chunk| lines.add(chunk).unwrap());
            let read: Vec<Line> = std::iter::from_fn(|| lines.next()).collect();
            assert_eq!(read.len(), 3);
            assert_eq!((read[2].counts, read[2].changes[0].state), (line.counts, State::NoRoom));
            assert_eq!(read[2].changes[0].reason, "it is \"full\"\n");
        }
        assert!(Lines::default().add(b"no object\n").is_err());
        let mut lines = Lines::default();
        assert!(lines.add(&vec![b' '; MOST_LINE]).is_ok() && lines.add(b" ").is_err());
    }
}
