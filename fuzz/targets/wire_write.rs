//! Reads any bytes as a remote write request, 1.0 or 2.0 by the first byte, and checks the reader's
//! guarantees.

#![no_main]

use libfuzzer_sys::fuzz_target;
use quipu_wire::remote::{
    Label,
    write::{Entry, HistogramSample, Sample, WriteReader, WriteVersion},
};

fuzz_target!(|input: &[u8]| {
    let Some((&first, bytes)) = input.split_first() else { return };
    let version = if first & 1 == 0 { WriteVersion::One } else { WriteVersion::Two };
    let Ok(mut reader) = WriteReader::new(version, bytes) else { return };
    let mut position = 0;
    let mut all = Vec::new();
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
        all.push((series.encoded, series.labels.to_vec(), series.samples.to_vec()));
        assert!(reader.position() > position);
        position = reader.position();
    }
    assert_eq!(reader.position(), bytes.len());
    if let Some(known) = all.iter().find_map(|series| series.0.filter(|known| !known.is_empty())) {
        read_known(bytes, known, &all);
    }
});

/// A series as read: the bytes of its labels, its labels, and its samples.
type Read<'a> = (Option<&'a [u8]>, Vec<Label<'a>>, Vec<Sample>);

/// Reads a request of version 1.0 again, and recognizes one of its series.
fn read_known(bytes: &[u8], known: &[u8], all: &[Read<'_>]) {
    let Ok(mut reader) = WriteReader::new(WriteVersion::One, bytes) else { return };
    let mut all = all.iter();
    loop {
        let find = |series: &[u8]| series.starts_with(known).then_some((known.len(), 7));
        match reader.next_known(find) {
            None => break,
            Some(Ok(Entry::Known { series, samples, .. })) => {
                let (encoded, labels, expected) = all.next().expect("it was read before");
                assert_eq!((series, *encoded), (7, Some(known)));
                assert!(is_same(samples, expected));
                let again = reader.reread();
                let Some(Ok(Entry::Series(again))) = again else { panic!("{again:?}") };
                assert!(again.labels == labels && is_same(again.samples, expected));
            }
            Some(Ok(Entry::Series(series))) => {
                let (_, labels, expected) = all.next().expect("it was read before");
                assert!(series.labels == labels && is_same(series.samples, expected));
            }
            Some(Ok(_)) => {}
            Some(Err(error)) => panic!("{error}"),
        }
    }
    assert!(all.next().is_none());
}

/// Returns whether the samples are equal, even if they are NaN.
fn is_same(samples: &[Sample], others: &[Sample]) -> bool {
    let bits = |sample: &Sample| (sample.value.to_bits(), sample.timestamp_ms, sample.start_ms);
    samples.iter().map(bits).eq(others.iter().map(bits))
}

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
