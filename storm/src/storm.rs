//! Runs the rounds of the storm: injects faults into the workers, and compares the counts with the
//! model.

use std::collections::VecDeque;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command as Program;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use indicatif::{ProgressBar, ProgressStyle};

use crate::Run;
use crate::disk::Disk;
use crate::model::{Command, Model, parse};
use crate::process::{Language, Programs, Setting, Worker, run_for};
use crate::sequence::SplitMix;

/// The number of processes that count.
const WORKERS: usize = 8;
/// The number of rounds after which all workers pause and the segment is compared.
const ROUNDS_PER_CHECK: u64 = 10;
/// The time limit of a process. The library waits for at most 10 s when it opens a file, but
/// interpreters on a busy machine need more time.
const PATIENCE: Duration = Duration::from_secs(60);
/// The number of deaths that ends the storm.
const MAX_DEATHS: u64 = 50;
/// The number of recent events that are shown with a failure.
const MAX_EVENTS: usize = 25;
/// The maximum size of the file. This allows about 2,000 series of 0.5 KiB at a time.
const MAX_BYTES: u64 = 8 << 20;

#[derive(Debug, Default)]
struct Count {
    rounds: u64,
    acknowledged: u64,
    lost: u64,
    doubled: u64,
    hung: u64,
    died: u64,
}

/// The workers, the model, and the files of a running storm.
struct Storm {
    random: SplitMix,
    programs: Programs,
    disk: Disk,
    workers: Vec<Worker>,
    model: Model,
    /// A copy of the file, and the model of its contents.
    kept: Option<(PathBuf, Model)>,
    languages: Vec<Language>,
    count: Count,
    tags: u64,
    /// Recent events.
    events: VecDeque<String>,
}

/// Runs the storm. Returns whether no count was lost or doubled, and no process hung or died.
pub(crate) fn run(flags: &Run) -> Result<bool, Box<dyn Error>> {
    let seed = seed(flags.seed);
    println!("storm: seed {seed}, {} rounds", flags.rounds);
    let place = tempfile::tempdir()?;
    let disk = Disk::mount(place.path())?;
    let clock = clock_library();
    if clock.is_none() {
        println!("storm: libfaketime is not installed (package faketime): no clock is changed");
    }
    let programs = Programs {
        python: flags.python.clone(),
        ruby: flags.ruby.clone(),
        gem: fs::canonicalize(&flags.gem)?,
        workers: fs::canonicalize(&flags.workers)?,
        clock,
        log: place.path().join("warnings"),
    };
    let mut storm = Storm {
        random: SplitMix(seed),
        programs,
        disk,
        workers: Vec::new(),
        model: Model::default(),
        kept: None,
        languages: flags.languages.iter().copied().cycle().take(WORKERS).collect(),
        count: Count::default(),
        tags: 0,
        events: VecDeque::new(),
    };
    let bar = ProgressBar::new(flags.rounds);
    bar.set_style(ProgressStyle::with_template("{wide_bar} {pos}/{len} {eta}")?);
    storm.restart_all()?;
    for round in 1..=flags.rounds {
        storm.round()?;
        storm.count.rounds = round;
        if round % ROUNDS_PER_CHECK == 0 || round == flags.rounds {
            storm.check()?;
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let is_small = storm.has_small_file();
    storm.end();
    let is_calm = storm.count.lost + storm.count.doubled + storm.count.hung + storm.count.died == 0;
    if !is_calm {
        storm.show_warnings();
    }
    let Count { rounds, acknowledged, lost, doubled, hung, died } = storm.count;
    println!(
        "storm: {rounds} rounds, {acknowledged} acknowledged, {} lost, {} doubled, {hung} hung, \
         {died} died",
        lost as f64 / 2.0,
        doubled as f64 / 2.0
    );
    Ok(is_calm && is_small)
}

impl Storm {
    /// Gives work to all idle workers, and injects a fault into one worker or all.
    fn round(&mut self) -> Result<(), Box<dyn Error>> {
        self.bury()?;
        for index in 0..self.workers.len() {
            if self.workers[index].is_idle() && !self.workers[index].is_stopped {
                let command = self.command();
                let Self { workers, model, .. } = self;
                self.count.acknowledged += workers[index].give(model, command);
            }
        }
        self.nap(3);
        let index = self.random.below(self.workers.len() as u64) as usize;
        let choice = self.random.below(100);
        let language = self.workers[index].language;
        self.note(format!("{}, worker {index} in {language:?}", name_of(choice)));
        match choice {
            0..=27 => self.restart(index, &Setting::default())?,
            28..=49 => self.stop(index, 30),
            50 => self.stop(index, 1500),
            51..=66 => self.fork(index),
            67..=70 => self.restart_all()?,
            71..=76 => {
                let is_full = self.random.below(2) == 0;
                self.note(format!("the disk is full: {is_full}"));
                self.disk.set_full(is_full)?;
            }
            77..=80 => {
                let length = fs::metadata(self.file()).map_or(0, |data| data.len());
                let most_bytes = Some(length + self.random.below(2) * 8192);
                self.restart(index, &Setting { most_bytes, ..Setting::default() })?;
            }
            81..=86 => {
                let clock_ahead = [-864_000, -3600, 60, 86_400, 315_360_000];
                let clock_ahead = clock_ahead[self.random.below(5) as usize];
                self.restart(index, &Setting { clock_ahead, ..Setting::default() })?;
            }
            87..=89 => self.restart_read_only(index)?,
            90..=93 => self.copy()?,
            94..=96 => self.kill_a_reader()?,
            97 => self.restore()?,
            _ => self.nap(10),
        }
        Ok(())
    }

    fn note(&mut self, event: String) {
        if self.events.len() == MAX_EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(format!("round {}: {event}", self.count.rounds + 1));
    }

    /// Reports a failure with the events before it.
    fn complain(&mut self, what: &str) {
        eprintln!("storm: round {}: {what}; before it:", self.count.rounds + 1);
        self.events.drain(..).for_each(|event| eprintln!("  {event}"));
    }

    fn show_warnings(&self) {
        let log = fs::read_to_string(&self.programs.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        println!("storm: the last warnings of the workers");
        lines.iter().skip(lines.len().saturating_sub(20)).for_each(|line| println!("  {line}"));
    }

    fn command(&mut self) -> Command {
        self.tags += 1;
        let count = 1 + self.random.below(200);
        Command { tag: self.tags, seed: self.random.below(u64::MAX), count }
    }

    fn nap(&mut self, most_milliseconds: u64) {
        let time = Duration::from_micros(self.random.below(most_milliseconds * 1000));
        std::thread::sleep(time);
    }

    fn file(&self) -> PathBuf {
        self.disk.directory.join("app").join("metrics.quipu")
    }

    fn directory(&self) -> PathBuf {
        self.disk.directory.join("app")
    }

    /// Counts the workers that died by themselves, and replaces them.
    fn bury(&mut self) -> Result<(), Box<dyn Error>> {
        for index in 0..self.workers.len() {
            if let Some(death) = self.workers[index].death()? {
                self.complain(&death.in_words());
                self.count.died += 1;
                if self.count.died >= MAX_DEATHS {
                    self.show_warnings();
                    return Err("too many workers died".into());
                }
                self.restart(index, &Setting::default())?;
            }
        }
        Ok(())
    }

    fn restart(&mut self, index: usize, setting: &Setting) -> Result<(), Box<dyn Error>> {
        let language = self.workers[index].language;
        let worker = Worker::start(language, &self.programs, &self.directory(), setting)?;
        let old = std::mem::replace(&mut self.workers[index], worker);
        self.count.acknowledged += old.kill(&mut self.model)?;
        Ok(())
    }

    /// Restarts a worker on the read-only file system, where it must count in memory. The next
    /// worker counts in the file again.
    fn restart_read_only(&mut self, index: usize) -> Result<(), Box<dyn Error>> {
        let directory = self.disk.read_only.join("app");
        let language = self.workers[index].language;
        let worker = Worker::start(language, &self.programs, &directory, &Setting::default())?;
        let old = std::mem::replace(&mut self.workers[index], worker);
        self.count.acknowledged += old.kill(&mut self.model)?;
        Ok(())
    }

    /// Kills all workers, and starts others that open the file at the same time.
    fn restart_all(&mut self) -> Result<(), Box<dyn Error>> {
        self.kill_all()?;
        let directory = self.directory();
        for &language in &self.languages {
            let setting = Setting::default();
            self.workers.push(Worker::start(language, &self.programs, &directory, &setting)?);
        }
        Ok(())
    }

    fn kill_all(&mut self) -> Result<(), Box<dyn Error>> {
        for worker in self.workers.drain(..) {
            self.count.acknowledged += worker.kill(&mut self.model)?;
        }
        Ok(())
    }

    fn stop(&mut self, index: usize, most_milliseconds: u64) {
        self.workers[index].stop(true);
        self.nap(most_milliseconds);
        self.workers[index].stop(false);
    }

    fn fork(&mut self, index: usize) {
        let command = self.command();
        let Self { workers, model, .. } = self;
        let worker = &mut workers[index];
        if worker.is_idle() && !worker.has_child() {
            self.count.acknowledged += worker.fork(model, command);
        }
    }

    /// Copies the file while the workers count, and reads the copy. The copy can contain anything,
    /// as long as the reader ends.
    fn copy(&mut self) -> Result<(), Box<dyn Error>> {
        let directory = self.disk.directory.join("copy");
        fs::create_dir_all(&directory)?;
        if fs::copy(self.file(), directory.join("metrics.quipu")).is_ok() {
            self.read(&directory, false)?;
        }
        fs::remove_dir_all(directory)?;
        Ok(())
    }

    /// Kills all workers, and replaces the file with the copy that was made at rest.
    fn restore(&mut self) -> Result<(), Box<dyn Error>> {
        let Some((copy, model)) = self.kept.clone() else { return Ok(()) };
        self.kill_all()?;
        let restored = self.disk.directory.join("restored");
        if fs::copy(copy, &restored).is_ok() {
            fs::rename(restored, self.file())?;
            self.model = model;
        } else {
            // The disk is full.
            let _ = fs::remove_file(restored);
        }
        self.restart_all()
    }

    fn kill_a_reader(&mut self) -> Result<(), Box<dyn Error>> {
        let mut program = self.reader(&self.directory(), false)?;
        let mut child = program.stdout(std::process::Stdio::null()).spawn()?;
        self.nap(20);
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    fn reader(&self, directory: &Path, forget: bool) -> Result<Program, Box<dyn Error>> {
        let mut program = Program::new(std::env::current_exe()?);
        program.arg("read").args(forget.then_some("--forget")).arg(directory);
        program.stderr(self.programs.open_log()?);
        Ok(program)
    }

    /// Returns a scrape by another process, or `None` if that process could not open the segment.
    fn read(&mut self, directory: &Path, forget: bool) -> Result<Option<String>, Box<dyn Error>> {
        use std::os::unix::process::ExitStatusExt;
        let Some((text, status)) = run_for(self.reader(directory, forget)?, PATIENCE)? else {
            self.complain("a reader hung");
            self.count.hung += 1;
            return Ok(None);
        };
        if let Some(signal) = status.signal() {
            self.complain(&format!("a reader died of signal {signal}"));
            self.count.died += 1;
        }
        Ok(status.success().then_some(text))
    }

    /// Waits until no worker counts, and compares.
    fn check(&mut self) -> Result<(), Box<dyn Error>> {
        let end = Instant::now() + PATIENCE;
        let is_busy = |worker: &Worker| !worker.is_idle() || worker.has_child();
        while self.workers.iter().any(is_busy) && Instant::now() < end {
            self.bury()?;
            std::thread::sleep(Duration::from_micros(200));
        }
        for index in 0..self.workers.len() {
            if is_busy(&self.workers[index]) {
                let language = self.workers[index].language;
                self.complain(&format!("a worker in {language:?} hung"));
                self.count.hung += 1;
                self.restart(index, &Setting::default())?;
            }
        }
        let Self { workers, model, .. } = self;
        let settled: u64 = workers.iter_mut().map(|worker| worker.settle(model)).sum();
        self.count.acknowledged += settled;
        let directory = self.directory();
        let Some(text) = self.read(&directory, true)? else {
            self.complain("the segment cannot be read");
            self.count.lost += 1;
            return Ok(());
        };
        let (samples, overflow) = parse(&text);
        let difference = self.model.compare(&samples, overflow);
        self.count.lost += difference.lost;
        self.count.doubled += difference.doubled;
        if difference.lost + difference.doubled > 0 {
            let samples = difference.samples.len();
            let some = difference.samples.iter().take(8).cloned().collect::<Vec<_>>().join(
                "
  ",
            );
            self.complain(&format!(
                "{samples} samples differ:
  {some}"
            ));
        }
        self.model.forget_created();
        if self.random.below(4) == 0 {
            let copy = self.disk.directory.join("kept");
            self.kept = fs::copy(self.file(), &copy).ok().map(|_| (copy, self.model.clone()));
        }
        // Restarts workers that count in memory, because they would do this forever.
        for index in 0..self.workers.len() {
            if self.workers[index].counts_in_memory() {
                self.restart(index, &Setting::default())?;
            }
        }
        Ok(())
    }

    fn has_small_file(&self) -> bool {
        let bytes = fs::metadata(self.file()).map_or(0, |data| data.len());
        let series = self.model.len();
        println!("storm: the file has {bytes} bytes, at most {MAX_BYTES} for {series} samples");
        bytes <= MAX_BYTES
    }

    fn end(&mut self) {
        for worker in self.workers.drain(..) {
            let _ = worker.kill(&mut self.model);
        }
    }
}

/// Returns the name of a fault, for example `a kill`, from a choice of [`Storm::round`].
fn name_of(choice: u64) -> &'static str {
    match choice {
        0..=27 => "a kill",
        28..=49 => "a short stop",
        50 => "a long stop",
        51..=66 => "a fork",
        67..=70 => "all start again",
        71..=76 => "a disk that fills or empties",
        77..=80 => "a limit on files",
        81..=86 => "another clock",
        87..=89 => "a disk that is read-only",
        90..=93 => "a copy of the file",
        94..=96 => "a reader that is killed",
        97 => "an old copy in the place of the file",
        _ => "nothing",
    }
}

/// Returns the seed that the user asked for, or draws one if it is 0.
pub(crate) fn seed(asked: u64) -> u64 {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |now| now.as_micros());
    if asked == 0 { now() as u64 } else { asked }
}

/// Finds the library that can change a process's clock.
fn clock_library() -> Option<PathBuf> {
    let directories = fs::read_dir("/usr/lib").ok()?.flatten().map(|entry| entry.path());
    let mut libraries = directories.map(|directory| directory.join("faketime/libfaketime.so.1"));
    libraries.find(|library| library.exists())
}
