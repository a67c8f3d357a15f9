//! Kills processes while they and others count in one shared file.
//!
//! The processes are instances of this test program that run the test `worker`.

#![cfg(all(target_os = "linux", not(miri)))]
#![allow(clippy::unwrap_used)]

use std::collections::HashSet;
use std::io::{Read, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use quipu_segment::series::{Cursor, Family, Label, Schema};
use quipu_segment::{Options, Segment};

#[path = "kills/recording.rs"]
mod recording;

/// The number of processes that work at a time.
const WORKERS: usize = 4;
/// The number of kills: mostly of one process at a time, sometimes of all.
const KILLS: usize = 220;
const LIMIT: u64 = 64 << 20;
/// The additions to each of two families between two acknowledgements.
const BATCH: u64 = 20;
/// The longest time for an addition or insertion, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Pseudorandom numbers (Steele, Lea, Flood 2014).
struct SplitMix(u64);

impl SplitMix {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % end
    }
}

fn options() -> Options {
    Options::new().limit(LIMIT).shared()
}

fn keyed(segment: &Segment, name: String) -> Family {
    let labels = ["first", "second"].map(|name| Label { name: name.into(), values: None });
    let schema =
        Schema { name, cells: 1, additive: true, labels: labels.into(), ..Schema::default() };
    segment.family(&schema).unwrap()
}

fn dense(segment: &Segment, name: String) -> Family {
    let values = ["a", "b", "c"].map(str::to_owned);
    let labels = vec![Label { name: "kind".into(), values: Some(values.into()) }];
    let schema = Schema { name, cells: 1, additive: true, labels, ..Schema::default() };
    segment.family(&schema).unwrap()
}

/// Returns a key of two values. The second is a function of the first.
fn texts(number: u64) -> (String, String) {
    let first = format!("{number:x}{}", "-".repeat(number as usize % 9));
    let second = first.bytes().rev().map(char::from).collect();
    (first, second)
}

fn add(family: &Family, number: u64) {
    let (first, second) = texts(number);
    family.add(
        |key| {
            key.text(&first);
            key.text(&second);
        },
        0,
        1,
    );
}

fn remove(family: &Family, number: u64) {
    let (first, second) = texts(number);
    let removed = family.remove(|key| {
        key.text(&first);
        key.text(&second);
    });
    // A worker that holds the lock may not get a processor for a second.
    assert!(removed.is_ok() || removed.is_err_and(|error| error.is_held()));
}

/// Returns the sum of all series. No series may be torn, or occur twice.
fn total(family: &Family) -> u64 {
    let mut seen = HashSet::new();
    let mut sum = 0;
    let (mut cursor, mut buffer) = (Cursor::default(), Vec::new());
    let _ = family.walk(&mut cursor, &mut buffer, |view| {
        // All series fit, so the overflow only counts updates that waited for the lock for too
        // long.
        assert!(!view.overflow || view.cells.sum(0) <= family.overflowed());
        if !view.texts.is_empty() {
            let (first, rest) = view.texts[1..].split_at(view.texts[0].into());
            let second: Vec<u8> = rest[1..].iter().rev().copied().collect();
            assert_eq!((first, first.len()), (&second[..], usize::from(rest[0])), "torn");
        }
        // A series that is removed and created again during the walk may be seen twice.
        let is_new = seen.insert((view.group, view.texts.to_vec()));
        assert!(is_new || family.schema().name == "churn", "twice");
        sum += view.cells.sum(0);
        ControlFlow::Continue(())
    });
    sum
}

/// A process that adds until it is killed. It acknowledges on its standard error the number of
/// additions to each family so far, and the time of the longest operation in microseconds.
#[test]
fn worker() {
    let (Ok(path), Ok(seed)) = (std::env::var("KILLS_FILE"), std::env::var("KILLS_SEED")) else {
        return;
    };
    let seed = seed.parse::<u64>().unwrap();
    let mut random = SplitMix(seed);
    let segment = options().open_or_create(path).unwrap();
    let mut longest = Duration::ZERO;
    let mut timed = |work: &mut dyn FnMut()| {
        let begun = Instant::now();
        work();
        longest = longest.max(begun.elapsed());
        longest
    };
    let epoch = seed / 1000;
    let (mut some, mut few) = (None, None);
    timed(&mut || some = Some(keyed(&segment, format!("keyed {epoch}"))));
    timed(&mut || few = Some(dense(&segment, format!("dense {epoch}"))));
    let (some, few) = (some.unwrap(), few.unwrap());
    let churn = keyed(&segment, "churn".into());
    if std::env::var("KILLS_FORK").is_ok() {
        add(&some, 0);
        // This child outlives its parent, and inserts no series. Its inherited memory must not make
        // the parent look alive.
        // SAFETY: the child only makes calls that are allowed after a fork.
        unsafe {
            if libc::fork() == 0 {
                libc::sleep(30);
                libc::_exit(0);
            }
        }
    }
    let mut added = 0;
    loop {
        for _ in 0..BATCH {
            let number = random.below(3000);
            timed(&mut || add(&some, number));
            let kind = ["a", "b", "c"][random.below(3) as usize];
            timed(&mut || few.add(|key| key.text(kind), 0, 1));
            let number = random.below(300);
            match random.below(4) {
                0 => timed(&mut || remove(&churn, number)),
                1 => timed(&mut || {
                    let (first, second) = texts(number);
                    let handle = churn.bind(|key| {
                        key.text(&first);
                        key.text(&second);
                    });
                    handle.cells().add(0, 1);
                }),
                _ => timed(&mut || add(&churn, number)),
            };
            added += 1;
        }
        let longest = timed(&mut || ()).as_micros();
        let line = format!("{added} {longest}\n");
        if std::io::stderr().write_all(line.as_bytes()).is_err() {
            return;
        }
    }
}

struct Worker(Child);

impl Worker {
    fn start(path: &Path, seed: u64, forks: bool) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "worker", "--nocapture", "--test-threads=1"]);
        command.env("KILLS_FILE", path).env("KILLS_SEED", seed.to_string());
        if forks {
            command.env("KILLS_FORK", "1");
        }
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        Self(child.spawn().unwrap())
    }

    /// Kills the worker, and returns its last acknowledgement.
    fn kill(mut self) -> (u64, Duration) {
        self.0.kill().unwrap();
        let mut text = String::new();
        let mut acknowledged = self.0.stderr.take().unwrap();
        let status = self.0.wait().unwrap();
        // Read only the bytes in the pipe now, because a child of the process may keep it open.
        rustix::io::ioctl_fionbio(&acknowledged, true).unwrap();
        let mut bytes = [0; 1 << 16];
        while let Ok(count @ 1..) = acknowledged.read(&mut bytes) {
            text.push_str(std::str::from_utf8(&bytes[..count]).unwrap());
        }
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9), "{text}");
        // The last line may be incomplete.
        let Some((whole, _)) = text.rsplit_once('\n') else { return (0, Duration::ZERO) };
        let last = whole.rsplit('\n').next().unwrap();
        let (added, longest) = last.split_once(' ').unwrap();
        (added.parse().unwrap(), Duration::from_micros(longest.parse().unwrap()))
    }
}

#[test]
fn nothing_acknowledged_is_lost_and_nobody_waits_for_the_dead() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("shared.quipu");
    let mut random = SplitMix(std::process::id().into());
    let (mut acknowledged, mut longest, mut started) = (0, Duration::ZERO, 0_u64);
    let mut start = |kills: usize| {
        started += 1;
        // After every 15 kills, there are new families to create.
        Worker::start(&path, kills as u64 / 15 * 1000 + started % 1000, false)
    };
    let mut workers: Vec<Worker> = (0..WORKERS).map(|_| start(0)).collect();
    let mut kills = 0;
    // A process that is never killed sees everything, for the first half.
    let mut witness = Some(options().open_or_create(&path).unwrap());
    while kills < KILLS {
        std::thread::sleep(Duration::from_micros(random.below(40_000)));
        let all = kills % 50 == 49;
        for _ in 0..if all { WORKERS } else { 1 } {
            let victim = workers.swap_remove(random.below(workers.len() as u64) as usize);
            let (added, waited) = victim.kill();
            acknowledged += added;
            longest = longest.max(waited);
            kills += 1;
        }
        if kills > KILLS / 2 {
            witness = None;
        }
        if let Some(segment) = &witness {
            segment.families().unwrap().iter().for_each(|family| {
                total(family);
            });
        }
        while workers.len() < WORKERS {
            workers.push(start(kills));
        }
    }
    for worker in workers {
        let (added, waited) = worker.kill();
        acknowledged += added;
        longest = longest.max(waited);
    }
    // All processes have ended, so no series may occur twice any more.
    let segment = Options::new().open_or_create(&path).unwrap();
    let churn = &segment.families().unwrap()[2];
    let mut seen = HashSet::new();
    churn
        .retain(|view| seen.insert(view.texts.to_vec()))
        .map(|twice| assert_eq!(twice, 0))
        .unwrap();
    let (mut keyed, mut dense, mut churn) = (0, 0, 0);
    for family in segment.families().unwrap() {
        let sum = total(&family);
        match family.schema().name.split_once(' ') {
            Some(("keyed", _)) => keyed += sum,
            Some(("dense", _)) => dense += sum,
            _ => churn += sum,
        }
        assert_eq!(sum, total(&family));
        let names = segment.families().unwrap();
        let same = names.iter().filter(|other| other.schema().name == family.schema().name);
        assert_eq!(same.count(), 1, "a family is there twice");
    }
    // At most one batch of each process was not acknowledged.
    let most = acknowledged + started * BATCH;
    assert!((acknowledged..=most).contains(&keyed), "{acknowledged} <= {keyed} <= {most}");
    assert!((acknowledged..=most).contains(&dense), "{acknowledged} <= {dense} <= {most}");
    assert!(acknowledged > KILLS as u64 * BATCH && churn > 0, "{acknowledged} {churn}");
    assert!(longest < PATIENCE, "a process waited for {longest:?}");
}

#[test]
fn nobody_waits_for_the_dead_whose_children_live() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("shared.quipu");
    let mut random = SplitMix(std::process::id().into());
    let segment = options().open_or_create(&path).unwrap();
    let (some, churn) = (keyed(&segment, "keyed 0".into()), keyed(&segment, "churn".into()));
    let mut acknowledged = 0;
    for kill in 0..40 {
        let worker = Worker::start(&path, kill, true);
        std::thread::sleep(Duration::from_micros(20_000 + random.below(30_000)));
        acknowledged += worker.kill().0;
        let begun = Instant::now();
        add(&some, 1_000_000 + kill);
        add(&churn, 1_000_000 + kill);
        assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
    }
    assert!(total(&some) >= acknowledged);
    assert!(acknowledged > 0);
}
