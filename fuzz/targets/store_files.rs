//! Reads files of other clients' processes. No input can cause a panic, an endless loop, or an
//! allocation for a length that it merely claims, and the output is an exposition. A truncated file
//! shows no family that the whole file does not show, unless a family further down takes its name.
//!
//! The first byte selects the name of the file, the rest is its contents.

#![no_main]

#[path = "../fixed_seed.rs"]
mod fixed_seed;

use std::collections::HashSet;

use libfuzzer_sys::fuzz_target;
use quipu::exposition::Format;
use quipu_store::files::exposition;

const NAMES: [&str; 8] = [
    "counter_1.db",
    "histogram_1.db",
    "summary_1.db",
    "gauge_all_1.db",
    "gauge_livemin_1.db",
    "gauge_mostrecent_1.db",
    "gauge_sum_1.db",
    "metric_a_total___1.bin",
];

/// Returns the names of the families in an exposition.
fn families(text: &str) -> impl Iterator<Item = &str> {
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    types.filter_map(|line| Some(line.rsplit_once(' ')?.0))
}

/// Returns the names that a family can take, from the name in `# TYPE`. If families share a name,
/// only one is shown. For example, a histogram replaces two families that are called like its sum
/// and its count.
fn taken(shown: &str) -> impl Iterator<Item = String> {
    const SUFFIXES: [&str; 5] = ["", "_total", "_bucket", "_sum", "_count"];
    let stems = [shown, shown.strip_suffix("_total").unwrap_or(shown)];
    stems.into_iter().flat_map(|stem| SUFFIXES.map(|suffix| format!("{stem}{suffix}")))
}

fuzz_target!(|data: &[u8]| {
    let Some((&choice, file)) = data.split_first() else { return };
    let name = NAMES[usize::from(choice) % NAMES.len()];
    let twice = [(name, file), (name, file)];
    let (text, sound) = exposition(twice, Format::Text);
    assert!(sound == 0 || sound == 2);
    let text = String::from_utf8(text).expect("text is UTF-8");
    for line in text.lines() {
        assert!(line.starts_with('#') || line.contains(' '), "{line:?}");
    }
    let (half, _) = exposition([(name, &file[..file.len() / 2])], Format::Text);
    let half = String::from_utf8(half).expect("text is UTF-8");
    // The whole file can reveal that its values lack times. Then no family is shown.
    let all: HashSet<String> = families(&text).flat_map(taken).collect();
    for family in families(&half) {
        assert!(text.is_empty() || taken(family).any(|name| all.contains(&name)), "{family}");
    }
    let (open_metrics, _) = exposition([(name, file)], Format::OpenMetrics);
    assert!(open_metrics.ends_with(b"# EOF\n"));
    exposition([(name, file)], Format::Protobuf);
});
