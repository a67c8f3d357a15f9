//! Death at every store: a process is run one instruction at a time through an operation on a
//! shared file, and killed after its first change of the file, after its second, and so on; another
//! process, which has the file open, goes on each time, and then a third opens it anew.

#![cfg(all(target_os = "linux", target_arch = "x86_64", not(miri)))]
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use quipu_segment::clock::Manual;
use quipu_segment::series::{Bound, Cursor, Family, Label, Schema};
use quipu_segment::{Options, Segment};

const START: u64 = 1_700_000_000_000_000_000;
/// The series that are there before, each with the sum 1.
const SERIES: u64 = 11;
const SECOND: Duration = Duration::from_secs(1);

/// A shared file with a family of some series.
struct World {
    segment: Segment,
    family: Family,
    clock: Manual,
    handles: Vec<Bound>,
}

fn schema() -> Schema {
    let user = Label { name: "user".into(), values: None };
    Schema {
        name: "requests".into(),
        cells: 1,
        additive: true,
        labels: vec![user],
        limit: Some(SERIES + 1),
        idle: Some(SECOND),
        ..Schema::default()
    }
}

impl World {
    fn new(path: &Path) -> Self {
        let segment = Options::new().limit(1 << 20).shared().open_or_create(path).unwrap();
        let clock = Manual::new(START);
        let family = segment.family_at(&schema(), clock.clone()).unwrap();
        let world = Self { segment, family, clock, handles: Vec::new() };
        (0..SERIES).for_each(|i| world.add(i));
        world.family.sweep().unwrap();
        world
    }

    fn add(&self, number: u64) {
        self.family.add(|key| key.text(&format!("{number:03}")), 0, 1);
    }

    fn bind(&self, number: u64) -> Bound {
        self.family.bind(|key| key.text(&format!("{number:03}")))
    }

    fn remove(&self, number: u64) {
        self.family.remove(|key| key.text(&format!("{number:03}"))).unwrap();
    }
}

/// All series, hidden ones included, none of which may be there twice.
fn all(family: &Family) -> BTreeMap<String, u64> {
    let mut all = BTreeMap::new();
    let removed = family.retain(|view| {
        let text = String::from_utf8(view.texts[1..].to_vec()).unwrap();
        assert!(all.insert(text, view.place.sum(0)).is_none(), "a series is there twice");
        true
    });
    assert_eq!(removed.unwrap(), 0);
    all
}

/// As above, where nobody has died since the lock was taken.
fn all_counted(family: &Family) -> BTreeMap<String, u64> {
    let all = all(family);
    assert_eq!(family.len(), all.len() as u64);
    all
}

fn overflow(family: &Family) -> u64 {
    let mut sum = 0;
    let _ = family.walk(&mut Cursor::default(), &mut Vec::new(), |view| {
        sum += if view.overflow { view.place.sum(0) } else { 0 };
        ControlFlow::Continue(())
    });
    sum
}

/// Kills a child after each of its changes of the file while it does `work`. `may_be` says what the
/// series may be then; what they are at the end is one of these, too.
fn die_everywhere(
    name: &str,
    prepare: impl Fn(&mut World),
    work: impl Fn(&mut World),
    may_be: impl Fn(&BTreeMap<String, u64>) -> bool,
) {
    if std::env::var("DEATHS_ALONE").is_err() {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture", "--test-threads=1"])
            .env("DEATHS_ALONE", "1")
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    for changes in 1.. {
        let path = directory.path().join(format!("{changes}"));
        let mut world = World::new(&path);
        prepare(&mut world);
        let bytes = std::fs::File::open(&path).unwrap();
        assert!(world.segment.used() < LOOKED_AT as u64 - 4096, "{}", world.segment.used());
        let Some(ended) = step_child(&bytes, changes, &mut world, &work) else {
            // No process may be followed here.
            return;
        };
        let begun = Instant::now();
        let context = format!("{name}, after {changes} changes");
        let found = all(&world.family);
        assert!(may_be(&found), "{context}: {found:?}");
        // Whoever lives goes on, with every series.
        for (text, sum) in &found {
            world.family.add(|key| key.text(text), 0, 1);
            assert_eq!(all(&world.family)[text], sum + 1, "{context}");
        }
        world.remove(999);
        assert_eq!(all_counted(&world.family).len(), found.len(), "{context}");
        // Room for others, and all of it: an old one leaves for each of them.
        world.clock.advance(SECOND * 5);
        world.family.clear().unwrap();
        let overflowed = overflow(&world.family);
        (0..=SERIES).for_each(|i| world.add(100 + i));
        let after = all_counted(&world.family);
        assert!(after.len() as u64 == SERIES + 1 && after.values().all(|&n| n == 1), "{after:?}");
        assert_eq!(overflow(&world.family), overflowed, "{context}");
        let made = world.segment.families().unwrap().len();
        let more = Schema { name: "more".into(), labels: vec![], ..schema() };
        world.segment.family(&more).unwrap().add(|_| (), 0, 1);
        assert!(world.segment.families().unwrap().len() - made <= 1);
        assert!(begun.elapsed() < 2 * SECOND, "{context}: somebody waited");
        // The next one finds the same.
        drop(world);
        let segment = Options::new().open_or_create(&path).unwrap();
        let families = segment.families().unwrap();
        assert_eq!(all_counted(&families[0]), after, "{context}");
        if ended {
            assert!(changes > 3, "{name} changes the file only {changes} times");
            return;
        }
        std::fs::remove_file(&path).unwrap();
    }
}

/// The bytes of the file that are compared after each instruction: a little more than are in use.
const LOOKED_AT: usize = 12 << 10;

/// Runs `work` in a child, instruction by instruction, until it has changed the file so often, and
/// kills it then. Whether it ended before; `None` where no process can be followed.
fn step_child(
    file: &std::fs::File,
    changes: u32,
    world: &mut World,
    work: impl FnOnce(&mut World),
) -> Option<bool> {
    use std::os::unix::fs::FileExt;

    // SAFETY: the child uses the segment and memory, which a fork keeps in order, and ends without
    // the clean-up of its parent. The calls of the parent name the child only.
    unsafe {
        let child = libc::fork();
        assert!(child >= 0);
        if child == 0 {
            if libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) != 0 {
                libc::_exit(9);
            }
            // What a process does once only is not of interest.
            world.remove(999);
            libc::raise(libc::SIGSTOP);
            work(world);
            libc::_exit(0);
        }
        let mut status = 0;
        libc::waitpid(child, &raw mut status, 0);
        if libc::WIFEXITED(status) {
            return None;
        }
        let (mut before, mut now) = (vec![0; LOOKED_AT], vec![0; LOOKED_AT]);
        file.read_exact_at(&mut before, 0).unwrap();
        let mut seen = 0;
        loop {
            assert_eq!(libc::ptrace(libc::PTRACE_SINGLESTEP, child, 0, 0), 0);
            libc::waitpid(child, &raw mut status, 0);
            if libc::WIFEXITED(status) {
                assert_eq!(libc::WEXITSTATUS(status), 0, "the operation failed");
                return Some(true);
            }
            assert!(libc::WIFSTOPPED(status) && libc::WSTOPSIG(status) == libc::SIGTRAP);
            file.read_exact_at(&mut now, 0).unwrap();
            if now != before {
                seen += 1;
                std::mem::swap(&mut now, &mut before);
            }
            if seen == changes {
                libc::kill(child, libc::SIGKILL);
                libc::waitpid(child, &raw mut status, 0);
                return Some(false);
            }
        }
    }
}

/// Whether it is what was there before but for one series, which has one of these sums or is not
/// there (`None`).
fn but_for(found: &BTreeMap<String, u64>, number: u64, sums: &[Option<u64>]) -> bool {
    let mut found = found.clone();
    let one = found.remove(&format!("{number:03}"));
    let others = (0..SERIES).filter(|&i| i != number).map(|i| (format!("{i:03}"), 1));
    sums.contains(&one) && found == others.collect()
}

/// The steps that take time are the child's own: the tests run one after the other.
static ONE: Mutex<()> = Mutex::new(());

fn removed(found: &BTreeMap<String, u64>, numbers: &[u64]) -> bool {
    let is_one = |text: &String| numbers.iter().any(|number| *text == format!("{number:03}"));
    let others = (0..SERIES).filter(|i| !numbers.contains(i)).map(|i| (format!("{i:03}"), 1));
    let (gone, rest): (BTreeMap<_, _>, _) =
        found.clone().into_iter().partition(|(text, _)| is_one(text));
    gone.values().all(|&sum| sum == 1) && rest == others.collect()
}

#[test]
fn inserting_into_a_block() {
    let _one = ONE.lock();
    die_everywhere(
        "inserting_into_a_block",
        |_| (),
        |world| world.add(50),
        |found| but_for(found, 50, &[None, Some(0), Some(1)]),
    );
}

#[test]
fn inserting_into_a_record_that_is_free() {
    let _one = ONE.lock();
    die_everywhere(
        "inserting_into_a_record_that_is_free",
        |world| {
            world.add(20);
            world.remove(20);
            world.clock.advance(SECOND * 2);
        },
        |world| world.add(50),
        |found| but_for(found, 50, &[None, Some(0), Some(1)]),
    );
}

#[test]
fn inserting_into_a_new_block_and_a_new_table() {
    let _one = ONE.lock();
    die_everywhere(
        "inserting_into_a_new_block_and_a_new_table",
        |world| {
            // The table is full, of entries that are dead; and so is the block.
            world.add(20);
            world.remove(20);
            let long = "x".repeat(8 * 60);
            world.family.add(|key| key.text(&long), 0, 1);
            assert!(world.family.remove(|key| key.text(&long)).unwrap());
        },
        |world| world.add(50),
        |found| but_for(found, 50, &[None, Some(0), Some(1)]),
    );
}

#[test]
fn removing() {
    let _one = ONE.lock();
    die_everywhere(
        "removing",
        |_| (),
        |world| world.remove(3),
        |found| but_for(found, 3, &[None, Some(1)]),
    );
}

#[test]
fn removing_what_has_a_handle_and_dropping_it() {
    let _one = ONE.lock();
    die_everywhere(
        "removing_what_has_a_handle_and_dropping_it",
        |_| (),
        |world| {
            let handle = world.bind(3);
            world.remove(3);
            handle.place().add(0, 7);
        },
        |found| but_for(found, 3, &[None, Some(1)]),
    );
}

#[test]
fn removing_some() {
    let _one = ONE.lock();
    die_everywhere(
        "removing_some",
        |_| (),
        |world| {
            let kept = |text: &[u8]| text != b"002" && text != b"007";
            world.family.retain(|view| kept(&view.texts[1..])).unwrap();
        },
        |found| removed(found, &[2, 7]),
    );
}

#[test]
fn hiding_and_showing() {
    let _one = ONE.lock();
    die_everywhere(
        "hiding_and_showing",
        |world| {
            world.clock.advance(SECOND * 3);
            world.family.sweep().unwrap();
            world.clock.advance(SECOND * 3);
            let handle = world.bind(1);
            world.clock.advance(SECOND * 3);
            world.family.sweep().unwrap();
            handle.place().add(0, 1);
        },
        |world| {
            world.add(4);
            world.family.sweep().unwrap();
        },
        |found| {
            let mut found = found.clone();
            assert_eq!(found.insert("001".into(), 1), Some(2));
            but_for(&found, 4, &[Some(1), Some(2)])
        },
    );
}

#[test]
fn making_room_for_another() {
    let _one = ONE.lock();
    die_everywhere(
        "making_room_for_another",
        |world| {
            world.add(20);
            for _ in 0..2 {
                world.family.sweep().unwrap();
                world.clock.advance(SECOND * 3);
            }
            (1..SERIES).for_each(|i| world.add(i));
            world.family.sweep().unwrap();
            world.clock.advance(SECOND * 3);
        },
        |world| world.add(50),
        |found| {
            // At most one had to go for the new one.
            let mut found = found.clone();
            let new = found.remove("050");
            found.remove("020");
            [None, Some(0), Some(1)].contains(&new) && found.len() as u64 >= SERIES - 1
        },
    );
}

#[test]
fn making_families() {
    let _one = ONE.lock();
    die_everywhere(
        "making_families",
        |_| (),
        |world| {
            let family = Schema { name: "more".into(), labels: vec![], ..schema() };
            world.segment.family(&family).unwrap().add(|_| (), 0, 1);
            let family = Schema { name: "another".into(), ..schema() };
            world.segment.family(&family).unwrap().add(|key| key.text("ada"), 0, 1);
        },
        |found| but_for(found, 0, &[Some(1)]),
    );
}
