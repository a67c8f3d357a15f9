//! Runs random sequences of operations under every policy, and compares with a shadow model.

mod model;

use proptest::prelude::*;

fn cases() -> u32 {
    if cfg!(miri) { 4 } else { 4000 }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn programs_do_what_the_model_says(
        program in prop::collection::vec(any::<u8>(), 0..if cfg!(miri) { 120 } else { 600 }),
    ) {
        model::run(&program);
    }
}

/// Runs each policy at least once, independently of chance.
#[test]
fn every_policy_runs() {
    let mut state = 1u32;
    for policy in 0..model::POLICIES {
        for kind in if cfg!(miri) { &[1, 130][..] } else { &[0, 1, 2, 129, 130] } {
            let mut program = vec![policy, 100, 5, *kind];
            program.extend((0..if cfg!(miri) { 40 } else { 2000 }).map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (state >> 24) as u8
            }));
            model::run(&program);
        }
    }
}
