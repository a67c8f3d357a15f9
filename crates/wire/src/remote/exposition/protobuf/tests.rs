//! Tests of families in protobuf: native histograms, invalid families, and limits.

use std::format;
use std::string::String;
use std::vec;
use std::vec::Vec;

use super::*;

fn field(number: u8, body: &[u8]) -> Vec<u8> {
    [&[number << 3 | 2, body.len() as u8], body].concat()
}

fn double_field(number: u8, value: f64) -> Vec<u8> {
    [&[number << 3 | 1][..], &value.to_le_bytes()].concat()
}

/// Encodes a family with one metric of this value.
fn family(kind: u8, value: &[u8]) -> Vec<u8> {
    let body = [field(1, b"a"), vec![0x18, kind], field(4, value)].concat();
    [&[body.len() as u8], &body[..]].concat()
}

fn read(input: &[u8]) -> Result<String, Error> {
    let mut all = String::new();
    read_families(input, Limits::default(), |family| all += &format!("{family:?}\n"))?;
    Ok(all)
}

#[test]
fn native_histograms() {
    // Spans of two and one buckets with a gap; deltas 1, +2, -1 in two forms.
    let spans = [field(12, &[0x08, 1, 0x10, 2]), field(12, &[0x08, 4, 0x10, 1])].concat();
    let numbers = [0x08, 6, 0x28, 3, 0x38, 1];
    let packed = field(13, &[2, 4, 1]);
    let apart = [0x68, 2, 0x68, 4, 0x68, 1];
    for deltas in [&packed[..], &apart] {
        let histogram = [&numbers[..], &spans, deltas].concat();
        let shown = read(&family(4, &field(7, &histogram))).unwrap();
        let native = "native: Some(Native { schema: -2, zero_threshold: 0.0, zero_count: 1.0, \
            negative: [], positive: [(-1, 1.0), (0, 3.0), (3, 2.0)], exemplars: [] })";
        assert!(shown.contains(native), "{shown}");
        assert!(shown.contains("count: Some(6.0), sum: Some(0.0), buckets: []"), "{shown}");
    }
    let counts: Vec<u8> = [1.5_f64, 2.5, 3.5].iter().flat_map(|n| n.to_le_bytes()).collect();
    let floats = [&spans[..], &field(14, &counts), &double_field(4, 7.5)].concat();
    let shown = read(&family(5, &field(7, &floats))).unwrap();
    assert!(shown.contains("positive: [(-1, 1.5), (0, 2.5), (3, 3.5)]"), "{shown}");
    assert!(shown.contains("count: Some(7.5)"), "{shown}");
    // A span without buckets marks an empty histogram as native.
    let empty = field(12, &[0x08, 0, 0x10, 0]);
    let shown = read(&family(4, &field(7, &empty))).unwrap();
    assert!(shown.contains("native: Some("), "{shown}");
    assert!(read(&family(4, &field(7, &[]))).unwrap().contains("native: None"));
}

#[test]
fn wrong_families_are_refused() {
    let spans = |offset, length| field(12, &[0x08, offset, 0x10, length]);
    let native = |parts: &[Vec<u8>]| family(4, &field(7, &parts.concat()));
    let gauge = field(2, &double_field(1, 1.0));
    for (input, expected) in [
        (family(0, &gauge), "metrics with values of the family's type"),
        (family(6, &gauge), "the type of a family, 0 to 5"),
        (family(1, &[]), "the value of a metric"),
        (family(1, &[gauge.clone(), gauge.clone()].concat()), "one value of a metric"),
        (vec![2, 0x18, 1], "the name of a family"),
        (family(1, &[field(1, &field(2, b"x")), gauge.clone()].concat()), "the name of a label"),
        (
            family(1, &[label(b"x"), label(b"y"), label(b"x"), gauge.clone()].concat()),
            "each label once",
        ),
        (native(&[spans(0, 2), field(13, &[2])]), "spans with"),
        (native(&[spans(0, 1), field(13, &[2]), field(14, &[0; 8])]), "spans with"),
        (native(&[spans(0, 1), field(13, &[1])]), "differences of counts"),
        (native(&[spans(0, 1), spans(1, 1), field(13, &[2, 2])]), "spans in the order"),
        (
            native(&[field(12, &[0x08, 0xfe, 0xff, 0xff, 0xff, 0x0f, 0x10, 1]), field(13, &[2])]),
            "indices of buckets",
        ),
        (family(4, &field(7, &field(3, &double_field(2, f64::NAN)))), "a bound or quantile"),
    ] {
        let error = read(&input).unwrap_err();
        assert!(error.expected().starts_with(expected), "{error} {expected}");
        assert!(error.offset().unwrap() <= input.len() as u64, "{error}");
    }
    // Every prefix is incomplete, except the empty one.
    let whole = family(1, &[label(b"x"), gauge].concat());
    assert!(read(&whole).is_ok());
    for cut in 1..whole.len() {
        assert!(read(&whole[..cut]).unwrap_err().is_incomplete(), "{cut}");
    }
}

fn label(name: &[u8]) -> Vec<u8> {
    field(1, &[field(1, name), field(2, b"v")].concat())
}

#[test]
fn limits_are_kept() {
    let gauge = field(2, &double_field(1, 1.0));
    let input = family(1, &gauge);
    let read = |samples, bytes| {
        let limits = Limits { samples, bytes };
        read_families(&[&input[..], &input].concat(), limits, |_| ()).map_err(|e| e.is_too_large())
    };
    let length = input.len() - 1;
    assert_eq!(read(1, length), Ok(()));
    assert_eq!(read(0, length), Err(true));
    assert_eq!(read(1, length - 1), Err(true));
    let huge = [0xff, 0xff, 0xff, 0xff, 0x7f];
    assert!(read_families(&huge, Limits::default(), |_| ()).unwrap_err().is_too_large());
}

#[test]
fn native_histograms_are_as_short_as_the_limit() {
    let zeros = [0; 6];
    let spans: Vec<u8> = (0..6).flat_map(|_| field(12, &[0x08, 0, 0x10, 0])).collect();
    for body in [
        field(13, &zeros),
        field(10, &zeros),
        (0..6).flat_map(|_| [0x68, 0]).collect(),
        field(14, &[0; 48]),
        (0..6).flat_map(|_| double_field(11, 0.0)).collect(),
        spans,
    ] {
        let input = family(4, &field(7, &body));
        let limits = Limits { samples: 5, bytes: 200 };
        let error = read_families(&input, limits, |_| ()).unwrap_err();
        assert!(error.expected().contains("fewer"), "{error} {body:?}");
    }
    // Four samples remain for the buckets.
    let body = [field(12, &[0x08, 0, 0x10, 4]), field(13, &zeros[..4])].concat();
    let input = family(4, &field(7, &body));
    for (samples, fits) in [(5, true), (4, false)] {
        let result = read_families(&input, Limits { samples, bytes: 200 }, |_| ());
        assert_eq!(result.is_ok(), fits, "{samples}");
    }
}

#[test]
fn a_bound_of_minus_zero_is_zero() {
    let bucket = field(3, &[&[0x08, 1][..], &double_field(2, -0.0)].concat());
    let shown = read(&family(4, &field(7, &bucket))).unwrap();
    assert!(shown.contains("upper_bound: 0.0"), "{shown}");
}
