//! Shows the progress of long work on stderr: one line per case, rewritten in place on a terminal.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// The progress of work in a known number of steps.
pub struct Progress {
    total: usize,
    done: usize,
    started: Instant,
    terminal: bool,
}

impl Progress {
    /// Starts the clock for work in `total` steps.
    pub fn new(total: usize) -> Progress {
        let terminal = std::io::stderr().is_terminal();
        Progress { total, done: 0, started: Instant::now(), terminal }
    }

    /// Shows the start of a step.
    pub fn step(&mut self, what: &str) {
        self.done += 1;
        let line = line(self.done, self.total, self.started.elapsed(), what);
        if self.terminal {
            self.write(&format!("\r\x1b[K{line}"));
        } else {
            self.write(&format!("{line}\n"));
        }
    }

    /// Ends the work with a last line. If you omit this call, a drop only ends the line on the
    /// terminal.
    pub fn finish(mut self, what: &str) {
        let line = line(self.done, self.total, self.started.elapsed(), what);
        self.write(&format!("{}{line}\n", if self.terminal { "\r\x1b[K" } else { "" }));
        // The drop must not end the line again.
        self.terminal = false;
    }

    fn write(&self, text: &str) {
        // A failure to show progress must not stop the work.
        let _ = std::io::stderr().write_all(text.as_bytes());
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.terminal {
            self.write("\n");
        }
    }
}

fn line(done: usize, total: usize, elapsed: Duration, what: &str) -> String {
    let width = total.to_string().len();
    let seconds = elapsed.as_secs();
    format!("[{done:width$}/{total} {:2}:{:02}] {what}", seconds / 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_how_far_and_how_long() {
        let text = line(3, 12, Duration::from_secs(75), "ab -k");
        assert_eq!(text, "[ 3/12  1:15] ab -k");
    }
}
