//! Kills at any moment of a program that frees its families and creates others.

#![cfg(all(unix, not(miri)))]
#![allow(clippy::unwrap_used)]

use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use quipu_segment::series::{Cursor, Family, Identity, Label, Schema};
use quipu_segment::{Options, Segment};

fn schema(name: &str) -> Schema {
    Schema {
        name: name.into(),
        cells: 2,
        additive: true,
        labels: vec![Label { name: "host".into(), values: None }],
        idle: Some(Duration::from_secs(1)),
        identity: Identity::Variant,
        ..Schema::default()
    }
}

/// Returns the labels and the sums of a family's series.
fn series(family: &Family) -> Vec<(String, u64)> {
    let mut series = Vec::new();
    let _ = family.walk(&mut Cursor::default(), &mut Vec::new(), |view| {
        let host = String::from_utf8(view.texts[1..].to_vec()).unwrap();
        series.push((host, view.cells.sum(0)));
        ControlFlow::Continue(())
    });
    series
}

const KILLED: &str = "QUIPU_FREED_FILE";
/// The number of families at a time, each with the same number of series.
const FAMILIES: u64 = 10;

/// Frees all families and creates others, like a program at its start.
fn start_again(path: &Path, round: u64) -> Segment {
    let segment = Options::new().limit(4 << 20).open_or_create(path).unwrap();
    let families = segment.families().unwrap();
    segment.free_families(&families).unwrap();
    for i in 0..FAMILIES {
        let family = segment.family(&schema(&format!("{round} {i}"))).unwrap();
        (0..FAMILIES).for_each(|host| {
            let host = format!("{round} {host}");
            family.add(|key| key.text(&host), 0, round);
        });
    }
    segment
}

#[test]
fn a_kill_at_any_moment_leaves_families_whole_and_little_memory_unused() {
    if let Some(path) = std::env::var_os(KILLED) {
        for round in 1.. {
            start_again(Path::new(&path), round);
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.quipu");
    (0..3).for_each(|round| drop(start_again(&path, round)));
    let at_first = start_again(&path, 3).used();
    let kills = 30;
    for kill in 0..kills {
        let name = "a_kill_at_any_moment_leaves_families_whole_and_little_memory_unused";
        let mut killed = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--test-threads=1"])
            .env(KILLED, &path)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        thread::sleep(Duration::from_millis(10 + kill * 3));
        killed.kill().unwrap();
        killed.wait().unwrap();
        let segment = Options::new().open_or_create(&path).unwrap();
        for family in segment.families().unwrap() {
            let name = &*family.schema().name;
            let round = name.split(' ').next().unwrap();
            for (host, sum) in series(&family) {
                assert!(host.starts_with(&format!("{round} ")), "{host:?} in {name:?}");
                // The last series may not have counted yet.
                assert!(sum == 0 || sum.to_string() == round, "{sum} of {host:?} in {name:?}");
            }
        }
        drop(segment);
        let segment = start_again(&path, 1000 + kill);
        assert_eq!(segment.families().unwrap().len() as u64, FAMILIES);
    }
    // A kill leaves at most one family on no list, and the bytes of its last growth.
    let family = at_first / FAMILIES;
    let used = start_again(&path, 3).used();
    assert!(used <= at_first + kills * family, "{used} bytes, of {at_first} at first");
}
