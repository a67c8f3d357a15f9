//! Documents from other libraries, and some that no library would write.

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use quipu_arena::Arena;

use super::Bson;
use crate::message::{BatchTimer, Counter, Gauge, Message, Metric, MetricType, MetricUnion};

/// Returns a document of elements.
fn document(elements: &[&[u8]]) -> Vec<u8> {
    let elements = elements.concat();
    let len = (elements.len() as u32 + 5).to_le_bytes();
    [&len[..], &elements, &[0]].concat()
}

fn counter(elements: &[&[u8]]) -> Result<(Vec<u8>, i64), (bool, u64, &'static str)> {
    let bytes = document(elements);
    let mut arena = Arena::new();
    match Counter::decode::<Bson>(&bytes, &arena.as_scope()) {
        Ok(counter) => Ok((counter.id.to_vec(), counter.value)),
        Err(error) => Err((error.is_incomplete(), error.offset().unwrap(), error.expected())),
    }
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        text.chars().filter_map(|digit| Some(digit.to_digit(16)? as u8)).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

const ID: &[u8] = b"\x05id\0\x01\0\0\0\0a";

/// A document of mgo with an element of each kind, an id of subtype 2, and a double as the value.
#[test]
fn skips_all_kinds() {
    let bytes = unhex(
        "3b01000001646f75626c6500000000000000f83f027465787400040000006162630003646f63001400000003\
         61000c000000106200010000000000046c697374001d00000010300001000000023100020000006100033200\
         0500000000000562696e00030000008078797a06756e64656600076f6964000102030405060708090a0b0c08\
         626f6f6c0001096461746500e8030000000000000a6e696c000b726500610069000c70747200030000006e73\
         000102030405060708090a0b0c0d6a73000200000078000e73796d000200000073000f73636f706500160000\
         000200000078000c0000001061000100000000106933320007000000117473000500000000000000126936340\
         000000000000100007f6d617800ff6d696e000176616c7565000000000000001c40056964000700000002030\
         000006f6c6400",
    );
    let mut arena = Arena::new();
    let scope = arena.as_scope();
    let counter = Counter::decode::<Bson>(&bytes, &scope).unwrap();
    assert_eq!(counter, Counter { id: b"old", value: 7 });
    let bytes = unhex(
        "3200000013646563000f000000000000000000000000003e30026964000500000074657874001076616c7565\
         00fdffffff00",
    );
    let counter = Counter::decode::<Bson>(&bytes, &scope).unwrap();
    assert_eq!(counter, Counter { id: b"text", value: -3 });
}

#[test]
fn takes_any_order_and_the_last_of_a_name() {
    let value = |number: u8| [&b"\x12value\0"[..], &[number], &[0; 7]].concat();
    assert_eq!(counter(&[&value(1), ID, &value(2)]), Ok((b"a".to_vec(), 2)));
    assert_eq!(counter(&[]), Ok((vec![], 0)));
    assert_eq!(counter(&[b"\x0aid\0", b"\x0avalue\0"]), Ok((vec![], 0)));
    assert_eq!(counter(&[b"\x07id\0abcdefghijkl"]), Ok((b"abcdefghijkl".to_vec(), 0)));
}

#[test]
fn takes_numbers_of_other_kinds_when_they_are_the_same() {
    let double = |value: f64| [&b"\x01value\0"[..], &value.to_le_bytes()].concat();
    for value in [0.0, -1.0, 9_007_199_254_740_993.0, -9_223_372_036_854_775_808.0] {
        assert_eq!(counter(&[&double(value)]).unwrap().1 as f64, value);
    }
    for value in [0.5, f64::NAN, f64::INFINITY, 9_223_372_036_854_775_808.0] {
        assert_eq!(
            counter(&[&double(value)]).unwrap_err().2,
            "a double that is a whole number of 64 bits"
        );
    }
    assert_eq!(counter(&[b"\x08value\0\x01"]).unwrap().1, 1);
    assert_eq!(counter(&[b"\x10value\0\xfe\xff\xff\xff"]).unwrap().1, -2);

    let mut arena = Arena::new();
    let scope = arena.as_scope();
    let gauge = |number: i64| {
        let bytes = document(&[&b"\x12value\0"[..], &number.to_le_bytes()]);
        Gauge::decode::<Bson>(&bytes, &scope).map(|gauge| gauge.value)
    };
    assert_eq!(gauge(1 << 60).unwrap(), (1_u64 << 60) as f64);
    assert!(gauge((1 << 60) + 1).is_err());
    assert!(gauge(i64::MAX).is_err());
    let bytes = document(&[b"\x01type\0\0\0\0\0\0\0\xf0\xbf"]);
    let union = MetricUnion::decode::<Bson>(&bytes, &scope).unwrap();
    assert_eq!(union.metric_type, MetricType(-1));
    let bytes = document(&[b"\x10type\0\x80\0\0\0"]);
    assert_eq!(MetricUnion::decode::<Bson>(&bytes, &scope).unwrap_err().offset(), Some(10));
}

#[test]
fn lists_of_any_length() {
    for len in (0..250).chain([999, 1_000, 1_001, 9_999, 10_001, 100_001, 1_000_001]) {
        let values: Vec<f64> = (0..len).map(f64::from).collect();
        let message = BatchTimer { id: b"id", values: &values };
        let mut bytes = vec![];
        message.encode::<Bson>(&mut bytes).unwrap();
        let mut arena = Arena::new();
        assert!(BatchTimer::decode::<Bson>(&bytes, &arena.as_scope()).unwrap() == message);
        let name = std::format!("\x01{}\0", len.max(1) - 1);
        let last = bytes.len() - (name.len() + 10);
        assert!(len == 0 || bytes[last..].starts_with(name.as_bytes()));
    }
}

#[test]
fn lists_of_any_names_and_kinds() {
    let list =
        document(&[b"\x10\0\x07\0\0\0", b"\x01a long name\0\0\0\0\0\0\0\xf0\x3f", b"\x0a9\0"]);
    let bytes = document(&[b"\x04values\0", &list, ID]);
    let mut arena = Arena::new();
    let scope = arena.as_scope();
    let timer = BatchTimer::decode::<Bson>(&bytes, &scope).unwrap();
    assert_eq!(timer, BatchTimer { id: b"a", values: &[7.0, 1.0, 0.0] });
    // Has the length of a usual list, but other names.
    let list = document(&[b"\x011\0\0\0\0\0\0\0\xf0\x3f", b"\x01x\0\0\0\0\0\0\0\0\x40"]);
    let bytes = document(&[b"\x04values\0", &list]);
    let timer = BatchTimer::decode::<Bson>(&bytes, &scope).unwrap();
    assert_eq!(timer.values, [1.0, 2.0]);
    let bytes = document(&[b"\x04values\0", &document(&[b"\x020\0\x01\0\0\0\0"])]);
    assert!(BatchTimer::decode::<Bson>(&bytes, &scope).is_err());
}

#[test]
fn lengths_have_to_agree() {
    let faults: [(&[u8], u64); 9] = [
        // Bytes, strings and lists that are longer than their document.
        (b"\x05id\0\x09\0\0\0\0a", 13),
        (b"\x05id\0\xff\xff\xff\xffa", 8),
        (b"\x02id\0\x09\0\0\0a\0", 12),
        (b"\x02id\0\x01\0\0\0a\0", 8),
        (b"\x03x\0\x09\0\0\0\0", 11),
        (b"\x03x\0\x05\0\0\0\x01", 11),
        (b"\x04x\0\x04\0\0\0\0", 7),
        // The length of subtype 2, which appears twice.
        (b"\x05id\0\x05\0\0\0\x02\x02\0\0\0a", 13),
        // A name without an end.
        (b"\x10abc", 5),
    ];
    for (element, offset) in faults {
        let (is_incomplete, at, expected) = counter(&[element]).unwrap_err();
        assert!(!is_incomplete);
        assert_eq!(at, offset, "{element:?} {expected}");
    }
    let mut arena = Arena::new();
    let mut bytes = document(&[ID]);
    bytes[0] -= 1;
    let error = Counter::decode::<Bson>(&bytes, &arena.as_scope()).unwrap_err();
    assert_eq!(error.expected(), "a zero at the end of a document");
    bytes[0] += 2;
    let error = Counter::decode::<Bson>(&bytes, &arena.as_scope()).unwrap_err();
    assert!(error.is_incomplete());
    for len in [0, 4, 0x8000_0000, u32::MAX] {
        let bytes = [&len.to_le_bytes()[..], b"\0"].concat();
        let error = Counter::decode::<Bson>(&bytes, &arena.as_scope()).unwrap_err();
        assert!(!error.is_incomplete());
    }
}

#[test]
fn truncated_messages_are_incomplete() {
    let timer = &[1.0, 2.0];
    let messages: [Message<'_>; 4] = [
        Counter { id: b"id", value: -1 }.into(),
        BatchTimer { id: b"id", values: timer }.into(),
        Gauge { id: b"id", value: 0.5 }.into(),
        MetricUnion { metric_type: MetricType(3), id: b"id", counter: 5, timer, gauge: 0.5 }.into(),
    ];
    let mut arena = Arena::new();
    for message in messages {
        let mut bytes = vec![];
        message.encode::<Bson>(&mut bytes).unwrap();
        for len in 0..bytes.len() {
            let read = Message::decode::<Bson>(message.kind(), &bytes[..len], &arena.as_scope());
            assert!(read.unwrap_err().is_incomplete());
        }
        let text: String = std::format!("{message:?}");
        let read = Message::decode::<Bson>(message.kind(), &bytes, &arena.as_scope()).unwrap();
        assert_eq!(std::format!("{read:?}"), text);
    }
}
