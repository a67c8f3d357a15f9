//! Counts the instructions of quipu's hottest operations, and compares them with the recorded ones.

use std::fmt::Write;
use std::path::Path;

use quipu_bench_report::Result;
use quipu_bench_report::counts::hottest::{Hottest, Operation};

use crate::callgrind::{self, Counted, Profile};
use crate::is_comparable;

/// A count fails if it is above the recorded one by more than this share. Tables use a random seed
/// in each run; this changes a count by up to one percent.
const TOLERANCE: f64 = 0.03;

/// Counts all operations with the default profile.
pub(crate) fn count(root: &Path) -> Result<Hottest> {
    let counted = callgrind::count(root, "counting", Profile::Default)?;
    let operations = counted.into_iter().map(operation).collect();
    Ok(Hottest { setting: callgrind::setting(root)?, operations })
}

/// Counts all operations with and without link-time optimisation.
pub(crate) fn count_both(root: &Path) -> Result<Hottest> {
    let mut hottest = count(root)?;
    let counted = callgrind::count(root, "counting", Profile::Lto)?;
    for (kept, with_lto) in hottest.operations.iter_mut().zip(counted) {
        kept.with_lto = Some(operation(with_lto).instructions);
    }
    Ok(hottest)
}

fn operation(counted: Counted) -> Operation {
    let per = |count: u64| (count as f64 / counted.operations as f64 * 10.0).round() / 10.0;
    let functions = counted.functions.into_iter();
    Operation {
        name: counted.name,
        instructions: per(counted.total.instructions),
        branches: per(counted.total.branches),
        with_lto: None,
        functions: functions
            .map(|(name, count)| (name, per(count)))
            .filter(|(_, count)| *count > 0.0)
            .collect(),
    }
}

/// The operations that take more instructions than recorded, as messages that name the functions.
pub(crate) fn losses(now: &Hottest, kept: &Hottest) -> Vec<String> {
    if !is_comparable(&now.setting, &kept.setting, "operations") {
        return Vec::new();
    }
    let risen = |now: &Operation| {
        let before = kept.operations.iter().find(|before| before.name == now.name);
        let before = before.filter(|b| now.instructions > b.instructions * (1.0 + TOLERANCE));
        before.map(|before| message(before, now))
    };
    now.operations.iter().filter_map(risen).collect()
}

/// Returns the functions that rose, the greatest difference first.
fn message(before: &Operation, now: &Operation) -> String {
    let mut text = format!(
        "{} takes {:.1} instructions, recorded are {:.1}; if that is intended, record the new \
         figures with `make record-counts`. By function:",
        now.name, now.instructions, before.instructions
    );
    let names = before.functions.keys().chain(now.functions.keys());
    let of = |operation: &Operation, name| operation.functions.get(name).copied().unwrap_or(0.0);
    let mut differences: Vec<(f64, &String)> =
        names.map(|name| (of(now, name) - of(before, name), name)).collect();
    differences.sort_by(|a, b| b.0.abs().total_cmp(&a.0.abs()).then(a.1.cmp(b.1)));
    differences.dedup();
    for (difference, name) in differences.into_iter().filter(|(d, _)| d.abs() >= 0.1).take(10) {
        let _ = write!(text, "\n  {difference:+.1} {name}");
    }
    text
}

#[cfg(test)]
mod tests {
    use quipu_bench_report::counts::figures::Setting;

    use super::*;

    fn hottest(instructions: f64, functions: &[(&str, f64)]) -> Hottest {
        let functions = functions.iter().map(|(name, count)| ((*name).to_owned(), *count));
        Hottest {
            setting: Setting::default(),
            operations: vec![Operation {
                name: "counter".into(),
                instructions,
                branches: 3.0,
                with_lto: None,
                functions: functions.collect(),
            }],
        }
    }

    #[test]
    fn a_rise_within_the_tolerance_passes_and_one_above_names_the_functions() {
        let before = hottest(100.0, &[("add", 60.0), ("find", 40.0)]);
        assert!(losses(&hottest(102.9, &[("add", 62.9), ("find", 40.0)]), &before).is_empty());
        let losses = losses(&hottest(104.0, &[("add", 59.0), ("find", 45.0)]), &before);
        assert_eq!(losses.len(), 1);
        assert!(losses[0].ends_with("By function:\n  +5.0 find\n  -1.0 add"), "{}", losses[0]);
    }
}
