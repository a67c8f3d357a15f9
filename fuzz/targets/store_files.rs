//! Files of other clients' processes. No input causes a panic, an endless loop, or an allocation
//! for a length that it merely claims; the output is an exposition. A truncated file shows no more
//! than the whole.
//!
//! The first byte selects the name of the file, the rest is its contents.

#![no_main]

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

fuzz_target!(|data: &[u8]| {
    let Some((&choice, file)) = data.split_first() else { return };
    let name = NAMES[usize::from(choice) % NAMES.len()];
    let twice = [(name, file), (name, file)];
    let (text, sound) = exposition(twice, Format::Text);
    assert!(sound == 0 || sound == 2);
    let text = String::from_utf8(text).expect("text is UTF-8");
    let count = |text: &str| text.lines().filter(|line| line.starts_with("# TYPE ")).count();
    for line in text.lines() {
        assert!(line.starts_with('#') || line.contains(' '), "{line:?}");
    }
    let (half, _) = exposition([(name, &file[..file.len() / 2])], Format::Text);
    let half = String::from_utf8(half).expect("text is UTF-8");
    // Only the whole file reveals that its values have no times; then none of it is shown.
    assert!(text.is_empty() || count(&half) <= count(&text));
    let (open_metrics, _) = exposition([(name, file)], Format::OpenMetrics);
    assert!(open_metrics.ends_with(b"# EOF\n"));
    exposition([(name, file)], Format::Protobuf);
});
