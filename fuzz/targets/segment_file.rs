//! Opens a file of any bytes as a segment, and whatever counters it claims to hold.
//!
//! The first byte says whether the checksum of the header is made right, so that what lies behind
//! it is reached. A file that is refused must stay as it was.

#![no_main]

use std::io::Write;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use quipu_segment::Segment;
use quipu_window::{Bucketed, Keyed, Window};

fuzz_target!(|input: &[u8]| {
    let Some((&mode, bytes)) = input.split_first() else { return };
    let mut bytes = bytes.to_vec();
    if mode & 1 == 1 && bytes.len() >= 56 {
        let sum = bytes[..48].iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        bytes[48..56].copy_from_slice(&sum.to_le_bytes());
    }
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(&bytes).expect("a small file");
    let segment = match Segment::open_or_create(file.path()) {
        Ok(segment) => segment,
        Err(error) => {
            assert!(error.to_string().contains(&file.path().display().to_string()));
            assert_eq!(std::fs::read(file.path()).expect("it is still there"), bytes);
            return;
        }
    };
    for record in segment.records() {
        let record = record.expect("opening has checked it");
        assert!(record.cells().len() as u64 * 8 <= segment.used());
    }
    let (minute, second) = (Duration::from_secs(60), Duration::from_secs(1));
    if let Ok(counter) = Bucketed::options(minute, second).tickets().open(&segment, "requests") {
        counter.add(1);
        counter.count();
        counter.buckets_over(counter.own());
    }
    if let Ok(keys) = Keyed::options(minute, second, 3).key_bytes(16).open(&segment, "keys") {
        for key in [&b"a"[..], b"one", b"two", b"three"] {
            keys.hit(key, 1).expect("short enough");
        }
        assert!(keys.len() <= 3 && keys.top(9).len() == keys.len());
    }
});
