//! Streams from Go's library, other types, and bytes that no library would write.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use quipu_arena::Arena;

use crate::message::{BatchTimer, Counter, Gauge, Kind, Message, Metric, MetricType, MetricUnion};
use crate::{Decoder, Encoder, Framing, Gob};

const ID: &[u8] = b"name=bulbasaur,trainer=ash,type=grass";

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        text.chars().filter_map(|digit| Some(digit.to_digit(16)? as u8)).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// Returns all messages of a stream that arrives in pieces.
fn read_all(kind: Kind, bytes: &[u8], piece: usize) -> Vec<String> {
    let mut decoder = Decoder::<Gob>::new(kind, Framing::Own);
    let mut arena = Arena::new();
    let mut all = vec![];
    for piece in bytes.chunks(piece) {
        decoder.push(piece);
        while let Some(message) = decoder.next(&arena.as_scope()).unwrap() {
            all.push(std::format!("{message:?}"));
        }
    }
    decoder.end();
    while let Some(message) = decoder.next(&arena.as_scope()).unwrap() {
        all.push(std::format!("{message:?}"));
    }
    decoder.finish().unwrap();
    all
}

fn counters(text: &str) -> Vec<(Vec<u8>, i64)> {
    let bytes = unhex(text);
    let mut decoder = Decoder::<Gob>::new(Kind::Counter, Framing::Own);
    let mut arena = Arena::new();
    let mut all = vec![];
    decoder.push(&bytes);
    while let Some(message) = decoder.next(&arena.as_scope()).unwrap() {
        let Message::Counter(Counter { id, value }) = message else { panic!() };
        all.push((id.to_vec(), value));
    }
    decoder.finish().unwrap();
    for piece in [1, 2, 7, 50] {
        assert_eq!(read_all(Kind::Counter, &bytes, piece).len(), all.len());
    }
    all
}

fn examples() -> [Message<'static>; 4] {
    let timer = &[1.0, 2.0, 3.0, 4.0, 5.0];
    [
        Counter { id: ID, value: 100 }.into(),
        BatchTimer { id: ID, values: timer }.into(),
        Gauge { id: ID, value: 100.0 }.into(),
        MetricUnion { metric_type: MetricType(2), id: ID, counter: 0, timer, gauge: 0.0 }.into(),
    ]
}

/// Checks the second of two messages against the bytes from Go's library.
#[test]
fn a_stream_has_definitions_once() {
    let second = [
        "2dff8001256e616d653d62756c6261736175722c747261696e65723d6173682c747970653d677261737301ff\
         c800",
        "39ff8201256e616d653d62756c6261736175722c747261696e65723d6173682c747970653d67726173730105\
         fef03f40fe0840fe1040fe144000",
        "2eff8601256e616d653d62756c6261736175722c747261696e65723d6173682c747970653d677261737301fe\
         594000",
        "3bff88010401256e616d653d62756c6261736175722c747261696e65723d6173682c747970653d6772617373\
         0205fef03f40fe0840fe1040fe144000",
    ];
    for (message, second) in examples().iter().zip(second) {
        let mut encoder = Encoder::<Gob>::new(Framing::Own);
        let mut out = vec![];
        message.encode::<Gob>(&mut out).unwrap();
        let (mut stream, mut expected) = (vec![], out.clone());
        for _ in 0..3 {
            encoder.append(message, &mut stream).unwrap();
            assert_eq!(stream, expected);
            expected.extend(unhex(second));
        }
        for piece in [1, 3, 1000] {
            let read = read_all(message.kind(), &stream, piece);
            assert_eq!(read, [(); 3].map(|()| std::format!("{message:?}")));
        }
    }
}

#[test]
fn second_messages_of_the_vectors() {
    // Read at run time, because the published crate does not contain the vectors.
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/vectors/random.tsv.zst");
    let text = zstd::decode_all(&std::fs::read(path).unwrap()[..]).unwrap();
    let text = String::from_utf8(text).unwrap();
    let rows =
        |row| text.lines().filter_map(move |line| line.strip_prefix(row)?.strip_prefix('\t'));
    let mut seen = 0;
    let second: BTreeMap<_, _> =
        rows("GobSecond").map(|line| line.rsplit_once('\t').unwrap()).collect();
    for line in rows("Gob") {
        let (message, first) = line.rsplit_once('\t').unwrap();
        // One long id differs from row to row.
        let Some(second) = second.get(message) else { continue };
        let kind =
            Kind::ALL.iter().copied().find(|kind| message.starts_with(kind.as_str())).unwrap();
        let (first, second) = (unhex(first), unhex(second));
        let read = read_all(kind, &[&first[..], &second].concat(), 1 << 20);
        assert!(read.len() == 2 && read[0] == read[1]);
        let mut arena = Arena::new();
        let message = Message::decode::<Gob>(kind, &first, &arena.as_scope()).unwrap();
        let mut encoder = Encoder::<Gob>::new(Framing::Own);
        let mut out = vec![];
        encoder.append(&message, &mut out).unwrap();
        encoder.append(&message, &mut out).unwrap();
        assert!(out == [first, second].concat());
        seen += 1;
    }
    assert!(seen >= 240);
}

#[test]
fn lists_of_doubles_are_defined_once() {
    let [_, timer, _, union] = examples();
    let mut encoder = Encoder::<Gob>::new(Framing::Own);
    let mut out = vec![];
    for message in [timer, union, timer] {
        encoder.append(&message, &mut out).unwrap();
    }
    assert_eq!(out.windows(9).filter(|name| *name == b"[]float64").count(), 1);
    assert_eq!(out.len(), 126 + (173 - 24) + 58);
}

#[test]
fn messages_of_any_length() {
    for len in [0, 1, 100, 120, 127, 128, 129, 200, 260, 300, 65_500, 65_536, 70_000] {
        let id = vec![b'a'; len];
        for values in [vec![], vec![2.0; 30], vec![0.1; 30], vec![0.1; 10_000]] {
            let message = BatchTimer { id: &id, values: &values };
            let mut out = vec![];
            message.encode::<Gob>(&mut out).unwrap();
            let mut arena = Arena::new();
            assert_eq!(BatchTimer::decode::<Gob>(&out, &arena.as_scope()).unwrap(), message);
        }
    }
}

#[test]
fn streams_of_go_with_more_fields() {
    // Structures, maps, complex numbers, times, arrays, bools and slices of structures, in addition
    // to the id and the value, and twice.
    let all = counters(
        "637f03010107436f756e74657201ff8000010a0105457874726101ff820001014d01ff8800010556616c756\
         5010400010143010e0001015401ff8a00010341727201ff8c00010146010200010153010c0001024944010a\
         0001044c61737401ff8e0000002aff8103010105496e6e657201ff8200010301014101040001014201ff8400\
         01044e65787401ff8200000016ff83020101085b5d737472696e6701ff8400010c000021ff87040101106d61\
         705b737472696e675d5b5d696e7401ff8800010c01ff8600000cff85020102ff86000104000010ff89050101\
         0454696d6501ff8a00000017ff8b010101075b335d75696e7401ff8c000106010600001bff8d0201010c5b5d\
         6d61696e2e496e6e657201ff8e0001ff82000047ff8001010e01020161016201010200000101016b02020401\
         0901fef03f40010f010000000e7791f70100000002000001030102030101010474657874010269640102010600\
         000047ff8001010e01020161016201010200000101016b020204010901fef03f40010f010000000e7791f701\
         000000020000010301020301010104746578740102696401020106000000",
    );
    assert_eq!(all, [(b"id".to_vec(), -5), (b"id".to_vec(), -5)]);
}

#[test]
fn streams_of_go_with_interfaces() {
    // Types are defined within a value. Their definitions end the message, and the value continues
    // in the next one.
    let all = counters(
        "33ff8f03010107436f756e74657201ff90000104010149011000010556616c756501040001014a01ff920001\
         024944010a0000001cff910201010e5b5d696e74657266616365207b7d01ff92000110000025ff9001066d61\
         696e2e57ff93030101015701ff94000102010158010400010159010400000041ff9405010201040001090103\
         0a6d61696e2e496e6e6572ff8103010105496e6e657201ff8200010301014101040001014201ff840001044e\
         65787401ff8200000016ff83020101085b5d737472696e6701ff8400010c000035ff8209010e010201610162\
         0003696e740402000a116d61705b737472696e675d6d61696e2e57ff95040102ff9600010c01ff94000011ff\
         9609000101710106010800010269640041ff9001066d61696e2e57ff94050102010400010c01030673747269\
         6e670c0300017807666c6f61743634080400fe1640066d61696e2e57ff940100010369643200",
    );
    assert_eq!(all, [(b"id".to_vec(), -5), (b"id2".to_vec(), 6)]);
}

#[test]
fn other_types_of_the_same_numbers() {
    // GaugeVal float32, BatchTimerVal [2]float64, CounterVal uint16, ID string, Type uint8.
    let union = "58ff970301010b4d6574726963556e696f6e01ff980001050108476175676556616c010800010d\
         426174636854696d657256616c01ff9a00010a436f756e74657256616c01060001024944010c000104547970\
         6501060000001aff990101010a5b325d666c6f6174363401ff9a0001080104000017ff9801fef83f0102fef0\
         3f4001fe012c01026964010200";
    let mut arena = Arena::new();
    let scope = arena.as_scope();
    let bytes = unhex(union);
    assert_eq!(
        MetricUnion::decode::<Gob>(&bytes, &scope).unwrap(),
        MetricUnion {
            metric_type: MetricType(2),
            id: b"id",
            counter: 300,
            timer: &[1.0, 2.0],
            gauge: 1.5
        }
    );
    let integers = "2bff9b0301010a426174636854696d657201ff9c000102010656616c75657301ff9e000102\
         4944010a00000015ff9d020101075b5d696e74333201ff9e00010400000eff9c01030203fe02580102696400";
    let named = "22ff9f030101014201ffa000010201024944010a00010656616c75657301ffa20000000fffa102\
         0101015a01ffa2000108000012ffa0010269640103fef03fffc0fdc0724000";
    for text in [integers, named] {
        let bytes = unhex(text);
        let timer = BatchTimer::decode::<Gob>(&bytes, &scope).unwrap();
        assert_eq!(timer, BatchTimer { id: b"id", values: &[1.0, -2.0, 300.0] });
    }
}

#[test]
fn types_take_turns() {
    let all = read_all(
        Kind::Gauge,
        &unhex(
            "26ffa303010107436f756e74657201ffa400010201024944010a00010556616c7565010400000008ffa4\
             01016101020024ffa503010105476175676501ffa600010201024944010a00010556616c756501080000\
             0008ffa601016701400008ffa40101620104000affa601016701fe044000",
        ),
        5,
    );
    let gauge = |id: &[u8], value| std::format!("{:?}", Message::from(Gauge { id, value }));
    assert_eq!(all, [gauge(b"a", 1.0), gauge(b"g", 2.0), gauge(b"b", 2.0), gauge(b"g", 2.5)]);
}

#[test]
fn definitions_can_come_again() {
    let mut out = vec![];
    for value in 0..2_000 {
        Counter { id: b"a", value }.encode::<Gob>(&mut out).unwrap();
    }
    assert_eq!(read_all(Kind::Counter, &out, 1 << 20).len(), 2_000);
}

#[test]
fn truncated_messages_are_incomplete() {
    let mut arena = Arena::new();
    for message in examples() {
        let mut out = vec![];
        message.encode::<Gob>(&mut out).unwrap();
        for len in 0..out.len() {
            let error = Message::decode::<Gob>(message.kind(), &out[..len], &arena.as_scope());
            assert!(error.unwrap_err().is_incomplete(), "{message:?} {len}");
        }
    }
}

#[test]
fn hostile_definitions() {
    let malformed = |bytes: &[u8]| {
        let mut arena = Arena::new();
        let error = Counter::decode::<Gob>(bytes, &arena.as_scope()).unwrap_err();
        assert!(!error.is_incomplete(), "{error}");
        std::format!("{error}")
    };
    // An id below 64, no definition, a field without a name, a value without a type.
    assert!(malformed(b"\x03\x7d\0\0").contains("from 64"));
    assert!(malformed(b"\x02\x7f\0").contains("a definition of a type"));
    assert!(malformed(b"\x09\x7f\x03\x01\0\x01\x01\0\0\0").contains("a field with a name"));
    assert!(malformed(b"\x03\xff\x80\0").contains("was defined"));
    // A type that contains itself: each byte opens a level.
    let list = b"\x09\xff\x81\x02\x02\xff\x82\0\0";
    let mut bytes = vec![18, 0x7f, 3, 2, 2, 1, 1, b'X', 1, 0xff, 0x82, 0, 1, 2];
    bytes.extend(b"ID\x01\x0a\0\0\0");
    bytes[0] = bytes.len() as u8 - 1;
    bytes.extend([&[list.len() as u8 - 1][..], &list[1..]].concat());
    bytes.extend([&b"\xfe\x01\x00\xff\x80\x01"[..], &[1; 252], &[0]].concat());
    assert!(malformed(&bytes).contains("100 types"));
    // More types than the limit.
    let mut bytes = vec![];
    for id in 64..1_100_u64 {
        let number = (id << 1) - 1;
        let id = if number < 128 {
            vec![number as u8]
        } else if number < 256 {
            vec![0xff, number as u8]
        } else {
            vec![0xfe, (number >> 8) as u8, number as u8]
        };
        let definition = [&id[..], b"\x02\x02\x04\0\0"].concat();
        bytes.push(definition.len() as u8);
        bytes.extend(definition);
    }
    assert!(malformed(&bytes).contains("1,000 types"));
}
