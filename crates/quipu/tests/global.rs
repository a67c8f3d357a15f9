//! The choice of the global registry. This program contains only one test, because a process
//! chooses the global registry only once.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

use quipu::{Registry, counter};

#[test]
fn macros_count_in_the_registry_that_was_set() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("metrics.quipu");
    let jobs = || counter!("jobs", "Completed jobs.").inc();
    Registry::set_global(Registry::open(&path).unwrap()).unwrap();
    jobs();
    let reader = Registry::open(&path).unwrap();
    assert!(reader.text().contains("jobs_total 1\n"), "{}", reader.text());

    let error = Registry::set_global(Registry::new()).unwrap_err().to_string();
    assert!(error.starts_with("the global registry is already set or in use: "), "{error}");
    jobs();
    assert_eq!(Registry::global().value("jobs_total", &[]), Some(2.0));
}
