//! `quipu top`: shows live metrics in the terminal, or one frame as plain output.
//!
//! A thread (`reader`) reads the target repeatedly. `model` converts each look to rows with rates,
//! `list` selects the items, `app` stores the state of the screen, and `view` draws it. With
//! `--replay`, `replay` shows the recording of a flight recorder instead.

mod app;
mod hangup;
mod json;
mod list;
mod model;
mod number;
mod page;
mod reader;
mod replay;
mod screen;
pub(crate) mod trend;
mod view;

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use clap::Args;
use quipu_segment::printable;

use crate::count::FILE_VARIABLE;
use crate::look::{Source, Target};
use crate::output::{Coverage, Error, OutputFormat, Stream, is_colored, print, warn};
use app::{App, INTERVALS};
use list::{FamilyKey, ListView};
use quipu_process::size::Size;
use quipu_process::time::Time;
use reader::Reader;
use replay::{Replay, ReplayStart};
use trend::Levels;

pub use list::Sort;
pub use screen::End;

/// Arguments of `quipu top`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  quipu top
  quipu top /run/app.quipu
  quipu top localhost:9100
  quipu top --once --sort rate --rows 20 /run/quipu
  quipu top --once --format json /run/app.quipu | jq '.items[] | {name, rate}'
  quipu top --once --family http_requests_total --by path 4711
  quipu top --replay /run/app.quipu
  quipu top --replay --once --at -30s /run/app.quipu

Press ? for the keys. Nothing is changed, and no process waits.")]
pub struct Top {
    /// Segment file, directory of segments or of files of other clients, URL of an exposition or
    /// HOST:PORT (without a path, of /metrics), or ID of a process that has mapped segments
    /// [default: the daemon at 127.0.0.1:8081]
    #[arg(env = FILE_VARIABLE, value_name = "FILE|DIR|URL|PID")]
    target: Option<OsString>,

    /// Shows what the flight recorder of a segment file recorded, also of a process that died: the
    /// last moment first
    #[arg(long)]
    replay: bool,

    /// The moment to begin with: 2026-11-18T11:31:39Z, seconds of Unix time, or -30s for 30 seconds
    /// before the end
    #[arg(long, value_name = "TIME", requires = "replay", allow_hyphen_values = true)]
    at: Option<ReplayStart>,

    /// Writes one frame as text: two looks, an interval apart; or the moment of --replay
    #[arg(long)]
    once: bool,

    /// Time from one look to the next, 10ms to 1h
    #[arg(
        long,
        value_name = "TIME",
        default_value = "1s",
        conflicts_with = "replay",
        value_parser = interval
    )]
    interval: Time,

    /// Order of the list
    #[arg(long, value_enum, value_name = "ORDER", default_value = "name")]
    sort: Sort,

    /// Shows the series that have all of these words in their name or labels; -WORD must be missing
    #[arg(long, value_name = "WORDS", default_value = "", allow_hyphen_values = true)]
    filter: String,

    /// Lists all series, instead of families
    #[arg(long, conflicts_with = "family")]
    all: bool,

    /// Lists the series of this family
    #[arg(long, value_name = "NAME")]
    family: Option<String>,

    /// Groups them by the values of this label
    #[arg(long, value_name = "LABEL", requires = "family")]
    by: Option<String>,

    /// Lists the families of quipu itself as well, whose names begin with quipu_
    #[arg(long)]
    own: bool,

    /// Format of --once
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text", requires = "once")]
    format: OutputFormat,

    /// The most lines of the list
    #[arg(long, value_name = "N", requires = "once")]
    rows: Option<Size<usize>>,
}

/// Runs `quipu top`.
///
/// # Errors
/// Fails if the target is unreadable at first, or if the terminal is unusable.
pub fn run(arguments: &Top) -> Result<End, Error> {
    if !arguments.once && !io::stdout().is_terminal() {
        return Err(Error::new("standard output is not a terminal: use --once"));
    }
    let terminal = std::env::var("TERM").unwrap_or_default();
    if !arguments.once && WITHOUT_SCREEN.contains(&&*terminal) {
        let message = "the terminal cannot show a screen (TERM=";
        return Err(Error::new(format_args!("{message}{terminal}): use --once, or set TERM")));
    }
    if arguments.replay { replay(arguments) } else { live(arguments) }
}

/// The values of `TERM` for terminals that cannot draw a screen.
const WITHOUT_SCREEN: [&str; 2] = ["dumb", "unknown"];

/// Parses the time between two looks.
fn interval(text: &str) -> Result<Time, String> {
    let time: Time = text.parse()?;
    if (INTERVALS[0]..=INTERVALS[1]).contains(&time.0) {
        Ok(time)
    } else {
        Err("give 10ms to 1h".into())
    }
}

fn live(arguments: &Top) -> Result<End, Error> {
    let interval = arguments.interval.0;
    let target = Target::parse_or_daemon(arguments.target.as_deref());
    // We start without a look, because a server may be slow or about to start. Its errors appear on
    // the screen.
    let is_awaited =
        matches!(target, Target::Url(_)) && !arguments.once && arguments.family.is_none();
    let mut app = app(arguments, target.name());
    let mut source = Source::new(target);
    let mut delay = Duration::ZERO;
    if !is_awaited {
        let first = source.look().map_err(Error::new)?;
        app.look(&Ok(first), Duration::ZERO);
        delay = interval;
    }
    let begun = Instant::now();
    start(arguments, &mut app)?;
    if arguments.once {
        std::thread::sleep(interval);
        let second = source.look().map_err(Error::new)?;
        app.look(&Ok(second), begun.elapsed());
        return once(arguments, app);
    }
    let mut reader = Reader::start(source, interval, delay, begun).map_err(failed)?;
    screen::run(&mut app, &mut reader).map_err(failed)
}

fn replay(arguments: &Top) -> Result<End, Error> {
    let Some(target) = &arguments.target else {
        return Err(Error::usage("--replay reads a file: name a segment, such as state.quipu"));
    };
    let path = Path::new(target);
    if let Target::Url(url) = Target::parse(target) {
        let message = "--replay reads a file: name a segment, such as the daemon's state file";
        return Err(Error::new(format_args!("{}: {message}", printable(&url))));
    }
    let mut app = app(arguments, printable(path).to_string());
    let mut replay = Replay::open(path, arguments.at, &mut app).map_err(Error::new)?;
    start(arguments, &mut app)?;
    if arguments.once {
        return once(arguments, app);
    }
    screen::run(&mut app, &mut replay).map_err(failed)
}

fn failed(error: io::Error) -> Error {
    Error::new(format_args!("the terminal: {error}"))
}

fn app(arguments: &Top, name: String) -> App {
    let mut app = App::new(name, arguments.interval.0);
    app.sort = arguments.sort;
    app.shows_own = arguments.own;
    app.is_colored = is_colored(Stream::Output);
    if !is_utf8() {
        app.levels = Levels::ASCII;
    }
    app
}

/// Opens the first list, and sets the filter.
fn start(arguments: &Top, app: &mut App) -> Result<(), Error> {
    app.start_at(view(arguments, app)?);
    app.set_filter(&arguments.filter);
    Ok(())
}

/// Returns the list that the arguments select.
fn view(arguments: &Top, app: &App) -> Result<ListView, Error> {
    let Some(wanted) = &arguments.family else {
        return Ok(if arguments.all { ListView::All } else { ListView::Families });
    };
    let families = app.model.families();
    let found = families.iter().find(|family| family.name == *wanted);
    // A counter can also be named without its suffix, like in the history of a segment.
    let is_counter = |name: &str| name.strip_suffix("_total") == Some(wanted);
    let found = found.or_else(|| families.iter().find(|family| is_counter(&family.name)));
    let Some(found) = found else {
        return Err(Error::new(format_args!(
            "{}: it has no family {wanted:?}; quipu top --once without --family lists them",
            app.target
        )));
    };
    let family: FamilyKey = (found.name.clone(), found.kind);
    Ok(ListView::Family { family, chosen: Vec::new(), by: arguments.by.clone() })
}

/// Writes one frame, and reports the problems of the last look on standard error.
fn once(arguments: &Top, mut app: App) -> Result<End, Error> {
    let problems = std::mem::take(&mut app.problems);
    app.fit(usize::MAX);
    let room = arguments.rows.map_or(usize::MAX, |rows| rows.0);
    if arguments.format == OutputFormat::Json {
        let written = print(|out| json::write(&app, &problems, room, out));
        problems.iter().for_each(|problem| warn(problem));
        let coverage = Coverage::part_if(!problems.is_empty());
        return written.map(|_| End::Frame(coverage));
    }
    let screen = view::screen(&app, None, room);
    let lines = screen.head.iter().chain(&screen.body).map(ToString::to_string);
    let mut lines = lines.filter(|line| !line.is_empty());
    let written = print(|out| lines.try_for_each(|line| writeln!(out, "{}", line.trim_end())));
    problems.iter().for_each(|problem| warn(problem));
    let coverage = Coverage::part_if(!problems.is_empty());
    written.map(|_| End::Frame(coverage))
}

/// Returns whether the terminal can show more than ASCII, according to the locale.
fn is_utf8() -> bool {
    let names = ["LC_ALL", "LC_CTYPE", "LANG"];
    let set =
        names.iter().filter_map(|name| std::env::var(name).ok()).find(|value| !value.is_empty());
    let value = set.unwrap_or_default().to_ascii_lowercase();
    value.contains("utf-8") || value.contains("utf8")
}

#[cfg(test)]
mod tests;
