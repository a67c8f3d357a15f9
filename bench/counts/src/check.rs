//! Checks the counts of quipu's arenas against the peers that do the same, and against the recorded
//! counts:
//!
//! | arena | cases | limit |
//! | --- | --- | --- |
//! | `Up` | all | the lowest peer that frees blocks: default settings, and bump-scope without shrinks |
//! | `Keep<Up>` | all | the lowest peer with any settings |
//! | `Reclaim<Up>` | shrinks | the lowest peer that reclaims |
//! | all six | all | the recorded count, if the tools are the same |

use quipu_bench_report::counts::figures::{Count, Figures, OURS, Peers, lowest};
use quipu_bench_report::counts::table::TABLES;

/// The peers that free memory in a case that shrinks. blink-alloc never does; bumpalo does if it
/// can copy without an overlap, and the alignment does not grow.
fn reclaiming_peers(case: &str) -> &'static [&'static str] {
    if case.ends_with("larger_align") {
        &["bump_scope_up", "bump_scope_down"]
    } else {
        &["bump_scope_up", "bump_scope_down", "bumpalo"]
    }
}

/// The counts of quipu's arenas that fail the check, as messages.
pub(crate) fn losses(figures: &Figures, kept: &Figures) -> Vec<String> {
    let mut losses = Vec::new();
    let mut compare = |case: &str, library: &str, limit: Option<Count>, whose: &str, hint: &str| {
        if let (Some(count), Some(limit)) = (figures.count(case, library), limit)
            && count.exceeds(limit)
        {
            losses.push(format!(
                "{case} of {library} takes {} instructions and {} branches, {whose} {} and {}: \
                 {hint}",
                count.instructions, count.branches, limit.instructions, limit.branches
            ));
        }
    };
    let read = "read its assembly: objdump -d --disassemble=entry_CASE_LIBRARY on \
                target/default-release/cells";
    for case in TABLES.iter().flat_map(|table| table.cases) {
        let limit = lowest(figures, case, Peers::NoShrink.symbols());
        compare(case, "quipu_up", limit, "the lowest peer that frees blocks", read);
        let limit = lowest(figures, case, Peers::NoFree.symbols());
        compare(case, "quipu_up_keep", limit, "the lowest peer", read);
        if case.contains("shrink") {
            let peers = reclaiming_peers(case).iter().copied();
            let limit = lowest(figures, case, peers);
            compare(case, "quipu_up_reclaim", limit, "the lowest peer that reclaims", read);
        }
        if figures.setting.comparable(&kept.setting) {
            for (library, _) in OURS {
                let before = kept.count(case, library);
                let hint = "if that is intended, record the new figures with `make record-counts`";
                compare(case, library, before, "the recorded count", hint);
            }
        }
    }
    losses
}
