//! Runs out of space: a full disk, a file size limit, or a truncated file only causes an error.

#![cfg(all(target_os = "linux", not(miri)))]
#![allow(clippy::unwrap_used)]

mod common;

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

use common::{Child, alone, in_memory};
use quipu_segment::series::{Family, Label, Schema};
use quipu_segment::{Error, ErrorKind, Kind, Options, Readings, Segment, without_size_signal};

const KIND: Kind = Kind::new(*b"TEST", 1);

/// Reserves records until there is no room.
fn fill(segment: &Segment) -> Error {
    (0..100_000).find_map(|_| segment.reserve(KIND, "more", 100).err()).unwrap()
}

/// Returns a family with one dynamic label.
fn requests(segment: &Segment) -> Family {
    let labels = vec![Label { name: "path".into(), values: None }];
    let name = "requests".into();
    let schema = Schema { name, cells: 1, additive: true, labels, ..Schema::default() };
    segment.family(&schema).unwrap()
}

/// Counts one in each of that number of series.
fn count(family: &Family, series: u32) {
    for i in 0..series {
        family.add(|key| key.text(&i.to_string()), 0, 1);
    }
}

/// Lowers the greatest file size that this process can create, for good.
fn limit_files(bytes: u64) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
    // SAFETY: the limit is valid for the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) }, 0);
}

#[test]
fn a_limit_on_files_is_an_error_and_not_a_signal() {
    let directory = in_memory();
    let path = directory.path().join("limited.quipu");
    let segment = Options::new().shared().open_or_create(&path).unwrap();
    let limited = |work: &dyn Fn() -> Error| {
        let child = Child::start(|| {
            limit_files(256 << 10);
            let error = work();
            eprintln!("{error}");
            matches!(error.kind(), ErrorKind::FileTooLarge { limit: Some(262_144), .. })
                && error.to_string().contains("its limit is 262144; raise that limit (ulimit -f)")
        });
        assert!(child.wait());
    };
    limited(&|| fill(&segment));
    limited(&|| fill(&Segment::anonymous(1 << 30).unwrap()));
    let large = Options::new().size(1 << 20);
    limited(&|| large.open_or_create(directory.path().join("large.quipu")).unwrap_err());
    // Another process can find the room that one did not.
    for _ in 0..1000 {
        let _ = segment.reserve(KIND, "more", 100).unwrap();
    }
}

/// The limit is lowered between its check and the write.
#[test]
fn the_signal_of_a_limit_does_not_reach_the_application() {
    let directory = in_memory();
    let file = File::create(directory.path().join("file")).unwrap();
    let is_pending = || {
        // SAFETY: the first call initializes the set.
        unsafe {
            let mut set = std::mem::MaybeUninit::uninit();
            libc::sigpending(set.as_mut_ptr());
            libc::sigismember(set.as_ptr(), libc::SIGXFSZ) == 1
        }
    };
    let write = || {
        let result = without_size_signal(|| file.write_all_at(&[1; 64], 4096));
        result.unwrap_err().kind() == io::ErrorKind::FileTooLarge
    };
    let block = |how: libc::c_int| {
        // SAFETY: the first call initializes the set.
        unsafe {
            let mut set = std::mem::MaybeUninit::uninit();
            libc::sigemptyset(set.as_mut_ptr());
            libc::sigaddset(set.as_mut_ptr(), libc::SIGXFSZ);
            libc::pthread_sigmask(how, set.as_ptr(), std::ptr::null_mut()) == 0
        }
    };
    let child = Child::start(|| {
        limit_files(1024);
        let not_blocked = write() && !is_pending() && write();
        let blocked = block(libc::SIG_BLOCK) && write() && !is_pending();
        // A signal that was pending before belongs to the application, and stays.
        // SAFETY: the signal is blocked.
        let own = unsafe { libc::raise(libc::SIGXFSZ) } == 0 && write() && is_pending();
        not_blocked && blocked && own
    });
    assert!(child.wait());
    // Without the guard, the signal ends the process.
    let child = Child::start(|| {
        limit_files(1024);
        file.write_all_at(&[1; 64], 4096).is_ok()
    });
    assert!(!child.wait());
}

/// Opens the file on a machine with this boot number.
fn open(path: &Path, boot: u8) -> Result<Segment, Error> {
    let time = Duration::from_secs(1000);
    let readings = Readings { boot: [boot; 16], since_boot: time, wall: time * 2 };
    Options::new().readings(readings).open_or_create(path)
}

/// After a power loss, unsynced words may be missing, including the end of the file.
#[test]
fn a_file_that_a_loss_of_power_left_short_is_mended() {
    // We run this separately, because children of other tests would hold its lock.
    alone("a_file_that_a_loss_of_power_left_short_is_mended", cut_and_open);
}

fn cut_and_open() {
    let directory = in_memory();
    let path = directory.path().join("torn.quipu");
    let segment = open(&path, 1).unwrap();
    let family = requests(&segment);
    count(&family, 10);
    segment.sync().unwrap();
    let synced = segment.size();
    count(&family, 10_000);
    assert_eq!(family.overflowed(), 0);
    let size = segment.size();
    assert!(size > synced + 100_000);
    drop((family, segment));
    let image = fs::read(&path).unwrap();
    let at = |length: u64| {
        let mut bytes = image.clone();
        bytes.truncate(length as usize);
        fs::write(&path, bytes).unwrap();
    };
    for length in [synced, synced + 64, synced + 70_001, size - 1] {
        at(length);
        // The machine was not rebooted, so something truncated the file.
        let error = open(&path, 1).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::TooShort { .. }), "{error}");
        assert_eq!(fs::metadata(&path).unwrap().len(), length);
        let segment = open(&path, 2).unwrap();
        assert!(segment.may_have_lost_power());
        assert_eq!((segment.size(), fs::metadata(&path).unwrap().len()), (size, size));
        let family = requests(&segment);
        assert!(family.len() >= 10);
        count(&family, 10_000);
        assert_eq!((family.len(), family.overflowed()), (10_000, 0));
    }
    // Synced words survive a power loss.
    for length in [synced - 1, 256, 100] {
        at(length);
        let error = open(&path, 2).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::TooShort { .. }), "{error}");
        assert_eq!(fs::metadata(&path).unwrap().len(), length);
    }
}

/// From here on, a call that waits for the disk ends the process.
fn forbid_syncs() {
    let equals = |number: libc::c_long| libc::sock_filter {
        code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
        jt: 0,
        jf: 1,
        k: u32::try_from(number).unwrap(),
    };
    let end = |k| libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k };
    // The number of the system call is the first word that a filter sees.
    let load = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    let mut filter = vec![libc::sock_filter { code: load, jt: 0, jf: 0, k: 0 }];
    let syncs = [libc::SYS_fsync, libc::SYS_fdatasync, libc::SYS_msync, libc::SYS_sync_file_range];
    for number in syncs {
        filter.extend([equals(number), end(libc::SECCOMP_RET_KILL_PROCESS)]);
    }
    filter.push(end(libc::SECCOMP_RET_ALLOW));
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program and its instructions are valid for the calls.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program), 0);
    }
}

#[test]
fn a_new_series_does_not_wait_for_the_disk() {
    let directory = in_memory();
    let path = directory.path().join("growing.quipu");
    let segment = Options::new().shared().open_or_create(&path).unwrap();
    let family = requests(&segment);
    let size = segment.size();
    let counted = Child::start(|| {
        forbid_syncs();
        count(&family, 20_000);
        segment.size() > size + 1_000_000 && family.overflowed() == 0
    });
    assert!(counted.wait());
    let synced = Child::start(|| {
        forbid_syncs();
        segment.sync().is_ok()
    });
    assert!(!synced.wait(), "the filter works");
}

/// Mounts a disk of 4 MiB, for this process only. Returns false if the system does not allow it.
fn small_disk(path: &Path) -> bool {
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    let options = c"size=4m".as_ptr().cast();
    // SAFETY: all strings end with a zero. Root needs no user namespace, and others need one.
    unsafe {
        (libc::unshare(libc::CLONE_NEWNS) == 0
            || libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS) == 0)
            && {
                let private = libc::MS_REC | libc::MS_PRIVATE;
                let (none, root) = (std::ptr::null(), c"/".as_ptr());
                libc::mount(none, root, none, private, std::ptr::null());
                let kind = c"tmpfs".as_ptr();
                libc::mount(kind, path.as_ptr(), kind, 0, options) == 0
            }
    }
}

/// On overlayfs, the file system of containers, a mapping does not hold locks. Without the
/// fallback, processes would not see the other users of a file, and would take locks from living
/// owners.
#[test]
fn a_file_on_overlayfs_is_shared() {
    let directory = in_memory();
    let child = Child::start(|| {
        if !small_disk(directory.path()) {
            eprintln!("NOT RUN: no file system can be mounted here");
            return true;
        }
        let at = |name: &str| directory.path().join(name);
        for name in ["lower", "upper", "work", "merged"] {
            fs::create_dir(at(name)).unwrap();
        }
        let part = |name: &str| format!("{name}dir={}", at(name).display());
        let options = ["lower", "upper", "work"].map(part).join(",");
        let options = CString::new(options).unwrap();
        let merged = CString::new(at("merged").as_os_str().as_bytes()).unwrap();
        let kind = c"overlay".as_ptr();
        // SAFETY: all strings end with a zero.
        let mounted =
            unsafe { libc::mount(kind, merged.as_ptr(), kind, 0, options.as_ptr().cast()) == 0 };
        if !mounted {
            eprintln!("NOT RUN: no overlay can be mounted here");
            return true;
        }
        let path = at("merged").join("shared.quipu");
        let open = || {
            let options =
                Options::new().limit(1 << 20).shared().lock_timeout(Duration::from_secs(1));
            options.open_or_create(&path)
        };
        let segment = open().unwrap();
        let family = requests(&segment);
        count(&family, 10);
        let bound = family.bind(|key| key.text("3"));
        for _ in 0..3 {
            let other = Child::start(|| {
                let family = requests(&open().unwrap());
                // This creates and removes series, and so checks which processes live.
                count(&family, 100);
                family.retain(|view| view.cells.sum(0) > 1).unwrap();
                count(&family, 100);
                true
            });
            assert!(other.wait());
            bound.cells().add(0, 1);
        }
        let sum = family.read(|key| key.text("3"), |cells| cells.sum(0));
        assert_eq!(sum, Some(1 + 3 * 3));
        drop((bound, family, segment));
        // All handles are dropped, so the next process that opens the file is the first again.
        Options::new().open_or_create(&path).is_ok()
    });
    assert!(child.wait());
}

/// A copy with holes, such as a restored backup: each write into a hole would need a block.
#[test]
fn holes_are_filled_before_the_disk_is_full() {
    let directory = in_memory();
    let original = directory.path().join("original.quipu");
    let segment = Options::new().size(2 << 20).open_or_create(&original).unwrap();
    count(&requests(&segment), 10);
    let used = segment.used();
    drop(segment);
    let bytes = fs::read(&original).unwrap();
    let child = Child::start(|| {
        if !small_disk(directory.path()) {
            eprintln!("NOT RUN: no file system can be mounted here");
            return true;
        }
        let path = directory.path().join("copy.quipu");
        let copy = || {
            let file = File::create(&path).unwrap();
            file.write_all_at(&bytes[..used as usize], 0).unwrap();
            file.set_len(bytes.len() as u64).unwrap();
            file.metadata().unwrap().blocks() * 512
        };
        // If there is room, all blocks of the file are allocated as soon as it is open.
        assert!(copy() < 1 << 20);
        let segment = Segment::open_or_create(&path).unwrap();
        assert!(fs::metadata(&path).unwrap().blocks() * 512 >= 2 << 20);
        drop(segment);
        // If there is none, the file is refused, and not changed.
        copy();
        let _ = fs::write(directory.path().join("filler"), vec![1; 4 << 20]);
        let before = fs::read(&path).unwrap();
        let error = Segment::open_or_create(&path).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::NoSpace { .. }), "{error}");
        assert!(fs::read(&path).unwrap() == before);
        true
    });
    assert!(child.wait());
}

#[test]
fn a_file_that_is_cut_while_it_is_in_use_is_noticed() {
    let directory = in_memory();
    let path = directory.path().join("cut.quipu");
    let segment = Options::new().size(64 << 10).open_or_create(&path).unwrap();
    File::options().write(true).open(&path).unwrap().set_len(8192).unwrap();
    let at_sync = segment.sync().unwrap_err();
    let at_growth = segment.reserve(KIND, "large", 10_000).unwrap_err();
    for error in [at_sync, at_growth] {
        assert!(
            matches!(error.kind(), ErrorKind::Cut { length: 8192, expected: 65_536 }),
            "{error}"
        );
    }
    assert_eq!(fs::metadata(&path).unwrap().len(), 8192);
}
