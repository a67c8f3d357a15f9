//! Reads arbitrary bytes as a file of a queue, unchanged and with correct checksums. The records
//! must be the same after they are written and read again.

#![no_main]

#[path = "queue_coding.rs"]
mod coding;
#[path = "../fixed_seed.rs"]
mod fixed_seed;
#[path = "../../crates/outputs/src/queue/records.rs"]
mod records;

use libfuzzer_sys::fuzz_target;
use records::{DONE, HEADER, Kind, PREFIX, Records};

fuzz_target!(|input: &[u8]| {
    read(input);
    let mut mended = input.to_vec();
    mend(&mut mended);
    read(&mended);
});

fn read(bytes: &[u8]) {
    if records::kind(bytes) != Kind::Queue {
        return;
    }
    let mut records = Records::new(bytes, HEADER.len());
    let mut again = bytes[..HEADER.len()].to_vec();
    let mut expected = bytes.to_vec();
    for (at, record) in records.by_ref() {
        assert_eq!(at, again.len());
        record.encode(&mut again).expect("what was read can be written");
        if record.is_done {
            expected[at..at + 4].copy_from_slice(&DONE);
        }
    }
    assert_eq!(records.end(), again.len());
    assert_eq!(again, expected[..records.end()]);
    // After a damaged part, there are again only whole records.
    let mut end = records.end();
    while let Some(skipped) = records.skip_damaged() {
        assert!(skipped.bytes > 0 && records.end() == end + skipped.bytes);
        assert!(records.by_ref().count() > 0);
        end = records.end();
    }
    assert_eq!(records.end(), end);
}

/// Inserts correct checksums at the positions given by the lengths.
fn mend(bytes: &mut [u8]) {
    let mut at = HEADER.len();
    while let Some(prefix) = bytes.get(at..at + PREFIX) {
        let length = u32::from_le_bytes(prefix[8..12].try_into().expect("four bytes"));
        let end = at + PREFIX + length as usize;
        let Some(checked) = bytes.get(at + 8..end) else { return };
        let crc = crc32fast::hash(checked);
        bytes[at + 4..at + 8].copy_from_slice(&crc.to_le_bytes());
        at = end;
    }
}
