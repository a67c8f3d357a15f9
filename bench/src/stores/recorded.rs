//! Recorded figures of client_ruby's stores, because the registries available here do not contain
//! them.
//!
//! They were taken earlier, with the same kind of loops and the same Ruby, on another machine: two
//! cores of an AMD EPYC, virtual. The names of their subjects mention this. If you pass a checkout
//! of client_ruby, it is measured, and none of these is used.

use super::increments::TOGETHER;
use crate::record::{Label, Record};

const DIRECT_FILE_STORE: &str = "client_ruby 4.2.5, DirectFileStore (recorded)";
const SYNCHRONIZED: &str = "client_ruby 4.2.5, Synchronized (recorded)";
const NO_STORE: &str = "client_ruby 4.2.5, a store that does nothing (recorded)";

/// Case, subject, microseconds.
const TIMES: [(&str, &str, f64); 19] = [
    ("ruby increment/no labels", SYNCHRONIZED, 0.66),
    ("ruby increment/no labels", DIRECT_FILE_STORE, 4.36),
    ("ruby increment/2 labels", NO_STORE, 1.06),
    ("ruby increment/2 labels", SYNCHRONIZED, 2.33),
    ("ruby increment/2 labels", DIRECT_FILE_STORE, 6.68),
    ("ruby increment/4 labels", SYNCHRONIZED, 3.12),
    ("ruby increment/4 labels", DIRECT_FILE_STORE, 8.70),
    ("ruby increment/bound", SYNCHRONIZED, 0.90),
    ("ruby increment/bound", DIRECT_FILE_STORE, 5.51),
    ("ruby observe/2 labels", SYNCHRONIZED, 4.92),
    ("ruby observe/2 labels", DIRECT_FILE_STORE, 16.96),
    ("ruby observe/bound", SYNCHRONIZED, 4.04),
    ("ruby observe/bound", DIRECT_FILE_STORE, 15.73),
    ("ruby stores, simple/memory", SYNCHRONIZED, 0.85),
    ("ruby stores, simple/tmpfs", DIRECT_FILE_STORE, 4.91),
    ("ruby stores, simple/disk", DIRECT_FILE_STORE, 5.36),
    ("ruby stores, realistic/memory", SYNCHRONIZED, 1.67),
    ("ruby stores, realistic/tmpfs", DIRECT_FILE_STORE, 8.48),
    ("ruby stores, realistic/disk", DIRECT_FILE_STORE, 9.28),
];

/// Microseconds of an increment with two labels on 1, 2 and 4 threads.
const THREADS: [f64; 3] = [6.68, 11.6, 9.1];

/// Case, milliseconds.
const SCRAPES: [(&str, f64); 2] =
    [("scrape/50 dead workers", 688.0), ("scrape/500 dead workers", 7434.0)];

/// The figures of a workload.
pub fn recorded(workload: &str) -> Vec<Record> {
    let time = |case: &str, subject: &str, micros: f64| {
        Label::new(case, subject, "time", "ns").of(&[micros * 1e3])
    };
    let times = |prefix: &str| {
        let chosen = TIMES.iter().filter(|(case, ..)| case.starts_with(prefix));
        chosen.map(|(case, subject, micros)| time(case, subject, *micros)).collect()
    };
    match workload {
        "increments" => [times("ruby increment/"), times("ruby observe/")].concat(),
        "stores" => times("ruby stores"),
        "threads" => TOGETHER
            .iter()
            .zip(THREADS)
            .map(|(threads, micros)| Record {
                threads: *threads as u32,
                ..time("ruby threads/increment", DIRECT_FILE_STORE, micros)
            })
            .collect(),
        "scrape" => SCRAPES
            .iter()
            .map(|(case, millis)| Label::new(case, DIRECT_FILE_STORE, "time", "ms").of(&[*millis]))
            .collect(),
        _ => Vec::new(),
    }
}

/// Returns Quipu's store under client_ruby's metrics, if those are not available: the sum of their
/// recorded time with an empty store, and the time of the store.
pub fn drop_in(measured: &[Record]) -> Option<Record> {
    let alone = measured.iter().find(|record| {
        record.case == "ruby increment/2 labels" && record.subject == "quipu (store alone)"
    })?;
    let (.., micros) = TIMES.iter().find(|(.., subject, _)| *subject == NO_STORE)?;
    let mut sum = alone.clone();
    sum.subject = "quipu (drop-in store)".into();
    for value in [&mut sum.median, &mut sum.min, &mut sum.max] {
        *value += micros * 1e3;
    }
    Some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_figure_belongs_to_a_workload() {
        let of = |workload| recorded(workload).len();
        assert_eq!(of("increments") + of("stores"), TIMES.len());
        assert_eq!((of("threads"), of("scrape"), of("respawns")), (3, 2, 0));
    }

    #[test]
    fn the_drop_in_store_is_a_sum() {
        let label = Label::new("ruby increment/2 labels", "quipu (store alone)", "time", "ns");
        assert_eq!(drop_in(&[label.of(&[100.0, 110.0, 90.0])]).unwrap().median, 1160.0);
        assert!(drop_in(&[]).is_none());
    }
}
