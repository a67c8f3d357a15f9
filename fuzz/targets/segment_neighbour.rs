//! Runs a process that writes garbage into a segment file while this one counts, removes, sweeps,
//! registers and scrapes. The programs are the same as in
//! `crates/segment/tests/common/neighbour.rs`.

#![no_main]

#[path = "../fixed_seed.rs"]
mod fixed_seed;

#[path = "../../crates/segment/tests/common/neighbour.rs"]
mod neighbour;

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use quipu::Registry;

static WORLD: LazyLock<neighbour::World> = LazyLock::new(neighbour::World::new);

fuzz_target!(|program: &[u8]| {
    WORLD.run(program, &mut |segment| {
        let mut scrape = Registry::from_segment(segment.clone()).scrape();
        while scrape.next_piece().is_some() {}
    });
});
