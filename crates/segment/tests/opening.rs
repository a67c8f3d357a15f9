//! Opens a file in any state: another process is opening it, uses it, was killed while opening it,
//! or refused it. Other tests close a file while children of forks still count.

#![cfg(all(target_os = "linux", not(miri)))]
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::ops::ControlFlow;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use common::{Child, alone, in_memory};
use quipu_segment::series::{Cursor, Family, Label, Schema};
use quipu_segment::{Options, Readings, Segment};

const SERIES: u64 = 20;

fn schema() -> Schema {
    let user = Label { name: "user".into(), values: None };
    let (name, labels) = ("requests".into(), vec![user]);
    Schema { name, cells: 1, additive: true, labels, ..Schema::default() }
}

fn add_all(family: &Family) {
    (0..SERIES).for_each(|i| family.add(|key| key.text(&i.to_string()), 0, 1));
}

/// Returns the sums of all series of each label set. There is only one, unless a series occurs
/// twice.
fn sums(family: &Family) -> BTreeMap<Vec<u8>, Vec<u64>> {
    let mut sums = BTreeMap::<_, Vec<u64>>::new();
    let _ = family.walk(&mut Cursor::default(), &mut Vec::new(), |view| {
        sums.entry(view.texts.to_vec()).or_default().push(view.cells.sum(0));
        ControlFlow::Continue(())
    });
    sums
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn put(bytes: &mut [u8], at: usize, word: u64) {
    bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
}

/// Returns the offset of cell `number` of the only record.
fn cell(bytes: &[u8], number: usize) -> usize {
    word(bytes, 80) as usize + 64 + 8 * number
}

/// Returns the bytes of a file with a family of some series.
fn image(readings: Option<Readings>) -> Vec<u8> {
    let directory = in_memory();
    let path = directory.path().join("made.quipu");
    let mut options = Options::new().limit(1 << 20).shared();
    if let Some(readings) = readings {
        options = options.readings(readings);
    }
    let segment = options.open_or_create(&path).unwrap();
    add_all(&segment.family(&schema()).unwrap());
    match readings {
        Some(readings) => segment.sync_at(&readings).unwrap(),
        None => segment.sync().unwrap(),
    }
    fs::read(path).unwrap()
}

/// Returns a file whose index was lost. A process that used it without mending would create its
/// series again.
fn without_index() -> Vec<u8> {
    let mut bytes = image(None);
    let table = word(&bytes, cell(&bytes, 6));
    let (at, slots) = ((table & 0xffff_ffff) as usize * 8, 1 << (table >> 32));
    bytes[at..at + slots * 8].fill(0);
    bytes
}

/// Returns a file that is refused, because a block's used words exceed its length.
fn damaged() -> Vec<u8> {
    let mut bytes = image(None);
    let block = word(&bytes, cell(&bytes, 16)) as usize * 8;
    put(&mut bytes, block + 8, 1 << 40);
    bytes
}

fn options() -> Options {
    Options::new().shared()
}

/// Opens the file while another process has it locked, like during validation, until that process
/// is killed.
fn open_after_a_kill(path: &Path, options: Options) -> Result<Segment, quipu_segment::Error> {
    let file = File::options().read(true).write(true).open(path).unwrap();
    // SAFETY: the descriptor is open.
    assert_eq!(unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) }, 0);
    let first = Child::start(|| {
        loop {
            std::thread::park();
        }
    });
    // The child keeps the lock.
    drop(file);
    std::thread::scope(|scope| {
        let second = scope.spawn(move || options.open(path));
        std::thread::sleep(Duration::from_millis(20));
        first.kill();
        second.join().unwrap()
    })
}

#[test]
fn a_file_is_inspected_again_when_the_process_that_inspected_it_is_killed() {
    alone("a_file_is_inspected_again_when_the_process_that_inspected_it_is_killed", || {
        let directory = in_memory();
        let path = directory.path().join("a.quipu");
        fs::write(&path, damaged()).unwrap();
        assert!(open_after_a_kill(&path, options()).unwrap_err().is_damage());
        // The time continues after a reboot, too, from the last sync.
        let of = |boot, up, wall| Readings {
            boot: [boot; 16],
            since_boot: Duration::from_secs(up),
            wall: Duration::from_secs(wall),
        };
        let (before, after) = (of(1, 10 * 86_400, 1_700_000_000), of(2, 60, 1_700_000_100));
        fs::write(&path, image(Some(before))).unwrap();
        let segment = open_after_a_kill(&path, options().readings(after)).unwrap();
        assert_eq!(segment.anchor().time(after.since_boot), 1_700_000_100_000_000_000);
        assert!(segment.may_have_lost_power());
    });
}

/// A process that runs `work`, and is stopped before and after each of its system calls.
struct Traced(libc::pid_t);

impl Traced {
    /// Returns `None` if processes cannot be traced, for example in some sandboxes and emulators.
    fn start(work: impl FnOnce()) -> Option<Self> {
        // SAFETY: like in `common::Child`. The child stops itself once it is traced.
        unsafe {
            let child = libc::fork();
            assert!(child >= 0);
            if child == 0 {
                let none = std::ptr::null_mut::<libc::c_void>();
                if libc::ptrace(libc::PTRACE_TRACEME, 0, none, none) != 0 {
                    libc::_exit(0);
                }
                libc::raise(libc::SIGSTOP);
                let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
                libc::_exit(i32::from(result.is_err()));
            }
            let traced = Self(child);
            libc::WIFSTOPPED(traced.status()).then_some(traced)
        }
    }

    /// Continues to the next stop. Returns false if the process ended instead.
    fn step(&self) -> bool {
        let none = std::ptr::null_mut::<libc::c_void>();
        // SAFETY: this is a stopped child of this thread.
        unsafe { assert_eq!(libc::ptrace(libc::PTRACE_SYSCALL, self.0, none, none), 0) };
        libc::WIFSTOPPED(self.status())
    }

    fn status(&self) -> i32 {
        let mut status = 0;
        // SAFETY: this is a child of this process, and there are no other waiters.
        unsafe { assert_eq!(libc::waitpid(self.0, &raw mut status, 0), self.0) };
        status
    }
}

impl Drop for Traced {
    fn drop(&mut self) {
        // SAFETY: as above; an ended process was waited for, and its ID is not reused so soon.
        unsafe { libc::kill(self.0, libc::SIGKILL) };
        let mut status = 0;
        // SAFETY: as above.
        unsafe { libc::waitpid(self.0, &raw mut status, 0) };
    }
}

#[test]
fn a_file_is_mended_wherever_the_process_that_opens_it_first_is_killed() {
    alone("a_file_is_mended_wherever_the_process_that_opens_it_first_is_killed", || {
        let directory = in_memory();
        let path = directory.path().join("a.quipu");
        let bytes = without_index();
        let (mut stops, mut had_to_wait) = (0, 0);
        loop {
            fs::remove_file(&path).ok();
            fs::write(&path, &bytes).unwrap();
            let work = || {
                let segment = options().open(&path).unwrap();
                // Like the end of a killed process, this end cleans up no state.
                std::mem::forget(segment);
            };
            let Some(first) = Traced::start(work) else {
                eprintln!("processes cannot be traced here: nothing was tested");
                return;
            };
            if !(0..stops).all(|_| first.step()) {
                break;
            }
            // A stopped process delays the others no longer than their timeout. Once it is present,
            // it does not delay them at all.
            let hasty = options().lock_timeout(Duration::from_millis(2)).open(&path);
            if let Err(error) = &hasty {
                assert!(error.is_locked(), "{error}");
                assert!(error.to_string().contains("did not share it within 2ms"), "{error}");
                had_to_wait += 1;
            }
            drop(hasty);
            std::thread::scope(|scope| {
                let second = scope.spawn(|| {
                    let segment = options().open(&path).unwrap();
                    let family = segment.family(&schema()).unwrap();
                    add_all(&family);
                    sums(&family)
                });
                std::thread::sleep(Duration::from_millis(2));
                drop(first);
                let sums = second.join().unwrap();
                assert_eq!(sums.len() as u64, SERIES);
                assert!(sums.values().all(|sums| *sums == [2]), "after {stops} stops: {sums:?}");
            });
            stops += 1;
        }
        assert!(stops > 20 && had_to_wait > 5, "{stops} stops, {had_to_wait} of them waited for");
    });
}

#[test]
fn an_opener_waits_wherever_a_guest_that_leaves_is_stopped() {
    alone("an_opener_waits_wherever_a_guest_that_leaves_is_stopped", || {
        let directory = in_memory();
        let (path, mark) = (directory.path().join("a.quipu"), directory.path().join("leaving"));
        let wait = Duration::from_millis(2);
        let (mut stops, mut waits) = (0, 0);
        loop {
            fs::remove_file(&mark).ok();
            let work = || {
                let file = File::options().read(true).write(true).open(&path).unwrap();
                let guest = Options::new().join(&path, file).unwrap();
                File::create(&mark).unwrap();
                drop(guest);
            };
            let Some(guest) = Traced::start(work) else {
                eprintln!("processes cannot be traced here: nothing was tested");
                return;
            };
            // Fork the guest first, because it must not share the presence of its host.
            let host = options().open_or_create(&path).unwrap();
            while !mark.exists() {
                assert!(guest.step());
            }
            drop(host);
            if !(0..stops).all(|_| guest.step()) {
                break;
            }
            let started = Instant::now();
            match Options::new().lock_timeout(wait).open(&path) {
                Ok(_) => {}
                Err(error) if error.is_locked() && started.elapsed() >= wait => waits += 1,
                Err(error) => panic!("after {stops} stops: {error}, {:?}", started.elapsed()),
            }
            drop(guest);
            drop(Options::new().open(&path).unwrap());
            stops += 1;
        }
        assert!(stops > 4 && waits > 4, "{stops} stops, {waits} of them waited for");
    });
}

#[test]
fn one_process_sets_a_damaged_file_aside_and_all_use_the_new_one() {
    alone("one_process_sets_a_damaged_file_aside_and_all_use_the_new_one", || {
        let bytes = damaged();
        for _ in 0..10 {
            let directory = in_memory();
            let path = directory.path().join("a.quipu");
            let aside = |n: u32| path.with_extension(format!("aside-{n}"));
            fs::write(&path, &bytes).unwrap();
            let (reader, writer) = std::io::pipe().unwrap();
            let children: Vec<Child> = (0..6)
                .map(|_| {
                    let writer = &writer;
                    let path = &path;
                    let reader = &reader;
                    Child::start(move || {
                        // SAFETY: the descriptor is open; the parent closes the other copy.
                        unsafe { libc::close(writer.as_raw_fd()) };
                        // All begin when the parent closes its end.
                        assert_eq!((&*reader).read(&mut [0]).unwrap(), 0);
                        let names = |_: &quipu_segment::Error| Some((1..9).map(aside));
                        let (segment, _) = options().open_or_replace(path, names).unwrap();
                        let family = segment.family(&schema()).unwrap();
                        family.add(|key| key.text("x"), 0, 1);
                        true
                    })
                })
                .collect();
            drop(writer);
            assert!(children.into_iter().all(Child::wait));
            let segment = options().open(&path).unwrap();
            let all: Vec<_> = sums(&segment.families().unwrap()[0]).into_values().collect();
            assert_eq!(all, [[6]]);
            assert_eq!(fs::read(aside(1)).unwrap(), bytes);
            assert!(!aside(2).exists());
        }
    });
}

#[test]
fn a_file_that_was_renamed_while_it_was_waited_for_is_not_used() {
    alone("a_file_that_was_renamed_while_it_was_waited_for_is_not_used", || {
        let directory = in_memory();
        let (path, other) = (directory.path().join("a.quipu"), directory.path().join("b"));
        fs::write(&path, image(None)).unwrap();
        let file = File::options().read(true).write(true).open(&path).unwrap();
        file.lock().unwrap();
        let segment = std::thread::scope(|scope| {
            let second = scope.spawn(|| options().open_or_create(&path).unwrap());
            std::thread::sleep(Duration::from_millis(10));
            fs::rename(&path, &other).unwrap();
            // The lock is still held, but it is not the new file's.
            second.join().unwrap()
        });
        assert!(segment.is_new());
        assert_ne!(fs::metadata(&path).unwrap().ino(), fs::metadata(&other).unwrap().ino());
    });
}

fn is_clean(path: &Path) -> bool {
    let mut mark = [0; 8];
    File::open(path).unwrap().read_exact_at(&mut mark, 88).unwrap();
    u64::from_le_bytes(mark) == 1
}

#[test]
fn the_last_process_that_closes_a_file_marks_it_clean() {
    alone("the_last_process_that_closes_a_file_marks_it_clean", || {
        let directory = in_memory();
        for options in [Options::new(), Options::new().shared()] {
            let path = directory.path().join("a.quipu");
            let segment = options.open_or_create(&path).unwrap();
            let family = segment.family(&schema()).unwrap();
            let child = Child::start(|| {
                loop {
                    std::thread::park();
                }
            });
            segment.close().unwrap();
            assert!(!is_clean(&path), "a child counts in it");
            let closes = || {
                add_all(&family);
                segment.close().unwrap();
                !is_clean(&path)
            };
            assert!(Child::start(closes).wait(), "its parent and its sibling count in it");
            child.kill();
            add_all(&family);
            segment.close().unwrap();
            assert!(is_clean(&path));
            drop((segment, family));
            fs::remove_file(&path).unwrap();
        }
        // A child that outlives its parent is the last process.
        let path = directory.path().join("b.quipu");
        let parent = Child::start(|| {
            let segment = options().open_or_create(&path).unwrap();
            let (reader, writer) = std::io::pipe().unwrap();
            let child = Child::start(|| {
                // SAFETY: the descriptor is open, and not used any more in this process.
                unsafe { libc::close(writer.as_raw_fd()) };
                // Wait until the parent has closed the segment.
                assert_eq!((&reader).read(&mut [0]).unwrap(), 0);
                segment.close().unwrap();
                is_clean(&path)
            });
            segment.close().unwrap();
            assert!(!is_clean(&path));
            drop(segment);
            drop(writer);
            child.wait()
        });
        assert!(parent.wait());
    });
}

/// Closes all descriptors except the first three, like a program that becomes a daemon.
fn close_all() {
    // SAFETY: only the segment uses descriptors in this process, and this is the test.
    assert_eq!(unsafe { libc::close_range(3, u32::MAX, 0) }, 0);
}

#[test]
fn no_descriptor_of_the_program_is_closed() {
    alone("no_descriptor_of_the_program_is_closed", || {
        let directory = in_memory();
        let segment = options().open_or_create(directory.path().join("a.quipu")).unwrap();
        segment.process().unwrap();
        close_all();
        let logs: Vec<File> = (0..8)
            .map(|i| File::create(directory.path().join(format!("log {i}"))).unwrap())
            .collect();
        let works = || logs.iter().all(|log| log.metadata().is_ok());
        assert!(Child::start(|| works() && segment.process().is_ok() && works()).wait());
        drop(segment);
        assert!(works());
    });
}

#[test]
fn a_process_that_closed_all_its_descriptors_still_has_the_file() {
    alone("a_process_that_closed_all_its_descriptors_still_has_the_file", || {
        let directory = in_memory();
        let path = directory.path().join("a.quipu");
        let work = || {
            let segment = options().open_or_create(&path).unwrap();
            let family = segment.family(&schema()).unwrap();
            let token = segment.process().unwrap();
            close_all();
            let before = segment.size();
            for i in 0..5000 {
                family.add(|key| key.text(&i.to_string()), 0, 1);
            }
            // The segment has grown, and its children count, too.
            assert!(segment.size() > before && family.len() == 5000);
            assert!(
                Child::start(|| {
                    family.add(|key| key.text("a child's"), 0, 1);
                    segment.process().unwrap() != token
                })
                .wait()
            );
            // Another process sees that this one is present, and does not start as the first.
            Child::start(|| {
                let error = Options::new().open(&path).unwrap_err();
                let other = options().open(&path).unwrap();
                error.is_locked() && other.is_alive(token) && other.families().unwrap().len() == 1
            })
            .wait()
        };
        assert!(Child::start(work).wait());
    });
}

#[test]
fn a_new_file_has_the_mode_that_was_asked_for() {
    alone("a_new_file_has_the_mode_that_was_asked_for", || {
        let directory = in_memory();
        let modes = [(None, 0o600), (Some(0o640), 0o640), (Some(0o666), 0o666)];
        for umask in [0, 0o027, 0o777] {
            for (asked, expected) in modes {
                // SAFETY: this call is always allowed.
                let old = unsafe { libc::umask(umask) };
                let path: PathBuf = directory.path().join("a.quipu");
                let options = asked.map_or(Options::new(), |mode| Options::new().mode(mode));
                drop(options.open_or_create(&path).unwrap());
                // SAFETY: this call is always allowed.
                unsafe { libc::umask(old) };
                assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, expected);
                fs::remove_file(&path).unwrap();
            }
        }
        let path = directory.path().join("a.quipu");
        // SAFETY: these calls are always allowed.
        let (group, is_root) = unsafe { (libc::getgid(), libc::geteuid() == 0) };
        let segment = Options::new().mode(0o660).group(group).open_or_create(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().gid(), group);
        drop(segment);
        let error = Options::new().mode(0o4755).open_or_create(directory.path().join("b"));
        assert!(error.unwrap_err().to_string().contains("4755"));
        if !is_root {
            let error = Options::new().group(0).open_or_create(directory.path().join("b"));
            assert!(error.unwrap_err().to_string().contains("the group 0"));
        }
        assert!(!directory.path().join("b").exists());
    });
}

#[test]
fn a_link_to_nothing_is_refused() {
    let directory = in_memory();
    let path = directory.path().join("a.quipu");
    std::os::unix::fs::symlink(directory.path().join("nothing"), &path).unwrap();
    let error = options().open_or_create(&path).unwrap_err();
    assert!(error.to_string().contains("symbolic link"), "{error}");
}
