//! Reads any bytes as a remote write request, 1.0 or 2.0 by the first byte, and checks what the
//! reader promises of it.

#![no_main]

use libfuzzer_sys::fuzz_target;
use quipu_wire::remote::{Entry, HistogramSample, WriteReader, WriteVersion};

fuzz_target!(|input: &[u8]| {
    let Some((&first, bytes)) = input.split_first() else { return };
    let version = if first & 1 == 0 { WriteVersion::One } else { WriteVersion::Two };
    let Ok(mut reader) = WriteReader::new(version, bytes) else { return };
    let mut position = 0;
    while let Some(entry) = reader.next() {
        let series = match entry {
            Ok(Entry::Series(series)) => series,
            Ok(_) => continue,
            Err(error) => {
                assert!(error.offset().is_some_and(|offset| offset <= bytes.len() as u64));
                assert!(reader.next().is_none());
                return;
            }
        };
        if series.fault.is_none() {
            assert!(!series.labels.is_empty());
            assert!(series.labels.windows(2).all(|pair| pair[0].0 < pair[1].0));
        }
        for histogram in series.histograms().flatten() {
            check(&histogram);
        }
        assert_eq!(series.exemplars().len(), series.exemplars().count());
        assert!(reader.position() > position);
        position = reader.position();
    }
    assert_eq!(reader.position(), bytes.len());
});

fn check(histogram: &HistogramSample<'_>) {
    for side in [histogram.negative, histogram.positive] {
        assert!(side.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert!(side.iter().all(|bucket| bucket.1 >= 0.0));
    }
    assert!(histogram.count >= 0.0 && histogram.zero_count >= 0.0);
    if histogram.schema == HistogramSample::CUSTOM {
        assert!(histogram.positive.len() <= histogram.custom_bounds.len() + 1);
    } else {
        assert!((-4..=8).contains(&histogram.schema));
    }
}
