//! `quipu top` of a segment with many series that all grow: the time of a refresh.
//!
//! The program runs in a terminal with the shortest interval, 10 ms, because it must refresh
//! without a pause. Between two frames it waits 50 ms for a key.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::inspect::{fill, grow};
use super::terminal::Terminal;
use super::{Bench, MEMORY, OTHER_CORE, PATIENCE, amount, folder};
use crate::Result;
use crate::measure::pin;
use crate::turns::{Figure, Outcome, Turn, take};

const LISTS: [(&str, &[&str]); 2] =
    [("families", &[]), ("all series", &["--all", "--sort", "rate"])];

/// The pause between two changes of all series.
const PAUSE: Duration = Duration::from_millis(50);

/// Measures `quipu top`.
pub(super) fn top(bench: &Bench) -> Result<Outcome> {
    let (series, time) = bench.plan.top;
    let folder = folder(Path::new(MEMORY))?;
    let path = folder.path().join("watched.quipu");
    let (family, labels) = fill(&path, series)?;
    let turns = LISTS.map(|(list, options)| {
        let path = &path;
        Turn {
            case: format!("top/{} series", amount(series)),
            subject: format!("quipu ({list})"),
            run: Box::new(move || frames(bench, path, options, time)),
        }
    });
    let has_ended = AtomicBool::new(false);
    Ok(std::thread::scope(|scope| {
        scope.spawn(|| {
            pin(OTHER_CORE);
            while !has_ended.load(Ordering::Relaxed) {
                grow((&family, labels));
                std::thread::sleep(PAUSE);
            }
        });
        let outcome = take(&turns, bench.plan.runs);
        has_ended.store(true, Ordering::Relaxed);
        outcome
    }))
}

fn frames(bench: &Bench, path: &Path, options: &[&str], time: Duration) -> Result<Vec<Figure>> {
    let mut command = Command::new(&bench.quipu);
    command.args(["top", "--interval", "10ms"]).args(options).arg(path);
    let frames = Terminal::start(command)?.frames(time, PATIENCE)?;
    let each = |time: Duration| time.as_secs_f64() * 1e3 / f64::from(frames.count);
    Ok(vec![
        Figure::new("cpu time of a refresh", "ms", each(frames.cpu)),
        Figure::new("from frame to frame", "ms", each(frames.elapsed)),
    ])
}
