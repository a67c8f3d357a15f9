//! Simulates a death at every store. These tests record the state of a shared file after each store
//! of an operation, and let another process that uses the file continue from there, as if the
//! storing process had died. Then a third process opens the file.
//!
//! The operation runs in a child where the file is read-only, so each store faults. The handler
//! allows the store, lets the processor execute this single instruction, and records the state of
//! the file.

#![cfg(all(target_os = "linux", target_arch = "x86_64", not(miri)))]
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::ops::ControlFlow;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use quipu_segment::clock::TestClock;
use quipu_segment::series::{Cursor, Family, Label, Schema, SeriesHandle};
use quipu_segment::{Options, Segment};

const START: u64 = 1_700_000_000_000_000_000;
/// The number of series that exist before, each with the sum 1.
const SERIES: u64 = 11;
const SECOND: Duration = Duration::from_secs(1);

/// A shared file with a family of some series.
struct World {
    segment: Segment,
    family: Family,
    clock: TestClock,
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
        let options = Options::new().limit(1 << 20).size(LENGTH as u64).shared();
        // Open the file again, because its creator maps it before the file is named.
        drop(options.open_or_create(path).unwrap());
        let segment = options.open_or_create(path).unwrap();
        let clock = TestClock::from_nanos(START);
        let family = segment.family_at(&schema(), clock.clone()).unwrap();
        let world = Self { segment, family, clock };
        (0..SERIES).for_each(|i| world.add(i));
        world.family.sweep().unwrap();
        world
    }

    fn add(&self, number: u64) {
        self.family.add(|key| key.text(&format!("{number:03}")), 0, 1);
    }

    fn bind(&self, number: u64) -> SeriesHandle {
        self.family.bind(|key| key.text(&format!("{number:03}")))
    }

    fn remove(&self, number: u64) {
        self.family.remove(|key| key.text(&format!("{number:03}"))).unwrap();
    }
}

/// Returns all series, including hidden ones. No series may occur twice.
fn all(family: &Family) -> BTreeMap<String, u64> {
    let mut all = BTreeMap::new();
    let removed = family.retain(|view| {
        let text = String::from_utf8(view.texts[1..].to_vec()).unwrap();
        assert!(all.insert(text, view.cells.sum(0)).is_none(), "a series is there twice");
        true
    });
    assert_eq!(removed.unwrap(), 0);
    all
}

/// Like above, if no process died since the lock was taken.
fn all_counted(family: &Family) -> BTreeMap<String, u64> {
    let all = all(family);
    assert_eq!(family.len(), all.len() as u64);
    all
}

fn overflow(family: &Family) -> u64 {
    let mut sum = 0;
    let _ = family.walk(&mut Cursor::default(), &mut Vec::new(), |view| {
        sum += if view.overflow { view.cells.sum(0) } else { 0 };
        ControlFlow::Continue(())
    });
    sum
}

/// Continues from each state of the file during `work`. `may_be` returns whether the series are
/// valid.
fn die_everywhere(
    name: &str,
    prepare: impl Fn(&World),
    work: impl Fn(&World),
    may_be: impl Fn(&BTreeMap<String, u64>) -> bool,
) {
    // Run in a separate process, because no other test may run in a process that forks.
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
    let path = directory.path().join("shared.quipu");
    let world = World::new(&path);
    prepare(&world);
    let time = world.clock.clone();
    let now = quipu_segment::clock::Clock::now(&time);
    let images = images(&path, || work(&world));
    assert!(images.len() > 3, "{name} stores only {} times", images.len());
    let file = File::options().write(true).open(&path).unwrap();
    for (stores, image) in images.iter().enumerate() {
        // This is the file as the dead process left it, seen by processes that use it.
        file.write_all_at(image, 0).unwrap();
        time.set(now);
        let context = format!("{name}, after {stores} stores");
        let after = go_on(&world, &may_be, &context);
        let copy = directory.path().join("copy.quipu");
        fs::copy(&path, &copy).unwrap();
        let segment = Options::new().open_or_create(&copy).unwrap();
        assert_eq!(all_counted(&segment.families().unwrap()[0]), after, "{context}");
        // This is the view of the first process that opens the file after all others ended.
        fs::write(&copy, image).unwrap();
        drop(segment);
        let segment = Options::new().open_or_create(&copy).unwrap();
        let found = all_counted(&segment.families().unwrap()[0]);
        assert!(may_be(&found), "{context}, and alone: {found:?}");
    }
}

/// Does everything that a survivor may do, and returns the series afterwards.
fn go_on(
    world: &World,
    may_be: &impl Fn(&BTreeMap<String, u64>) -> bool,
    context: &str,
) -> BTreeMap<String, u64> {
    let begun = Instant::now();
    let family = &world.family;
    let found = all(family);
    assert!(may_be(&found), "{context}: {found:?}");
    for (text, sum) in &found {
        family.add(|key| key.text(text), 0, 1);
        assert_eq!(all(family)[text], sum + 1, "{context}");
    }
    world.remove(999);
    assert_eq!(all_counted(family).len(), found.len(), "{context}");
    // There must be room for others.
    world.clock.advance(SECOND * 5);
    family.clear().unwrap();
    let overflowed = overflow(family);
    (0..=SERIES).for_each(|i| world.add(100 + i));
    let after = all_counted(family);
    assert!(after.len() as u64 == SERIES + 1 && after.values().all(|&n| n == 1), "{after:?}");
    assert_eq!(overflow(family), overflowed, "{context}");
    let made = world.segment.families().unwrap().len();
    let more = Schema { name: "more".into(), labels: vec![], ..schema() };
    world.segment.family(&more).unwrap().add(|_| (), 0, 1);
    assert!(world.segment.families().unwrap().len() - made <= 1);
    assert!(begun.elapsed() < 20 * SECOND, "{context}: an operation waited");
    after
}

/// The bytes of the file that are compared: the whole file.
const LENGTH: usize = 64 << 10;

/// Returns the states of the file before and after each store of `work`.
fn images(path: &Path, work: impl FnOnce()) -> Vec<Vec<u8>> {
    static BASE: AtomicUsize = AtomicUsize::new(0);
    static LOG: AtomicI32 = AtomicI32::new(-1);

    fn protect(protection: i32) {
        let base = BASE.load(Ordering::Relaxed) as *mut libc::c_void;
        // SAFETY: the file is mapped there for longer than its length.
        assert_eq!(unsafe { libc::mprotect(base, LENGTH, protection) }, 0);
    }

    /// Saves the state of the file.
    fn note() {
        let base = BASE.load(Ordering::Relaxed) as *const libc::c_void;
        // SAFETY: as above; the descriptor is open.
        let count = unsafe { libc::write(LOG.load(Ordering::Relaxed), base, LENGTH) };
        assert_eq!(count, LENGTH as isize);
    }

    /// Sets the trap flag: the processor stops after the next instruction.
    fn set_trap(context: *mut libc::c_void, on: bool) {
        // SAFETY: the kernel passes a handler the context that it interrupted.
        unsafe {
            let context = &mut *context.cast::<libc::ucontext_t>();
            let flags = &mut context.uc_mcontext.gregs[libc::REG_EFL as usize];
            *flags = *flags & !0x100 | i64::from(on) << 8;
        }
    }

    extern "C" fn faulted(_: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
        // SAFETY: the kernel passes a handler of SIGSEGV the address.
        let address = unsafe { (*info).si_addr() } as usize;
        let base = BASE.load(Ordering::Relaxed);
        if !(base..base + LENGTH).contains(&address) {
            // SAFETY: this call is always allowed.
            unsafe { libc::_exit(8) };
        }
        protect(libc::PROT_READ | libc::PROT_WRITE);
        set_trap(context, true);
    }

    extern "C" fn trapped(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
        set_trap(context, false);
        note();
        protect(libc::PROT_READ);
    }

    assert_eq!(fs::metadata(path).unwrap().len(), LENGTH as u64, "a small file");
    let log = tempfile::tempfile().unwrap();
    BASE.store(mapped_at(path), Ordering::Relaxed);
    LOG.store(log.as_raw_fd(), Ordering::Relaxed);
    // SAFETY: the child uses the segment and memory, which a fork keeps in order, and ends without
    // its parent's clean-up. The handlers only make calls that are allowed in a handler.
    unsafe {
        let child = libc::fork();
        assert!(child >= 0);
        if child == 0 {
            let handle = |signal: i32, handler: usize| {
                let mut action: libc::sigaction = std::mem::zeroed();
                (action.sa_sigaction, action.sa_flags) = (handler, libc::SA_SIGINFO);
                assert_eq!(libc::sigaction(signal, &action, std::ptr::null_mut()), 0);
            };
            type Handler = extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void);
            handle(libc::SIGSEGV, faulted as Handler as usize);
            handle(libc::SIGTRAP, trapped as Handler as usize);
            note();
            protect(libc::PROT_READ);
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            libc::_exit(i32::from(result.is_err()));
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "status {status:#x}");
    }
    let mut bytes = Vec::new();
    std::io::Seek::rewind(&mut &log).unwrap();
    (&log).read_to_end(&mut bytes).unwrap();
    bytes.chunks_exact(LENGTH).map(<[u8]>::to_vec).collect()
}

/// Returns the address where this process maps a segment's file.
fn mapped_at(path: &Path) -> usize {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    // Skip the file's mapped pages that only hold locks.
    let is_it = |line: &&str| line.contains(" rw-s ") && line.ends_with(path.to_str().unwrap());
    let line = maps.lines().find(is_it).unwrap();
    usize::from_str_radix(line.split('-').next().unwrap(), 16).unwrap()
}

/// Returns whether only the series with this number changed. It must have one of these sums, or not
/// exist (`None`).
fn but_for(found: &BTreeMap<String, u64>, number: u64, sums: &[Option<u64>]) -> bool {
    let mut found = found.clone();
    let one = found.remove(&format!("{number:03}"));
    let others = (0..SERIES).filter(|&i| i != number).map(|i| (format!("{i:03}"), 1));
    sums.contains(&one) && found == others.collect()
}

fn removed(found: &BTreeMap<String, u64>, numbers: &[u64]) -> bool {
    let is_one = |text: &String| numbers.iter().any(|number| *text == format!("{number:03}"));
    let others = (0..SERIES).filter(|i| !numbers.contains(i)).map(|i| (format!("{i:03}"), 1));
    let (gone, rest): (BTreeMap<_, _>, _) =
        found.clone().into_iter().partition(|(text, _)| is_one(text));
    gone.values().all(|&sum| sum == 1) && rest == others.collect()
}

#[test]
fn inserting_into_a_block() {
    die_everywhere(
        "inserting_into_a_block",
        |_| (),
        |world| world.add(50),
        |found| but_for(found, 50, &[None, Some(0), Some(1)]),
    );
}

#[test]
fn inserting_into_a_record_that_is_free() {
    die_everywhere(
        "inserting_into_a_record_that_is_free",
        |world| {
            // The last series reuses another one's record.
            for _ in 0..34 {
                world.add(20);
                world.remove(20);
            }
        },
        |world| world.add(50),
        |found| but_for(found, 50, &[None, Some(0), Some(1)]),
    );
}

#[test]
fn inserting_into_a_new_block_and_a_new_table() {
    die_everywhere(
        "inserting_into_a_new_block_and_a_new_table",
        |world| {
            // The table can hold 12, dead or not, and the block 128 words. The series take 5 each,
            // the overflow's and the block's head 6, and this series 4 and 60.
            let long = "x".repeat(60 * 8 - 5);
            world.family.add(|key| key.text(&long), 0, 1);
            assert!(world.family.remove(|key| key.text(&long)).unwrap());
        },
        |world| {
            // Take the memory of the thread's claims first.
            world.family.read(|key| key.text("000"), |_| ());
            let used = world.segment.used();
            world.add(50);
            assert_eq!(world.segment.used() - used, 8 * (256 + 32));
        },
        |found| but_for(found, 50, &[None, Some(0), Some(1)]),
    );
}

#[test]
fn removing() {
    die_everywhere(
        "removing",
        |_| (),
        |world| world.remove(3),
        |found| but_for(found, 3, &[None, Some(1)]),
    );
}

#[test]
fn removing_where_the_limit_is_reached() {
    die_everywhere(
        "removing_where_the_limit_is_reached",
        |world| world.add(20),
        |world| world.remove(3),
        |found| {
            let mut found = found.clone();
            found.remove("020") == Some(1) && but_for(&found, 3, &[None, Some(1)])
        },
    );
}

#[test]
fn removing_what_has_a_handle_and_dropping_it() {
    die_everywhere(
        "removing_what_has_a_handle_and_dropping_it",
        |_| (),
        |world| {
            let handle = world.bind(3);
            world.remove(3);
            handle.cells().add(0, 7);
        },
        |found| but_for(found, 3, &[None, Some(1)]),
    );
}

#[test]
fn removing_some() {
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
    die_everywhere(
        "hiding_and_showing",
        |world| {
            world.clock.advance(SECOND * 3);
            world.family.sweep().unwrap();
            world.clock.advance(SECOND * 3);
            let handle = world.bind(1);
            world.clock.advance(SECOND * 3);
            world.family.sweep().unwrap();
            handle.cells().add(0, 1);
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
            // At most one series must be removed for the new one.
            let mut found = found.clone();
            let new = found.remove("050");
            found.remove("020");
            [None, Some(0), Some(1)].contains(&new) && found.len() as u64 >= SERIES - 1
        },
    );
}

#[test]
fn making_families() {
    die_everywhere(
        "making_families",
        |_| (),
        |world| {
            let family = Schema { name: "more".into(), labels: vec![], ..schema() };
            // Don't add here: the restartable sequence would restart forever, because each store
            // faults.
            world.segment.family(&family).unwrap();
            let family = Schema { name: "another".into(), ..schema() };
            world.segment.family(&family).unwrap().add(|key| key.text("ada"), 0, 1);
        },
        |found| but_for(found, 0, &[Some(1)]),
    );
}

/// A process that mends after a death can die, too. Wherever this happens, no count is lost, and
/// mending after it takes no new memory.
#[test]
fn mending() {
    if std::env::var("DEATHS_ALONE").is_err() {
        return die_everywhere("mending", |_| (), |_| (), |_| true);
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("shared.quipu");
    let world = World::new(&path);
    // Like in the test above, the next series takes a new block and a new table.
    let long = "x".repeat(60 * 8 - 5);
    world.family.add(|key| key.text(&long), 0, 1);
    assert!(world.family.remove(|key| key.text(&long)).unwrap());
    let file = File::options().write(true).open(&path).unwrap();
    let add = |number: u64| images(&path, || world.add(number));
    for dead in add(50).iter().step_by(3) {
        file.write_all_at(dead, 0).unwrap();
        let images = images(&path, || world.remove(999));
        for (stores, image) in images.iter().enumerate() {
            file.write_all_at(image, 0).unwrap();
            let used = world.segment.used();
            world.remove(999);
            assert_eq!(world.segment.used(), used, "after {stores} stores");
            let found = all_counted(&world.family);
            assert!(but_for(&found, 50, &[None, Some(0), Some(1)]), "{stores} stores: {found:?}");
        }
    }
}
