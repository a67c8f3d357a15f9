//! Power loss. A process counts in a segment on a file system that records writes and syncs. For
//! many moments of this record, we open the segment in a state that the disk can be in at that
//! moment.
//!
//! The segment must open, contain all counts before the last completed sync and no count that was
//! never made, and accept new counts.

mod image;
mod recorder;

use std::error::Error;
use std::fs;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command as Program;
use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use quipu::Registry;
use quipu_segment::{Options, Readings};

use self::recorder::{Event, MARK, Recorder};
use crate::model::{Command, Model, parse};
use crate::process::run_for;
use crate::sequence::SplitMix;
use crate::worker;

/// Options of the power loss test.
#[derive(Args, Clone)]
pub(crate) struct Power {
    /// The number of moments at which power is lost.
    #[arg(long, default_value_t = 200)]
    pub(crate) rounds: u64,
    /// The seed of all random choices; 0 draws one.
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
}

/// The number of moments examined for each run of the counting process.
const ROUNDS_PER_RUN: u64 = 40;
const OPERATIONS: u64 = 600;
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs the test. Returns whether no synced count was lost, and none was doubled.
pub(crate) fn run(flags: &Power) -> Result<bool, Box<dyn Error>> {
    let seed = crate::storm::seed(flags.seed);
    println!("power: seed {seed}, {} rounds", flags.rounds);
    let mut random = SplitMix(seed);
    let bar = ProgressBar::new(flags.rounds);
    bar.set_style(ProgressStyle::with_template("{wide_bar} {pos}/{len} {eta}")?);
    let (mut lost, mut doubled, mut refused, mut empty) = (0, 0, 0, 0);
    let mut round = 0;
    while round < flags.rounds {
        let command = Command { tag: round, seed: random.below(u64::MAX), count: OPERATIONS };
        let log = record(command)?;
        for _ in 0..ROUNDS_PER_RUN.min(flags.rounds - round) {
            round += 1;
            let end = 1 + random.below(log.len() as u64) as usize;
            let place = tempfile::tempdir()?;
            for (name, bytes) in image::after_power_loss(&log, end, &mut random) {
                fs::write(place.path().join(name), bytes)?;
            }
            let mark = log[..end].iter().rev().find_map(|event| match event {
                Event::Mark(number) => Some(*number),
                _ => None,
            });
            let mut model = Model::default();
            model.apply_range(command, mark.unwrap_or(0), OPERATIONS);
            match read(place.path())? {
                Found::Text(text) => {
                    let (samples, overflow) = parse(&text);
                    let difference = model.compare(&samples, overflow);
                    lost += difference.lost;
                    doubled += difference.doubled;
                    for sample in difference.samples.iter().take(8) {
                        eprintln!("power: round {round}, event {end}, mark {mark:?}: {sample}");
                    }
                }
                // Power was lost before the creation of the file was durable.
                Found::Nothing if mark.is_none() => empty += 1,
                Found::Nothing => {
                    eprintln!("power: round {round}, event {end}: there is no file");
                    lost += 1;
                }
                Found::Refused(why) => {
                    eprintln!("power: round {round}, event {end}, mark {mark:?}: {why}");
                    refused += 1;
                }
            }
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    println!(
        "power: {} rounds, {empty} without a file, {} lost, {} doubled, {refused} refused",
        flags.rounds,
        lost as f64 / 2.0,
        doubled as f64 / 2.0
    );
    Ok(lost + doubled + refused == 0)
}

/// Runs the counting process on the recording file system and returns the record.
fn record(command: Command) -> Result<Vec<Event>, Box<dyn Error>> {
    let place = tempfile::tempdir()?;
    let recorder = Recorder::default();
    let session = fuser::spawn_mount(recorder.clone(), place.path(), &fuser::Config::default())?;
    let mut program = Program::new(std::env::current_exe()?);
    program.arg("power-worker").arg(place.path());
    program.args([command.tag, command.seed, command.count].map(|number| number.to_string()));
    let ended = run_for(program, PATIENCE)?;
    let log = recorder.log();
    session.umount_and_join()?;
    match ended {
        Some((_, status)) if status.success() => Ok(log),
        Some((_, status)) => Err(format!("the counting process ended with {status}").into()),
        None => Err("the counting process hung".into()),
    }
}

/// Runs the counting process: operations, a sync now and then, and in between some pages that the
/// kernel itself writes back.
pub(crate) fn work(directory: &Path, command: Command) -> Result<(), Box<dyn Error>> {
    let store = worker::open(directory)?;
    let mut metrics = worker::Metrics::on(store.scrape_registry())?;
    let path = store.path().ok_or("the file system gave no file")?.to_owned();
    let mut random = SplitMix(command.seed ^ 1);
    let file = fs::OpenOptions::new().read(true).write(true).open(path)?;
    let mark = |number: u64| {
        // The file system refuses this call but records it.
        let _ = fs::create_dir(directory.join(format!("{MARK}{number}")));
    };
    mark(0);
    let mut actions = metrics.begin(command);
    for done in 1..=command.count {
        actions.next();
        match random.below(40) {
            0 => {
                store.scrape_registry().segment().sync()?;
                mark(done);
            }
            1..=8 => write_some_pages(&file, &mut random)?,
            _ => {}
        }
    }
    Ok(())
}

/// Makes the kernel write back some of the file's dirty pages, as if it needed memory.
fn write_some_pages(file: &fs::File, random: &mut SplitMix) -> Result<(), Box<dyn Error>> {
    use std::os::fd::AsRawFd;
    let pages = file.metadata()?.len().div_ceil(4096);
    let (first, count) = (random.below(pages), 1 + random.below(4));
    let flags = libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    // SAFETY: The descriptor is open. The call reads and writes no memory of this process.
    unsafe {
        libc::sync_file_range(
            file.as_raw_fd(),
            (first * 4096).cast_signed(),
            (count * 4096).cast_signed(),
            flags,
        )
    };
    Ok(())
}

/// The observation of another process after a power loss.
enum Found {
    Text(String),
    Nothing,
    Refused(String),
}

fn read(directory: &Path) -> Result<Found, Box<dyn Error>> {
    let file = directory.join(FILE);
    if !file.exists() {
        return Ok(Found::Nothing);
    }
    let mut program = Program::new(std::env::current_exe()?);
    program.arg("power-reader").arg(&file);
    Ok(match run_for(program, PATIENCE)? {
        Some((text, status)) if status.success() => Found::Text(text),
        Some((_, status)) => match status.signal() {
            Some(signal) => Found::Refused(format!("the reader died of signal {signal}")),
            None => Found::Refused("the segment was refused".into()),
        },
        None => Found::Refused("the reader hung".into()),
    })
}

const FILE: &str = "metrics.quipu";

/// Opens the segment as in another boot of the machine, prints it, and counts more.
pub(crate) fn show(file: &PathBuf) -> Result<(), Box<dyn Error>> {
    let mut readings = Readings::now();
    readings.boot = [1; 16];
    let segment = Options::new().shared().readings(readings).open(file)?;
    let registry = Registry::from_segment(segment);
    let text = registry.text();
    std::io::stdout().write_all(text.as_bytes())?;
    // Each series must still count, and a new series must fit.
    let mut metrics = worker::Metrics::on(&registry)?;
    let command = Command { tag: u64::MAX, seed: 3, count: 300 };
    metrics.begin(command).for_each(drop);
    let (before, _) = parse(&text);
    let (after, _) = parse(&registry.text());
    let sum = |samples: &std::collections::BTreeMap<_, u64>| samples.values().sum::<u64>();
    if sum(&after) <= sum(&before) {
        return Err("what was counted after the loss of power is not there".into());
    }
    Ok(())
}
