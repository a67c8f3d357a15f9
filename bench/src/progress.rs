//! Shows on stderr how far long work has come: one line a case, rewritten in place on a terminal.

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
    /// Starts the clock of work in so many steps.
    pub fn new(total: usize) -> Progress {
        let terminal = std::io::stderr().is_terminal();
        Progress { total, done: 0, started: Instant::now(), terminal }
    }

    /// Says that a step begins.
    pub fn step(&mut self, what: &str) {
        self.done += 1;
        let line = line(self.done, self.total, self.started.elapsed(), what);
        if self.terminal {
            self.write(&format!("\r\x1b[K{line}"));
        } else {
            self.write(&format!("{line}\n"));
        }
    }

    /// Ends the work with a last line. Dropping does the same on a terminal, without words.
    pub fn finish(mut self, what: &str) {
        let line = line(self.done, self.total, self.started.elapsed(), what);
        self.write(&format!("{}{line}\n", if self.terminal { "\r\x1b[K" } else { "" }));
        // The line has ended: nothing is left for the drop to do.
        self.terminal = false;
    }

    fn write(&self, text: &str) {
        // Progress that cannot be shown is no reason to stop the work.
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
