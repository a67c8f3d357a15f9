//! Runs the cells of a table, each in a child process, because all of them must start with the same
//! heap and callgrind must write a file for each. Prints `PID OPERATIONS NAME` for each cell.
//!
//! `counts` runs this program under callgrind.

use std::io::{self, Write};
use std::process::ExitCode;

use quipu_bench_callgrind::{Cell, arena, counting, rseq};

fn main() -> ExitCode {
    let cells = match std::env::args().nth(1).as_deref() {
        Some("arena") => arena::cells(),
        Some("counting") => counting::cells(),
        _ => {
            eprintln!("usage: cells arena|counting");
            return ExitCode::FAILURE;
        }
    };
    for cell in &cells {
        if let Err(error) = run(cell) {
            eprintln!("cells: {}: {error}", cell.name);
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn run(cell: &Cell) -> io::Result<()> {
    // SAFETY: This process has a single thread.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            rseq::register();
            (cell.run)();
            // SAFETY: Ends the child without the parent's handlers.
            unsafe { libc::_exit(0) }
        }
        child => {
            let mut status = 0;
            // SAFETY: The child exists, and the status outlives the call.
            if unsafe { libc::waitpid(child, &raw mut status, 0) } == -1 {
                return Err(io::Error::last_os_error());
            }
            if status != 0 {
                return Err(io::Error::other(format!("failed with wait status {status:#x}")));
            }
            writeln!(io::stdout(), "{child} {} {}", cell.operations, cell.name)
        }
    }
}
