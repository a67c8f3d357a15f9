//! The options for a new registry.
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

use std::time::Duration;

use quipu::{CounterFamily, Description, GaugeFamily, Registry, TestClock};

const MINUTE: Duration = Duration::from_secs(60);

#[test]
fn series_expire_by_the_clock_of_the_options() {
    let clock = TestClock::new();
    let options = Registry::options().clock(&clock);
    expire(&options.build().unwrap(), &clock);
    #[cfg(target_os = "linux")]
    {
        let directory = tempfile::tempdir().unwrap();
        expire(&options.open(directory.path().join("metrics.quipu")).unwrap(), &clock);
    }
}

fn expire(registry: &Registry, clock: &TestClock) {
    let description = |name: &str| Description::new(name, "").labels(["page"]);
    let views: CounterFamily<[&str; 1]> =
        registry.register(description("views").expire_after(MINUTE)).unwrap();
    let load: GaugeFamily<[&str; 1]> = registry.register(description("load")).unwrap();
    let views_of = |page| registry.value("views_total", &[("page", page)]);
    views.inc(&["/old"]);
    load.set(&["/old"], 0.5);
    assert_eq!(views_of("/old"), Some(1.0));
    for minute in 0..3 {
        views.inc(&["/new"]);
        assert_eq!(views_of("/new"), Some(f64::from(minute + 1)));
        assert_eq!(views_of("/old"), (minute < 1).then_some(1.0));
        clock.advance(MINUTE);
    }
    // A counter that changes again continues; a family without an expiry keeps its series.
    views.inc(&["/old"]);
    assert_eq!(views_of("/old"), Some(2.0));
    assert_eq!(registry.value("load", &[("page", "/old")]), Some(0.5));
}

#[test]
fn a_limit_out_of_range_is_an_error() {
    for limit in [0, u64::MAX] {
        let error = Registry::options().max_bytes(limit).build().unwrap_err().to_string();
        assert!(error.contains("limit"), "{error}");
    }
}

#[test]
fn updates_beyond_the_limit_are_counted_in_the_overflow_series() {
    let registry = Registry::options().max_bytes(64 << 10).build().unwrap();
    let family: CounterFamily<[String; 1]> =
        registry.register(Description::new("users", "").labels(["user"])).unwrap();
    for user in 0..10_000 {
        family.inc(&[user.to_string()]);
    }
    assert!(family.overflowed() > 0);
    let overflow = registry.value("users_total", &[("quipu_overflow", "true")]).unwrap();
    assert_eq!(overflow as u64, family.overflowed());
}

#[cfg(target_os = "linux")]
#[test]
fn a_new_file_has_the_mode_of_the_options() {
    use std::os::unix::fs::PermissionsExt;

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("metrics.quipu");
    let clock = TestClock::new();
    let options = Registry::options().mode(0o640).max_bytes(1 << 20).clock(&clock);
    options.open(&path).unwrap().counter("jobs", "").unwrap().inc();
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o640);
    // An existing file keeps its mode.
    let registry = options.mode(0o600).open(&path).unwrap();
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o640);
    let jobs = registry.counter("jobs", "").unwrap();
    assert_eq!(jobs.get(), 1);
    registry.sync().unwrap();
    assert!(Registry::options().mode(0o10_000).open(directory.path().join("other")).is_err());
}
