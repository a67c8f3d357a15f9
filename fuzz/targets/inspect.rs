//! Inspects arbitrary bytes as a segment file.
//!
//! The first byte selects whether to correct the checksum of the header. This allows any sizes in
//! the header.

#![no_main]

use libfuzzer_sys::fuzz_target;
use quipu_segment::inspect::Inspection;

fuzz_target!(|input: &[u8]| {
    let Some((&mode, bytes)) = input.split_first() else { return };
    let mut bytes = bytes.to_vec();
    if mode & 1 == 1 && bytes.len() >= 56 {
        let sum = quipu_segment::hash::fnv1a(&bytes[..48]);
        bytes[48..56].copy_from_slice(&sum.to_le_bytes());
    }
    let length = bytes.len() as u64;
    let inspection = Inspection::of_bytes(bytes);
    let report = inspection.report();
    report.other_bytes();
    let mut ticks = 0;
    let replayed = inspection.history(0..=u64::MAX, |tick| {
        ticks += 1;
        assert!(tick.series().all(|(_, cells)| !cells.is_empty()));
    });
    assert_eq!(replayed.map_or(0, |replayed| replayed.ticks), ticks);
    for family in &report.families {
        let mut series = 0;
        inspection.series(family, |seen| {
            assert_eq!(seen.cells.len(), usize::from(family.schema.cells));
            assert!(seen.is_overflow || seen.labels.len() == family.schema.labels.len());
            series += u64::from(!seen.is_overflow);
        });
        // Each of these takes at least a word.
        assert!(series <= length / 8);
        assert!(series >= family.series + family.hidden);
    }
});
