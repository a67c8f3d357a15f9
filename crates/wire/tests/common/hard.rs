//! Proptest strategies for messages whose values are hard to write or read.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use quipu_wire::Kind;

use super::Owned;

/// Lengths where a format changes the encoding of a length, and some others.
const LENGTHS: &[usize] =
    &[15, 16, 31, 32, 33, 60, 61, 127, 128, 129, 255, 256, 257, 4095, 4096, 65_535, 65_536];

/// Generates any ids.
pub fn ids() -> impl Strategy<Value = Vec<u8>> {
    let alphabet = b"abcdefghijklmnopqrstuvwxyz=,._-:";
    prop_oneof![
        1 => Just(vec![]),
        2 => any::<u8>().prop_map(|byte| vec![byte]),
        4 => vec(select(&alphabet[..]), 1..64),
        2 => "\\PC{0,24}".prop_map(String::into_bytes),
        1 => "[\\x00-\\x7f]{0,24}".prop_map(String::into_bytes),
        4 => vec(any::<u8>(), 0..80),
        2 => (select(LENGTHS), any::<u64>()).prop_map(|(len, seed)| noise(len, seed)),
    ]
}

/// Generates ids of few bytes.
pub fn short_ids() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![vec(any::<u8>(), 0..12), "[a-z=,.]{0,12}".prop_map(String::into_bytes)]
}

/// Generates integers around each change of encoding.
pub fn integers() -> impl Strategy<Value = i64> {
    prop_oneof![
        1 => select(&[0, 1, -1, i64::MIN, i64::MAX, i64::MIN + 1][..]),
        3 => (0..64_u32, -2..=2_i64, any::<bool>()).prop_map(|(power, near, negative)| {
            let number = (1_i64 << power).wrapping_add(near);
            if negative { number.wrapping_neg() } else { number }
        }),
        2 => (0..64_u32, any::<i64>()).prop_map(|(shift, number)| number >> shift),
        1 => -1000..1000_i64,
    ]
}

/// Generates doubles of all kinds.
pub fn doubles() -> impl Strategy<Value = f64> {
    let special = [
        0.0,
        -0.0,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
        -f64::NAN,
        f64::from_bits(0x7ff8_0000_0000_0001),
        f64::from_bits(0xfff8_0000_c0ff_ee00),
        f64::MIN_POSITIVE,
        f64::MAX,
        f64::MIN,
        f64::EPSILON,
        f64::from_bits(1),
        f64::from_bits(0x000f_ffff_ffff_ffff),
        1e21,
        1e-7,
        9_007_199_254_740_992.0,
        9_007_199_254_740_993.0,
        9_223_372_036_854_775_808.0,
        -9_223_372_036_854_775_808.0,
        18_446_744_073_709_551_616.0,
    ];
    prop_oneof![
        2 => select(special.to_vec()),
        2 => (-1000..1000_i32).prop_map(f64::from),
        2 => integers().prop_map(|number| number as f64),
        4 => (integers(), 1..=8).prop_map(|(number, places)| {
            (number % 1_000_000_000_000) as f64 / 10_f64.powi(places)
        }),
        2 => any::<u64>().prop_map(f64::from_bits),
        1 => (1..1_u64 << 52).prop_map(f64::from_bits),
        1 => (-330..310_i32).prop_map(|power| 10_f64.powi(power)),
    ]
}

/// Generates lists of up to `longest` doubles.
pub fn lists(longest: usize) -> impl Strategy<Value = Vec<f64>> {
    prop_oneof![
        8 => vec(doubles(), 0..8),
        1 => vec(doubles(), 0..=longest),
        1 => vec((0..10_000_i32).prop_map(|number| f64::from(number) / 100.0), 0..=longest),
    ]
}

/// Generates messages of all kinds.
pub fn messages() -> impl Strategy<Value = Owned> {
    any_message(ids(), lists(300))
}

/// Generates messages of a few dozen bytes.
pub fn small_messages() -> impl Strategy<Value = Owned> {
    any_message(short_ids(), vec(doubles(), 0..4))
}

fn any_message(
    ids: impl Strategy<Value = Vec<u8>>,
    lists: impl Strategy<Value = Vec<f64>>,
) -> impl Strategy<Value = Owned> {
    let types = prop_oneof![0..4_i8, any::<i8>()];
    let zero = |double| prop_oneof![3 => double, 1 => Just(0.0)];
    let counters = prop_oneof![3 => integers(), 1 => Just(0)];
    (select(Kind::ALL), types, ids, counters, lists, zero(doubles())).prop_map(
        |(kind, metric_type, id, counter, timer, gauge)| {
            let message = Owned { kind, metric_type, id, counter, timer, gauge };
            // Drops the fields that the kind lacks.
            Owned::of(&message.message())
        },
    )
}

/// Returns `count` values, the same for the same seed.
pub fn some<S: Strategy>(strategy: S, count: usize, seed: u64) -> Vec<S::Value> {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let random = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), random);
    (0..count).map(|_| strategy.new_tree(&mut runner).unwrap().current()).collect()
}

/// Returns the message as another kind, which may use other fields.
pub fn as_kind(message: &Owned, kind: Kind) -> Owned {
    Owned { kind, ..message.clone() }
}

/// Returns bytes without a pattern.
pub fn noise(len: usize, mut seed: u64) -> Vec<u8> {
    (0..len)
        .map(|_| {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (seed >> 56) as u8
        })
        .collect()
}
