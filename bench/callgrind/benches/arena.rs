//! Registers every case of every library with gungraun, which runs each under callgrind.
//!
//! Run it with `arena-table`, which installs the runner and reads the counts.

#![allow(missing_docs, unreachable_pub)]

use gungraun::{Callgrind, EntryPoint, LibraryBenchmarkConfig, main};

fn config() -> LibraryBenchmarkConfig {
    let mut config = LibraryBenchmarkConfig::default();
    config.tool(
        // Identical bodies are merged into one function, under one of their names.
        Callgrind::with_args(["branch-sim=yes"])
            .entry_point(EntryPoint::Custom("entry_*".to_owned())),
    );
    config
}

macro_rules! register {
    ($($case:ident)*) => {
        mod counted {
            $(register! {
                $case: quipu_up quipu_down quipu_up_reclaim quipu_down_reclaim
                bump_scope_up bump_scope_down bumpalo blink_alloc
            })*
        }
        $(use counted::$case::$case;)*
        main!(library_benchmark_groups = $($case),*);
    };
    ($case:ident: $($library:ident)*) => {
        pub(super) mod $case {
            use gungraun::{library_benchmark, library_benchmark_group};
            use quipu_bench_callgrind as cases;

            $(
                #[library_benchmark(config = crate::config())]
                fn $library() {
                    cases::$library::$case::measure(cases::$library::$case::entry);
                }
            )*

            library_benchmark_group!(name = $case; benchmarks = $($library),*);
        }
    };
}

register! {
    alloc_u8
    alloc_u8_overaligned
    alloc_u32
    alloc_u32_aligned
    alloc_u32_overaligned
    alloc_big_struct
    alloc_big_struct_aligned
    alloc_big_struct_overaligned
    alloc_u8_slice
    alloc_u8_slice_overaligned
    alloc_u32_slice
    alloc_u32_slice_aligned
    alloc_u32_slice_overaligned
    try_alloc_u8
    try_alloc_u8_overaligned
    try_alloc_u32
    try_alloc_u32_aligned
    try_alloc_u32_overaligned
    try_alloc_big_struct
    try_alloc_big_struct_aligned
    try_alloc_big_struct_overaligned
    try_alloc_u8_slice
    try_alloc_u8_slice_overaligned
    try_alloc_u32_slice
    try_alloc_u32_slice_aligned
    try_alloc_u32_slice_overaligned
    allocate
    grow_same_align
    grow_smaller_align
    grow_larger_align
    shrink_same_align
    shrink_smaller_align
    shrink_larger_align
    deallocate
    deallocate_non_last
    black_box_allocate
    black_box_grow_same_align
    black_box_grow_smaller_align
    black_box_grow_larger_align
    black_box_shrink_same_align
    black_box_shrink_smaller_align
    black_box_shrink_larger_align
    black_box_deallocate
    black_box_deallocate_non_last
    warm_up
    reset
}
