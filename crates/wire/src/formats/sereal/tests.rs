//! Documents from other libraries and versions, and some that no library would write.

use alloc::vec;
use alloc::vec::Vec;

use quipu_arena::Arena;

use super::Sereal;
use crate::error::Error;
use crate::message::{BatchTimer, Counter, Gauge, Message, Metric, MetricType, MetricUnion};

fn with_counter<T>(bytes: &[u8], f: impl FnOnce(Result<Counter<'_>, Error>) -> T) -> T {
    let mut arena = Arena::new();
    f(Counter::decode::<Sereal>(bytes, &arena.as_scope()))
}

/// Returns the counter in a body of version 3.
fn counter(body: &[u8]) -> Result<(Vec<u8>, i64), Error> {
    let bytes = [b"=\xf3rl\x03\0", body].concat();
    with_counter(&bytes, |counter| counter.map(|counter| (counter.id.to_vec(), counter.value)))
}

fn encoded(message: Message<'_>) -> Vec<u8> {
    let mut bytes = vec![];
    message.encode::<Sereal>(&mut bytes).unwrap();
    bytes
}

#[test]
fn ids_of_any_bytes_and_length() {
    let mut state = 1_u64;
    for len in (0..70).chain([1_000]) {
        // A byte takes 1 byte below 16, 2 below 128, otherwise 3. In kinds 0 and 1, all bytes take
        // 2. Kind 2 mixes all sizes, kind 3 contains a byte that takes 3, kind 4 a byte that takes
        // 1.
        for kind in 0..5 {
            let mut id: Vec<u8> = (0..len)
                .map(|index: usize| {
                    state =
                        state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(index as u64);
                    let byte = (state >> 56) as u8;
                    if kind == 2 { byte } else { byte % 112 + 16 }
                })
                .collect();
            if let Some(byte) = id.get_mut((state >> 32) as usize % len.max(1)) {
                match kind {
                    3 => *byte |= 128,
                    4 => *byte &= 15,
                    _ => {}
                }
            }
            let mut expected = vec![];
            for byte in &id {
                match byte {
                    0..=15 => expected.push(*byte),
                    16..=127 => expected.extend([0x20, *byte]),
                    128.. => expected.extend([0x20, *byte, 1]),
                }
            }
            let bytes = encoded(Counter { id: &id, value: 0 }.into());
            let end = bytes.len() - 8;
            assert_eq!(bytes[end - expected.len()..end], expected);
            with_counter(&bytes, |counter| assert_eq!(counter.unwrap().id, id));
        }
    }
}

#[test]
fn integers_of_any_size() {
    for bits in 0..64 {
        for value in [1_i64 << bits, !(1 << bits), (1_i64 << bits).wrapping_sub(1), 16, -17] {
            let bytes = encoded(Counter { id: b"", value }.into());
            with_counter(&bytes, |counter| assert_eq!(counter.unwrap().value, value));
        }
    }
}

#[test]
fn keys_in_any_order_and_any_form() {
    let a1 = Ok((b"a".to_vec(), 1));
    // Values first; an id as bytes, short or long, and as a string; keys as bytes, in lower case.
    assert_eq!(counter(b",\x67Counter*\x02'\x05Value\x01'\x02ID+\x01\x20a"), a1);
    assert_eq!(counter(b",\x67Counter*\x02\x65Value\x01\x62ID\x61a"), a1);
    assert_eq!(counter(b",\x67Counter*\x02&\x05value\x01&\x02ID&\x01a"), a1);
    assert_eq!(counter(b"*\x02&\x05Value\x01&\x02iD'\x01a"), a1);
    // The last value of a key wins. Undefined is zero.
    assert_eq!(counter(b"*\x03&\x05Value\x05&\x02ID'\x01a&\x05Value\x01"), a1);
    assert_eq!(counter(b"*\x02'\x05Value\x25'\x02ID\x39"), Ok((vec![], 0)));
    // References to a hash and to a list, in both forms; padding; tags that are tracked.
    assert_eq!(counter(b"(\xaa\x02'\x05Value\x01'\x02ID(\xab\x01\xa0a"), a1);
    assert_eq!(counter(b"\x52'\x05Value\x01'\x02ID\x41\x20a"), a1);
    assert_eq!(counter(b"???,??\x67Counter?0(*\x02?'\x05Value?\xbf\x01'\x02ID+\x01?\x20a"), a1);
}

#[test]
fn numbers_of_other_forms_when_they_are_the_same() {
    let value = |item: &[u8]| counter(&[b"*\x01'\x05Value", item].concat()).map(|(_, value)| value);
    assert_eq!(value(b"\x20\xff\x01"), Ok(255));
    assert_eq!(value(b"\x21\x03"), Ok(-2));
    assert_eq!(value(b"\x10"), Ok(-16));
    assert_eq!(value(b"\x22\0\0\x80\x3f"), Ok(1));
    assert_eq!(value(b"\x23\0\0\0\0\0\0\xf0\xbf"), Ok(-1));
    for item in [
        &b"\x20\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"[..],
        b"\x22\0\0\0\x3f",
        b"\x23\0\0\0\0\0\0\xe0\x43",
        b"\x61a",
        b"+\0",
        b"\x3b",
    ] {
        let error = value(item).unwrap_err();
        assert_eq!((error.offset(), error.is_incomplete()), (Some(15), false), "{error}");
    }
    let gauge = |item: &[u8]| {
        let bytes = [b"=\xf3rl\x03\0*\x01'\x05Value", item].concat();
        let mut arena = Arena::new();
        Gauge::decode::<Sereal>(&bytes, &arena.as_scope()).map(|gauge| gauge.value)
    };
    assert_eq!(gauge(b"\x05"), Ok(5.0));
    assert_eq!(gauge(b"\x21\x03"), Ok(-2.0));
    assert_eq!(gauge(b"\x22\0\0\xc0\x3f"), Ok(1.5));
    assert_eq!(gauge(b"\x20\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01"), Ok((1_u64 << 63) as f64));
    let error = gauge(b"\x20\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01").unwrap_err();
    assert_eq!(error.offset(), Some(15));
    // A byte of an id is 0 to 255.
    assert_eq!(counter(b"*\x01'\x02ID+\x01\x20\x80\x02").unwrap_err().offset(), Some(14));
    assert_eq!(counter(b"*\x01'\x02ID+\x01\x1f").unwrap_err().offset(), Some(14));
}

#[test]
fn headers_of_all_versions() {
    let body = b"*\x02'\x05Value\x01'\x02ID'\x01a";
    let read = |header: &[u8]| {
        with_counter(&[header, body].concat(), |counter| counter.map(|counter| counter.value))
    };
    for header in [&b"=srl\x01\0"[..], b"=srl\x02\0", b"=\xf3rl\x04\0", b"=\xf3rl\x05\x03\x01\x61u"]
    {
        assert_eq!(read(header), Ok(1));
    }
    for (header, offset, expected) in [
        (&b"=\xf3rl\x23\0"[..], 4, "Snappy"),
        (b"=srl\x11\0", 4, "Snappy"),
        (b"=\xf3rl\x33\0", 4, "zlib"),
        (b"=\xf3rl\x44\0", 4, "Zstandard"),
        (b"=\xf3rl\x53\0", 4, "not compressed"),
        (b"=\xf3rl\x06\0", 4, "version from 1 to 5"),
        (b"=srl\x03\0", 0, "magic"),
        (b"=\xf3rl\x02\0", 0, "magic"),
        (b"=\xc3\xb3rl\x03\0", 0, "UTF-8"),
        (b"=sql\x03\0", 0, "magic"),
    ] {
        let error = read(header).unwrap_err();
        assert_eq!((error.offset(), error.is_incomplete()), (Some(offset), false), "{error}");
        assert!(error.expected().contains(expected), "{error}");
    }
}

#[test]
fn copies_of_values_and_keys() {
    // The offsets point to "a", the key and its value. They count from 1, or in version 1 from the
    // header, which is 6 bytes long.
    for (header, zero) in [(b"=srl\x01\0", 5), (b"=srl\x02\0", 0), (b"=\xf3rl\x03\0", 0)] {
        let bytes = [
            &header[..],
            b"*\x04'\x02no\x61a'\x02ID/",
            &[7 + zero],
            b"'\x05Value\x08/",
            &[15 + zero],
            b".",
            &[22 + zero],
        ]
        .concat();
        with_counter(&bytes, |read| assert_eq!(read, Ok(Counter { id: b"a", value: 8 })));
    }
    // A copied class, and a class that was used before.
    let a1 = Ok((b"a".to_vec(), 1));
    assert_eq!(counter(b"(,\x61C*\x02'\x05Value,/\x03\x01'\x02ID-\x03\x61a"), a1);
}

#[test]
fn skips_what_it_does_not_know() {
    let items: [&[u8]; 24] = [
        b"\x05",
        b"\x15",
        b"\x20\xff\x01",
        b"\x21\x03",
        b"\x22abcd",
        b"\x23abcdefgh",
        b"\x24abcdefghijklmnop",
        b"\x38abcdefghijklmnop",
        b"\x25",
        b"\x39",
        b"\x3a",
        b"\x3b",
        b"\x34",
        b"\x35",
        b"&\x02ab",
        b"'\x02ab",
        b"\x62ab",
        b"(+\x02\x01+\x01*\x01\x61a\x05",
        b"\x42\x01\x51\x61a(\x40",
        b",\x61C(*\0",
        b"2\x61C(+\x01\x61a",
        b"1\x61a\x61i",
        b"0(\x05",
        b"??\x05",
    ];
    for item in items {
        let body = [b"*\x03'\x01x", item, b"'\x05Value\x01'\x02ID'\x01a"].concat();
        assert_eq!(counter(&body), Ok((b"a".to_vec(), 1)), "{item:?}");
    }
    // Back references to the first key, and invalid tags.
    for tag in *b")./" {
        let body = [&b"*\x02'\x01x"[..], &[tag, 3], b"'\x05Value\x01"].concat();
        assert_eq!(counter(&body), Ok((vec![], 1)));
        let body = [&b"*\x02'\x01x"[..], &[tag, 6], b"'\x05Value\x01"].concat();
        assert_eq!(counter(&body).unwrap_err().offset(), Some(12));
    }
    for tag in *b"-3" {
        let body = [&b"*\x02'\x01x"[..], &[tag, 3], b"*\0'\x05Value\x01"].concat();
        assert_eq!(counter(&body), Ok((vec![], 1)));
    }
    for tag in *b"67<=>" {
        let body = [&b"*\x02'\x01x"[..], &[tag], b"'\x05Value\x01"].concat();
        assert_eq!(counter(&body).unwrap_err().offset(), Some(11));
    }
    // Deep nesting.
    let body = [b"*\x02'\x01x", &[b'('; 100_000][..], b"\x01'\x05Value\x01"].concat();
    assert_eq!(counter(&body), Ok((vec![], 1)));
}

#[test]
fn copies_are_bounded() {
    // A copy of a copy, of itself, of a later item, and of the header.
    assert!(counter(b"*\x02'\x01x/\x03'\x05Value/\x06").is_err());
    assert!(counter(b"*\x01'\x05Value/\x0a").is_err());
    assert!(counter(b"*\x01'\x05Value/\x09").is_err());
    assert!(counter(b"*\x01'\x05Value/\x00").is_err());
    // An id that is copied repeatedly.
    let mut body = b"*\xe9\x07'\x01x&\x90\x4e".to_vec();
    body.extend([b'a'; 10_000]);
    for _ in 0..1_000 {
        body.extend(b"'\x02ID/\x07");
    }
    assert_eq!(counter(&body).unwrap_err().expected(), "fewer copies");
}

#[test]
fn truncated_messages_are_incomplete() {
    let id = &b"an id of more than sixteen bytes, and \x01 and \xff"[..];
    let timer = &[1.0, 2.0];
    let messages: [Message<'_>; 4] = [
        Counter { id, value: -1_000 }.into(),
        BatchTimer { id, values: timer }.into(),
        Gauge { id, value: 0.5 }.into(),
        MetricUnion { metric_type: MetricType(3), id, counter: 500, timer, gauge: 0.5 }.into(),
    ];
    let mut arena = Arena::new();
    for message in messages {
        let bytes = encoded(message);
        for len in 0..bytes.len() {
            let read = Message::decode::<Sereal>(message.kind(), &bytes[..len], &arena.as_scope());
            assert!(read.unwrap_err().is_incomplete(), "{len}");
        }
    }
}
