//! Creates, reopens and damages segment files, and checks which files are refused, with which
//! error.

#![cfg(all(unix, not(miri)))]
#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

use quipu_segment::{Error, ErrorKind, Kind, Options, Readings, Segment};

const KIND: Kind = Kind::new(*b"TEST", 3);

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// Creates a closed segment with the records "one" (8 cells, the first 17) and "two" (16 cells).
fn sample(directory: &Path) -> PathBuf {
    let path = directory.join("sample.quipu");
    let segment = Segment::open_or_create(&path).unwrap();
    for (name, cells) in [("one", 8), ("two", 16)] {
        let draft = segment.reserve(KIND, name, cells).unwrap();
        draft.cells()[0].store(17, Ordering::Relaxed);
        draft.publish().unwrap();
    }
    segment.close().unwrap();
    path
}

fn names(segment: &Segment) -> Vec<String> {
    segment.records().map(|record| record.unwrap().name().to_owned()).collect()
}

/// Opens a file that must be refused, and checks that it was not changed.
fn refused(path: &Path) -> Error {
    let before = fs::read(path).unwrap();
    let error = Segment::open_or_create(path).unwrap_err();
    assert_eq!(fs::read(path).unwrap(), before, "a refused file must stay as it is");
    assert!(error.to_string().contains(&path.display().to_string()), "{error}");
    error
}

/// Changes 8 bytes of a file.
fn patch(path: &Path, offset: usize, value: u64) {
    let mut bytes = fs::read(path).unwrap();
    bytes[offset..offset + 8].copy_from_slice(&value.to_le_bytes());
    fs::write(path, bytes).unwrap();
}

/// Corrects the checksum of the record at `at`.
fn seal(path: &Path, at: usize) {
    let bytes = fs::read(path).unwrap();
    let constant = bytes[at..at + 16].iter().chain(&bytes[at + 24..at + 56]);
    let sum = constant.fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    patch(path, at + 56, sum);
}

#[test]
fn a_new_file_holds_what_was_published() {
    let directory = directory();
    let path = sample(directory.path());
    let segment = Segment::open_or_create(&path).unwrap();
    assert!(!segment.is_new() && !segment.was_left_open());
    assert_eq!(names(&segment), ["two", "one"]);
    let one = segment.find(KIND, "one").unwrap().unwrap();
    assert_eq!((one.cells().len(), one.kind()), (8, KIND));
    assert_eq!(one.cells()[0].load(Ordering::Relaxed), 17);
    assert!(segment.find(KIND, "three").unwrap().is_none());
}

#[test]
fn a_draft_that_was_not_published_is_not_there() {
    let directory = directory();
    let path = sample(directory.path());
    let segment = Segment::open_or_create(&path).unwrap();
    let used = segment.used();
    let _lost = segment.reserve(KIND, "lost", 8).unwrap();
    drop(segment);
    drop(_lost);
    let segment = Segment::open_or_create(&path).unwrap();
    assert!(segment.was_left_open());
    assert_eq!(names(&segment), ["two", "one"]);
    assert!(segment.used() > used, "the reserved bytes are leaked, not reused");
}

#[test]
fn a_segment_grows_in_place_up_to_its_limit() {
    let directory = directory();
    let path = directory.path().join("grown.quipu");
    let options = Options::new().limit(1 << 20);
    let segment = options.open_or_create(&path).unwrap();
    let first = segment.reserve(KIND, "first", 1000).unwrap();
    let address = std::ptr::from_ref(&first.cells()[0]);
    first.cells()[999].store(1, Ordering::Relaxed);
    let first = first.publish().unwrap();
    let mut made = 0;
    let error = loop {
        match segment.reserve(KIND, "more", 8000) {
            Ok(draft) => draft.cells()[7999].store(2, Ordering::Relaxed),
            Err(error) => break error,
        }
        made += 1;
        assert_eq!(fs::metadata(&path).unwrap().len(), segment.size());
    };
    assert_eq!(made, 16);
    assert!(matches!(error.kind(), ErrorKind::Full { limit: 1_048_576, .. }), "{error}");
    assert_eq!(std::ptr::from_ref(&first.cells()[0]), address);
    drop((segment, first));
    assert_eq!(options.open_or_create(&path).unwrap().limit(), 1 << 20);
}

#[test]
fn a_growth_that_was_cut_off_is_finished() {
    let directory = directory();
    let path = sample(directory.path());
    drop(Segment::open_or_create(&path).unwrap());
    let length = fs::metadata(&path).unwrap().len();
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(length + 4096).unwrap();
    let segment = Segment::open_or_create(&path).unwrap();
    assert!(segment.was_left_open());
    assert_eq!(names(&segment), ["two", "one"]);
    let draft = segment.reserve(KIND, "three", 20_000).unwrap();
    draft.cells()[19_999].store(1, Ordering::Relaxed);
}

/// A process is killed after it allocated disk blocks and before it stored the size.
#[test]
fn a_file_that_is_longer_after_a_kill_can_be_closed_and_opened() {
    let directory = directory();
    let path = directory.path().join("longer");
    let segment = Segment::open_or_create(&path).unwrap();
    let draft = segment.reserve(KIND, "first", 1).unwrap();
    draft.publish().unwrap().cells()[0].store(7, Ordering::Relaxed);
    let size = segment.size();
    drop(segment);
    fs::File::options().write(true).open(&path).unwrap().set_len(size + 65_536).unwrap();
    for _ in 0..3 {
        let segment = Segment::open_or_create(&path).unwrap();
        let record = segment.find(KIND, "first").unwrap().unwrap();
        assert_eq!(record.cells()[0].load(Ordering::Relaxed), 7);
        segment.close().unwrap();
    }
    // The file is in order again when the segment has grown into the rest.
    let segment = Segment::open_or_create(&path).unwrap();
    while segment.size() < size + 65_536 {
        segment.reserve(KIND, "more", 1000).unwrap().publish().unwrap();
    }
    segment.close().unwrap();
    drop(segment);
    assert!(!Segment::open_or_create(&path).unwrap().was_left_open());
}

#[test]
fn a_second_opener_is_refused() {
    let directory = directory();
    let path = sample(directory.path());
    let _held = Segment::open_or_create(&path).unwrap();
    let error = refused_while_held(&path);
    assert!(error.is_locked() && !error.is_damage());
    assert!(error.to_string().contains("another process has it open; stop that process"));
}

fn refused_while_held(path: &Path) -> Error {
    Segment::open_or_create(path).unwrap_err()
}

#[test]
fn cells_keep_the_file_mapped_and_locked() {
    let directory = directory();
    let path = sample(directory.path());
    let segment = Segment::open_or_create(&path).unwrap();
    let cells = segment.find(KIND, "one").unwrap().unwrap().cells().slice(0..1);
    drop(segment);
    cells[0].store(18, Ordering::Relaxed);
    assert!(refused_while_held(&path).is_locked());
    drop(cells);
    let segment = Segment::open_or_create(&path).unwrap();
    assert_eq!(segment.find(KIND, "one").unwrap().unwrap().cells()[0].load(Ordering::Relaxed), 18);
}

#[test]
fn every_truncation_is_refused() {
    let directory = directory();
    let path = sample(directory.path());
    let whole = fs::read(&path).unwrap();
    let cut = directory.path().join("cut.quipu");
    for length in (0..whole.len()).step_by(7).chain([255, 256, 257, whole.len() - 1]) {
        fs::write(&cut, &whole[..length]).unwrap();
        let error = refused(&cut);
        assert!(matches!(error.kind(), ErrorKind::TooShort { .. }), "{length}: {error}");
        assert!(error.is_damage());
        assert!(error.to_string().contains("move it away to start afresh"), "{error}");
    }
}

#[test]
fn a_foreign_file_is_refused() {
    let directory = directory();
    let path = directory.path().join("notes.txt");
    for content in [&b"Dear diary, this is not a segment."[..], b"QUIPUSEx", b"x"] {
        fs::write(&path, content).unwrap();
        let error = refused(&path);
        assert!(matches!(error.kind(), ErrorKind::NotASegment));
        assert!(!error.is_damage(), "a file of another program is not a damaged segment");
    }
}

#[test]
fn another_version_is_refused() {
    for found in [2, 4] {
        let directory = directory();
        let path = sample(directory.path());
        patch(&path, 8, found | 256 << 32);
        let error = refused(&path);
        assert!(
            matches!(error.kind(), ErrorKind::Version { found: version } if u64::from(*version) == found)
        );
        let says = format!("layout version {found} and this program reads only version 3");
        assert!(error.to_string().contains(&says), "{error}");
    }
}

#[test]
fn a_flipped_bit_in_a_record_header_is_damage() {
    let directory = directory();
    let path = sample(directory.path());
    let whole = fs::read(&path).unwrap();
    // The first record follows the header: its length, kind, name, and checksum.
    for byte in (256..272).chain(280..320) {
        for bit in 0..8 {
            let mut bytes = whole.clone();
            bytes[byte] ^= 1 << bit;
            fs::write(&path, &bytes).unwrap();
            assert!(refused(&path).is_damage(), "bit {bit} of byte {byte}");
        }
    }
}

#[test]
fn appended_bytes_are_refused() {
    let directory = directory();
    let path = sample(directory.path());
    let mut bytes = fs::read(&path).unwrap();
    bytes.extend([0; 64]);
    fs::write(&path, bytes).unwrap();
    assert!(matches!(refused(&path).kind(), ErrorKind::TooLong { .. }));
}

#[test]
fn offsets_that_point_outside_are_refused() {
    let directory = directory();
    // The offset in the file, the word to write there, and a part of the message.
    let cases = [
        (16, 1 << 50, "checksum"),
        (64, 100, "size of 100 bytes"),
        (64, u64::MAX, "size of"),
        (72, 64, "cursor 64"),
        (72, u64::MAX - 63, "cursor"),
        (72, 257, "cursor 257"),
        (80, 64, "offset 64"),
        (80, 1 << 40, "outside of the"),
        (80, 257, "offset 257"),
        (88, 2, "clean mark"),
        (256, 0, "length 0"),
        (256, u64::MAX, "length"),
        (256, 128 + 64, "overlap"),
        (256 + 8, 0, "no kind"),
        (256 + 16, 384, "circular"),
        (256 + 16, 8, "offset 8"),
        (256 + 24, 200, "no readable name"),
        (256 + 24, 0xff03, "no readable name"),
    ];
    for (offset, value, message) in cases {
        let path = sample(directory.path());
        patch(&path, offset, value);
        if offset >= 256 {
            seal(&path, 256);
        }
        let error = refused(&path);
        assert!(error.to_string().contains(message), "{offset} = {value}: {error}");
        assert!(error.is_damage(), "{error}");
        fs::remove_file(&path).unwrap();
    }
}

#[test]
fn a_directory_in_the_files_place_is_refused() {
    let directory = directory();
    let error = Segment::open_or_create(directory.path()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::IsDirectory));
    assert!(error.to_string().contains("it is a directory; name a file"));
}

#[test]
fn a_missing_directory_is_refused() {
    let directory = directory();
    let error = Segment::open_or_create(directory.path().join("no/state.quipu")).unwrap_err();
    assert!(error.to_string().contains("its directory does not exist; create it"), "{error}");
}

#[test]
fn devices_and_sockets_are_refused() {
    let directory = directory();
    let socket = directory.path().join("socket");
    let _listener = UnixListener::bind(&socket).unwrap();
    for (path, kind) in [(Path::new("/dev/null"), "a device"), (&socket, "a socket")] {
        expect_no_file(path, kind);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_pipe_is_refused() {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    let directory = directory();
    let pipe = directory.path().join("pipe");
    // Don't run a command: until it starts, its process holds the locks of other tests' files.
    mknodat(CWD, &pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    expect_no_file(&pipe, "a pipe");
}

fn expect_no_file(path: &Path, kind: &str) {
    let error = Segment::open_or_create(path).unwrap_err().to_string();
    let expected = format!("it is {kind}, not a regular file; name a file");
    assert!(error.contains(&expected), "{error}");
}

#[test]
fn a_read_only_file_is_refused() {
    let directory = directory();
    let path = sample(directory.path());
    fs::set_permissions(&path, fs::Permissions::from_mode(0o444)).unwrap();
    // The superuser can write everywhere, so only other users can see the refusal.
    if fs::OpenOptions::new().write(true).open(&path).is_ok() {
        return;
    }
    let error = refused(&path);
    assert!(matches!(error.kind(), ErrorKind::NotWritable(_)));
}

#[cfg(target_os = "linux")]
#[test]
fn a_read_only_directory_is_refused() {
    // /proc accepts no new files from any user.
    let error = Segment::open_or_create("/proc/state.quipu").unwrap_err();
    assert!(
        matches!(
            error.kind(),
            ErrorKind::NotWritable(_) | ErrorKind::NoDirectory | ErrorKind::Io(_)
        ),
        "{error}"
    );
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_refused_at_once_and_leaves_no_file() {
    let directory = directory();
    let path = directory.path().join("huge.quipu");
    // No file system of a test machine can spare 1 TiB. A file system that claims so is recognized
    // by the size of its allocated blocks.
    match Options::new().limit(1 << 40).size(1 << 40).open_or_create(&path) {
        Err(error) => {
            assert!(matches!(error.kind(), ErrorKind::NoSpace { .. }), "{error}");
            assert!(error.to_string().contains("no space left on the device"));
            assert!(!path.exists());
            assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        }
        Ok(segment) => assert_eq!(segment.size(), 1 << 40),
    }
}

#[test]
fn bad_requests_are_refused() {
    let segment = Segment::private(4096).unwrap();
    let error = segment.reserve(KIND, &"x".repeat(32), 1).unwrap_err();
    assert!(error.to_string().contains("at most 31 fit"));
    let error = segment.reserve(KIND, "big", 4096).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Full { .. }));
    let error = segment.reserve(KIND, "bigger", usize::MAX).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Full { .. }));
    assert!(Segment::private(8).is_err());
    assert!(Segment::private(u64::MAX).is_err());
    let directory = directory();
    let path = directory.path().join("x");
    for options in
        [Options::new().limit(8), Options::new().limit(u64::MAX), Options::new().size(u64::MAX)]
    {
        assert!(matches!(options.open_or_create(&path).unwrap_err().kind(), ErrorKind::Request(_)));
        assert!(!path.exists());
    }
}

#[test]
fn another_version_of_a_kind_is_a_mismatch() {
    let directory = directory();
    let path = sample(directory.path());
    let segment = Segment::open_or_create(&path).unwrap();
    let error = segment.find(Kind::new(*b"TEST", 4), "one").unwrap_err();
    assert!(
        error.to_string().contains("of kind TEST/3 and this program reads only TEST/4"),
        "{error}"
    );
}

#[test]
fn time_advances_through_restarts_and_reboots() {
    let directory = directory();
    let path = directory.path().join("time.quipu");
    let second = Duration::from_secs(1);
    let mut readings = Readings { boot: [1; 16], since_boot: second * 50, wall: second * 9000 };
    let time = |readings: &Readings, sync| {
        let segment = Options::new().readings(*readings).open_or_create(&path).unwrap();
        if sync {
            segment.sync_at(readings).unwrap();
        }
        segment.anchor().time(readings.since_boot) / 1_000_000_000
    };
    assert_eq!(time(&readings, true), 9000);
    // The wall clock is set back; the machine is still up.
    readings.since_boot = second * 60;
    readings.wall = second * 100;
    assert_eq!(time(&readings, true), 9010);
    // This is a reboot, ten seconds of wall clock later.
    readings = Readings { boot: [2; 16], since_boot: second, wall: second * 110 };
    assert_eq!(time(&readings, false), 9020);
}

/// A file that a power loss left shorter than its header's size is extended before it is validated.
/// If it is then refused, its length is restored.
#[test]
fn a_short_file_that_is_refused_keeps_its_length() {
    const SYNCED: usize = 208;
    let directory = directory();
    let path = directory.path().join("short.quipu");
    let time = Duration::from_secs(1000);
    let open = |boot: u8| {
        let readings = Readings { boot: [boot; 16], since_boot: time, wall: time * 2 };
        Options::new().limit(1 << 20).readings(readings).open_or_create(&path)
    };
    let segment = open(1).unwrap();
    segment.reserve(KIND, "long", 200).unwrap().publish().unwrap();
    let mut bytes = fs::read(&path).unwrap();
    drop(segment);
    bytes.truncate(1000);
    // No sync reached the disk, and the header of the record is torn.
    bytes[SYNCED..SYNCED + 8].fill(0);
    bytes[256..320].fill(0xff);
    fs::write(&path, &bytes).unwrap();
    let error = open(2).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Damaged(_)), "{error}");
    assert_eq!(fs::read(&path).unwrap(), bytes);
}

/// After a power loss, the page with the token count can be older than the page that names the
/// leader.
#[test]
#[cfg(target_os = "linux")]
fn no_process_is_taken_for_one_before_a_loss_of_power() {
    const TOKENS: usize = 200;
    let directory = directory();
    let path = directory.path().join("torn.quipu");
    let time = Duration::from_secs(1000);
    let open = |boot: u8| {
        let readings = Readings { boot: [boot; 16], since_boot: time, wall: time * 2 };
        Options::new().readings(readings).open_or_create(&path).unwrap()
    };
    let cells = |segment: &Segment| segment.records().next().unwrap().unwrap().cells().clone();
    let segment = open(1);
    segment.reserve(KIND, "lead", 1).unwrap().publish().unwrap();
    let lead = segment.lead(&cells(&segment), 0).unwrap().unwrap();
    let mut image = fs::read(&path).unwrap();
    drop((lead, segment));
    image[TOKENS..TOKENS + 8].fill(0);
    fs::write(&path, image).unwrap();
    let segment = open(2);
    assert!(segment.may_have_lost_power());
    assert!(segment.lead(&cells(&segment), 0).unwrap().is_some());
}

#[test]
fn many_threads_publish_at_once() {
    let directory = directory();
    let path = directory.path().join("many.quipu");
    let segment = Segment::open_or_create(&path).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let segment = &segment;
            scope.spawn(move || {
                for i in 0..20 {
                    let draft = segment.reserve(KIND, &format!("{thread}/{i}"), 100).unwrap();
                    draft.cells()[99].store(thread * 100 + i, Ordering::Relaxed);
                    draft.publish().unwrap();
                }
            });
        }
    });
    drop(segment);
    let segment = Segment::open_or_create(&path).unwrap();
    let mut found = names(&segment);
    found.sort();
    found.dedup();
    assert_eq!(found.len(), 160);
    for record in segment.records() {
        let record = record.unwrap();
        let (thread, i) = record.name().split_once('/').unwrap();
        let expected = thread.parse::<u64>().unwrap() * 100 + i.parse::<u64>().unwrap();
        assert_eq!(record.cells()[99].load(Ordering::Relaxed), expected);
    }
}
