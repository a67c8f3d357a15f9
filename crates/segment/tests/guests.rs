//! Guests: which files they join, how long they stay, and that their recording gives way to the
//! program's.

#![cfg(all(target_os = "linux", not(miri)))]
#![allow(clippy::unwrap_used)]

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;
use std::time::Duration;

use quipu_segment::history::Options as Recording;
use quipu_segment::inspect::{self, Inspection};
use quipu_segment::series::{Label, Schema};
use quipu_segment::{Error, ErrorKind, Options, Segment, SetAside};

const SECOND: u64 = 1_000_000_000;

fn join(path: &Path) -> Result<Segment, Error> {
    let file = File::options().read(true).write(true).open(path).unwrap();
    Options::new().join(path, file)
}

fn refusal(path: &Path) -> Error {
    join(path).map(drop).unwrap_err()
}

#[test]
fn a_guest_joins_a_file_that_others_share() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("a.quipu");
    let shared = Options::new().shared();
    drop(shared.open_or_create(&path).unwrap());
    let bytes = fs::read(&path).unwrap();
    // A file that no process uses is not changed, because its program must mend it.
    assert!(matches!(refusal(&path).kind(), ErrorKind::NotOpen));
    let own = Options::new().unmarked().open(&path).unwrap();
    assert!(matches!(refusal(&path).kind(), ErrorKind::Locked), "{}", refusal(&path));
    drop(own);
    assert_eq!(fs::read(&path).unwrap(), bytes);
    fs::write(home.path().join("b.quipu"), "a 1\n").unwrap();
    assert!(matches!(refusal(&home.path().join("b.quipu")).kind(), ErrorKind::NotOpen));

    let host = shared.open_or_create(&path).unwrap();
    let guest = join(&path).unwrap();
    assert_eq!((guest.is_last(), guest.instance()), (Some(false), host.instance()));
    // There is only one guest at a time, because two would keep each other from leaving.
    assert!(matches!(refusal(&path).kind(), ErrorKind::Joined));
    let other = shared.open_or_create(&path).unwrap();
    drop(host);
    assert_eq!(guest.is_last(), Some(false));
    drop(other);
    assert_eq!(guest.is_last(), Some(true));
    // A program that restarts in the meantime does not wait.
    let host = shared.open_or_create(&path).unwrap();
    assert_eq!(guest.is_last(), Some(false));
    drop(guest);
    drop(join(&path).unwrap());
    drop(host);
    assert!(matches!(refusal(&path).kind(), ErrorKind::NotOpen));
    assert_eq!(inspect::is_open(&File::open(&path).unwrap()), Some(false));
}

#[test]
fn a_recorder_that_gives_way_keeps_its_list() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("a.quipu");
    let host = Options::new().shared().open_or_create(&path).unwrap();
    let labels = vec![Label { name: "kind".into(), values: Some(vec!["a".into()]) }];
    let schema =
        Schema { name: "ticks".into(), cells: 1, additive: true, labels, ..Schema::default() };
    let family = host.family(&schema).unwrap();
    let recording = Recording::new().bytes(64 << 10);
    let guest = join(&path).unwrap();
    let mut guests = recording.clone().give_way().open(&guest).unwrap();
    let mut now = 1_700_000_000 * SECOND;
    let mut tick = |recorder: &mut quipu_segment::history::Recorder| {
        now += SECOND;
        family.add(|key| key.text("a"), 0, 1);
        recorder.tick_at(now, now).unwrap()
    };
    // Returns the counts of all ticks, and the token of the last writer.
    let look = || {
        let (inspection, mut counts) = (Inspection::of_file(&path).unwrap(), Vec::new());
        let replayed = inspection.history(0..=u64::MAX, |tick| {
            counts.extend(tick.series().map(|(_, cells)| cells[0]));
        });
        let replayed = replayed.unwrap();
        assert_eq!(replayed.damage, []);
        assert!(replayed.owner == 0 || inspection.is_alive(replayed.owner) == Some(true));
        (counts, replayed.owner)
    };
    for _ in 0..10 {
        assert!(tick(&mut guests) && guests.is_leading());
    }
    let all = |last: u64| (1..=last).collect::<Vec<_>>();
    assert_eq!(look(), (all(10), guest.process().unwrap()));
    let mut own = recording.open(&host).unwrap();
    assert!(tick(&mut own) && !tick(&mut guests) && !guests.is_leading());
    assert_eq!(look(), (all(11), host.process().unwrap()));
    assert!(tick(&mut own));
    drop(own);
    assert_eq!(look().1, 0);
    assert!(tick(&mut guests) && guests.is_leading());
    let counts = [all(11), vec![13, 14]].concat();
    assert_eq!(look(), (counts.clone(), guest.process().unwrap()));
    drop(guests);
    assert_eq!(look(), (counts, 0));
}

#[test]
fn a_guest_that_cannot_record_takes_no_bytes() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("a.quipu");
    let host = Options::new().shared().open_or_create(&path).unwrap();
    let guest = join(&path).unwrap();
    let recording = Recording::new().give_way();
    let used = host.used();
    // This thread holds the lock already, and fails at once.
    let held = guest.lock_registration().unwrap();
    assert!(recording.open(&guest).unwrap_err().is_held());
    assert_eq!((host.used(), host.size()), (used, guest.size()));
    drop(held);
    drop(recording.open(&guest).unwrap());
    let recorded = host.used();
    assert!(recorded > used);
    drop(recording.open(&guest).unwrap());
    assert_eq!(host.used(), recorded);
}

/// Drops the guest after the caller has begun to wait.
fn leave_soon(guest: Segment) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        thread::sleep(Duration::from_millis(300));
        drop(guest);
    })
}

#[test]
fn an_opener_that_cannot_have_a_guest_waits_for_its_leave() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("a.quipu");
    let shared = Options::new().shared();
    let host = shared.open_or_create(&path).unwrap();
    let guest = join(&path).unwrap();
    drop(host);
    let leaving = leave_soon(guest);
    drop(Options::new().open(&path).unwrap());
    leaving.join().unwrap();

    // A later version can neither use the file, nor set it aside while another process uses it.
    let host = shared.open_or_create(&path).unwrap();
    let guest = join(&path).unwrap();
    drop(host);
    let file = File::options().write(true).open(&path).unwrap();
    file.write_all_at(&1000_u32.to_le_bytes(), 8).unwrap();
    let leaving = leave_soon(guest);
    let (_host, aside) = shared.open_or_replace(&path, |_| Some(SetAside::names(&path))).unwrap();
    assert!(aside.is_some());
    leaving.join().unwrap();

    // The error names a guest that stays, such as a stopped one.
    let _guest = join(&path).unwrap_or_else(|error| panic!("{error}"));
    let error = Options::new().lock_timeout(Duration::ZERO).open(&path).unwrap_err();
    assert!(error.is_locked() && error.to_string().contains("quipu record"), "{error}");
}
