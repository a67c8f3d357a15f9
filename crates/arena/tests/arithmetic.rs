//! Compares the address arithmetic, in both forms, with a slow model.

#![cfg(not(miri))] // Nothing in it is unsafe.

mod addresses;

use addresses::Request;
use proptest::prelude::*;

/// Arbitrary numbers, numbers near the ends, and small ones.
fn number() -> impl Strategy<Value = usize> {
    prop_oneof![
        any::<usize>(),
        0..4096usize,
        (0..4096usize).prop_map(|n| isize::MAX as usize - n),
        (0..4096usize).prop_map(|n| usize::MAX - n),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200_000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn both_forms_agree_with_the_slow_twin(
        a in number(),
        near in prop_oneof![number(), 0..8192usize],
        size in number(),
        bits in any::<u8>(),
    ) {
        for b in [near, a.wrapping_add(near)] {
            Request::of(a, b, size, bits, true).check::<true>();
            Request::of(a, b, size, bits, true).check::<false>();
            Request::of(a, b, size, bits, false).check::<false>();
        }
    }
}
