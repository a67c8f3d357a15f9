//! Writes the first inputs of each target's corpus: valid files, which the fuzzer then bends.
//!
//! `cargo run --example seeds` in this folder.

use std::fs;
use std::time::Duration;

use quipu_segment::clock::Manual;
use quipu_segment::{Options, Segment};
use quipu_window::{Bucketed, Exact, Keyed, Window};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let corpus = |target: &str, name: &str, bytes: &[u8]| -> std::io::Result<()> {
        let folder = format!("corpus/{target}");
        fs::create_dir_all(&folder)?;
        fs::write(format!("{folder}/{name}"), bytes)
    };
    let clock = Manual::new(1_700_000_000_000_000_000);
    let (minute, second) = (Duration::from_secs(60), Duration::from_secs(1));

    let directory = tempfile::tempdir()?;
    for (name, records) in [("empty", 0), ("window", 1), ("keys", 2), ("both", 3)] {
        let path = directory.path().join(name);
        let segment = Options::new().limit(1 << 20).open_or_create(&path)?;
        let segment: Segment = segment;
        if records & 1 == 1 {
            let counter = Bucketed::options(minute, second).tickets();
            let counter = counter.open_on(&segment, "requests", clock.clone())?;
            counter.add(5);
        }
        if records & 2 == 2 {
            let keys = Keyed::options(minute, second, 3).key_bytes(16);
            let keys = keys.open_on(&segment, "keys", clock.clone())?;
            keys.hit(b"one", 1)?;
            keys.hit(b"two", 2)?;
        }
        let used = segment.used() as usize;
        drop(segment);
        // A file that holds no more than its records, to keep the corpus small.
        let mut bytes = fs::read(&path)?;
        bytes.truncate(used);
        bytes[64..72].copy_from_slice(&(used as u64).to_le_bytes());
        bytes.insert(0, 1);
        corpus("segment_file", name, &bytes)?;
    }

    let counter =
        Bucketed::options(minute, Duration::from_millis(200)).private_on(clock.clone())?;
    let mut saved = Vec::new();
    for n in 0..4 {
        counter.add(1 << (n * 10));
        clock.advance(second);
        saved.clear();
        counter.save(&mut saved)?;
        corpus("buckets_json", &format!("{n}"), &saved)?;
    }
    corpus("buckets_json", "null", b"[null]")?;
    corpus("buckets_json", "spaces", b" [ {\"Count\": 1, \"Timeint\": 8500000000} ] ")?;

    let clock = Manual::new(1_699_999_999_000_000_000);
    let exact = Exact::on(clock.clone(), minute)?;
    for n in 0..5 {
        exact.add(n);
        clock.advance(Duration::from_nanos(10u64.pow(n as u32)));
        saved.clear();
        exact.save(&mut saved)?;
        corpus("times_binary", &format!("{n}"), &saved)?;
    }
    Ok(())
}
