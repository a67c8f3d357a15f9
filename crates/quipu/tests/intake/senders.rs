//! Senders with the same labels, and increments that are sent again.

use std::collections::BTreeMap;

use quipu::Registry;
use quipu::intake::{InputValue, Intake, Limits, Metric, Mode, Rejection};
use quipu::snapshot::{Native, Timestamp};

use super::{has, intake, metric};

/// Returns a metric whose values are points of streams, with the time of one point.
fn stream(name: &str, time: u64) -> Metric<'_> {
    Metric {
        streams: true,
        exemplars: true,
        time: Some(Timestamp::from_nanos(time)),
        ..metric(name)
    }
}

/// Takes the total of the sender that began at `start`, as of `time`.
fn follow(intake: &mut Intake, total: f64, start: u64, time: u64) -> Result<(), Rejection> {
    let start = Some(Timestamp::from_nanos(start));
    intake.take(
        stream("c_total", time),
        &[("i", "1")],
        &InputValue::Counter(total),
        Mode::Follow,
        start,
    )
}

/// Adds an increment with this time.
fn add(
    intake: &mut Intake,
    name: &str,
    input: &InputValue<'_>,
    time: u64,
) -> Result<(), Rejection> {
    intake.take(stream(name, time), &[("i", "1")], input, Mode::Add, None)
}

#[test]
fn an_increment_that_is_sent_again_counts_once() {
    let (registry, duplicate) = (Registry::new(), Err(Rejection::Duplicate));
    let mut intake = intake(&registry);
    let (zero_threshold, zero_count, exemplars) = (0.0, 1, &[][..]);
    let (positive, negative) = (&[(1, 2)][..], &[][..]);
    let native = Native::new(0)
        .zero(zero_threshold, zero_count)
        .positive(positive)
        .negative(negative)
        .exemplars(exemplars);
    let buckets = &[(1.0, 2.0), (f64::INFINITY, 1.0)];
    let values = [
        ("c_total", InputValue::Counter(2.0)),
        ("level", InputValue::Gauge(2.0)),
        ("took", InputValue::Histogram { buckets, sum: 2.0 }),
        ("size", InputValue::Native { buckets: native, sum: 2.0 }),
        ("old", InputValue::Summary { quantiles: &[], count: 3.0, sum: 2.0 }),
    ];
    for (name, input) in &values {
        let mut add = |time| add(&mut intake, name, input, time);
        assert_eq!((add(100), add(100)), (Ok(()), duplicate), "{name}");
        assert_eq!((add(200), add(100), add(200)), (Ok(()), duplicate, duplicate), "{name}");
        assert_eq!(add(201), Ok(()), "{name}");
    }
    has(
        &registry,
        &[
            "c_total{i=\"1\"} 6",
            "level{i=\"1\"} 6",
            "took_count{i=\"1\"} 9",
            "took_sum{i=\"1\"} 6",
            "size_count{i=\"1\"} 9",
            "old_count{i=\"1\"} 9",
        ],
    );
    // Other series, and increments without a time, are unaffected.
    let other = [("i", "2")];
    let one = InputValue::Counter(1.0);
    for time in [Some(Timestamp::from_nanos(100)), None, None] {
        let hits = Metric { time, ..stream("c_total", 0) };
        intake.take(hits, &other, &one, Mode::Add, None).unwrap();
    }
    has(&registry, &["c_total{i=\"2\"} 3"]);
}

#[test]
fn the_time_of_an_increment_costs_no_series_and_only_where_it_is_kept() {
    let registry = Registry::new();
    let mut intake = intake(&registry);
    let one = InputValue::Counter(1.0);
    for time in [100, 200, 200, 300] {
        let _ = add(&mut intake, "c_total", &one, time);
    }
    assert_eq!(intake.usage().series, 1);
    has(&registry, &["c_total{i=\"1\"} 3"]);
    // The family of other increments contains no cell for the time.
    intake.take(metric("d_total"), &[("i", "1")], &one, Mode::Add, None).unwrap();
    for (time, taken) in [
        (100, Ok(())),
        (100, Err(Rejection::Duplicate)),
        (50, Err(Rejection::Duplicate)),
        (200, Ok(())),
    ] {
        assert_eq!(add(&mut intake, "d_total", &one, time), taken);
    }
    has(&registry, &["d_total{i=\"1\"} 3"]);
    assert_eq!(intake.usage().series, 3);
    // A removed series leaves no times.
    intake.remove("d_total", &[("i", "1")]).unwrap();
    intake.remove("c_total", &[("i", "1")]).unwrap();
    intake.sweep().unwrap();
    assert_eq!(intake.usage().series, 0);
    for name in ["c_total", "d_total"] {
        assert_eq!(add(&mut intake, name, &one, 10), Ok(()));
    }
}

#[test]
fn last_increments_and_senders_are_there_when_the_file_is_opened_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("state");
    let one = InputValue::Counter(1.0);
    for round in 0..3 {
        let registry = Registry::open(&path).unwrap();
        let mut intake = intake(&registry);
        let taken = if round == 0 { Ok(()) } else { Err(Rejection::Duplicate) };
        assert_eq!(add(&mut intake, "d_total", &one, 100), taken);
        // Two senders are alive, and repeat their earlier totals, too.
        for time in [500, 510 + round] {
            follow(&mut intake, 7.0, 100, time).unwrap();
            follow(&mut intake, 5.0, 400, time).unwrap();
        }
        has(&registry, &["d_total{i=\"1\"} 1", "c_total{i=\"1\"} 12"]);
    }
}

#[test]
fn the_totals_of_senders_that_are_alive_add_up() {
    let registry = Registry::new();
    let mut intake = intake(&registry);
    // Two processes with the same identity send 100 each.
    for (total, start, time, shown, overlaps) in [
        (16.0, 100, 150, "16", 0),
        (40.0, 200, 250, "56", 0),
        (60.0, 100, 260, "100", 1),
        (100.0, 200, 350, "160", 1),
        // Again, and late.
        (60.0, 100, 260, "160", 2),
        (16.0, 100, 150, "160", 2),
        (40.0, 200, 250, "160", 2),
        (100.0, 100, 360, "200", 3),
        // A third sender, which began before both but sends later.
        (3.0, 50, 370, "203", 4),
        // A sender that began later, whose clock shows an earlier time.
        (4.0, 300, 340, "207", 4),
        (5.0, 300, 380, "208", 4),
        (101.0, 200, 385, "209", 5),
    ] {
        follow(&mut intake, total, start, time).unwrap();
        has(&registry, &[&format!("c_total{{i=\"1\"}} {shown}")]);
        assert_eq!(intake.overlaps(), overlaps, "{total}");
    }
    // Without streams, an earlier start is late.
    let late = Metric { streams: false, ..stream("c_total", 400) };
    let start = Some(Timestamp::from_nanos(50));
    intake.take(late, &[("i", "1")], &InputValue::Counter(90.0), Mode::Follow, start).unwrap();
    has(&registry, &["c_total{i=\"1\"} 209"]);
}

#[test]
fn histograms_and_summaries_of_senders_add_up() {
    let registry = Registry::new();
    let mut intake = intake(&registry);
    for (count, start, time) in [(1.0, 100, 210), (2.0, 200, 220), (4.0, 100, 230), (5.0, 200, 240)]
    {
        let buckets = &[(1.0, count), (f64::INFINITY, 1.0)];
        let took = InputValue::Histogram { buckets, sum: count };
        let old = InputValue::Summary { quantiles: &[(0.5, 1.0)], count, sum: count };
        for (name, input) in [("took", took), ("old", old)] {
            let start = Some(Timestamp::from_nanos(start));
            intake.take(stream(name, time), &[], &input, Mode::Follow, start).unwrap();
        }
    }
    has(&registry, &["took_bucket{le=\"1\"} 9", "took_count 11", "took_sum 9", "old_count 9"]);
}

#[test]
fn totals_of_senders_add_up_with_increments_and_into_sums() {
    let registry = Registry::new();
    let mut intake = intake(&registry);
    intake
        .take(metric("c_total"), &[("i", "1")], &InputValue::Counter(1000.0), Mode::Add, None)
        .unwrap();
    let sent = [(10.0, 100, 210), (5.0, 200, 220), (12.0, 100, 230), (6.0, 200, 240)];
    for (total, start, time) in sent {
        follow(&mut intake, total, start, time).unwrap();
        let (input, start) = (InputValue::Counter(total), Some(Timestamp::from_nanos(start)));
        let give = |intake: &mut Intake, grown: &InputValue<'_>| {
            intake.take(metric("sum"), &[], grown, Mode::Add, None)
        };
        intake.follow_into(stream("c_total", time), &[("i", "1")], &input, start, give).unwrap();
    }
    has(&registry, &["c_total{i=\"1\"} 1018", "sum 18"]);
}

#[test]
fn senders_that_may_have_been_forgotten_are_refused() {
    const MINUTE: u64 = 60_000_000_000;
    let registry = Registry::new();
    let mut intake = intake(&registry);
    // One sender is followed, and eight others own their places.
    for round in 1..3 {
        for sender in 1..10 {
            follow(&mut intake, round as f64, sender, round * MINUTE + sender).unwrap();
        }
    }
    has(&registry, &["c_total{i=\"1\"} 18"]);
    assert_eq!(intake.usage().series, 9);
    let mut tenth = |start, time| follow(&mut intake, 5.0, start, time);
    let earlier = tenth(0, 3 * MINUTE);
    assert_eq!(earlier, Ok(()), "without a start, it has no identity");
    assert_eq!(tenth(MINUTE + 5, 3 * MINUTE), Err(Rejection::Senders));
    // A sender that is silent gives up its place.
    assert_eq!(tenth(3 * MINUTE, 30 * MINUTE), Ok(()));
    assert_eq!(intake.usage().series, 9);
}

#[test]
fn a_sender_that_restarts_again_and_again_is_followed() {
    let registry = Registry::new();
    let mut intake = intake(&registry);
    for run in 1..100 {
        let start = run * 1000;
        for (total, time) in [(1.0, start + 100), (3.0, start + 900)] {
            follow(&mut intake, total, start, time).unwrap();
        }
    }
    has(&registry, &["c_total{i=\"1\"} 297"]);
    assert_eq!((intake.usage().series, intake.overlaps()), (9, 0));
    intake.remove("c_total", &[("i", "1")]).unwrap();
    assert_eq!(intake.usage().series, 0);
}

/// Senders begin, send, send again and end in any order. One thread after the other takes their
/// totals.
#[test]
fn random_senders_lose_nothing_and_double_nothing() {
    let mut state = 1_u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % below
    };
    for round in 0..if cfg!(miri) { 2 } else { 200 } {
        let registry = Registry::new();
        let mut intakes = [(); 3].map(|()| intake(&registry));
        for (at, clone) in (0..3).zip([0, 0, 0]) {
            intakes[at] = intakes[clone].clone();
        }
        // The starts of senders, with their totals; and the last total that each of them sent.
        let (mut senders, mut sent) = (BTreeMap::new(), Vec::new());
        for time in 1000..1200 {
            if senders.len() < 6 && random(10) == 0 || senders.is_empty() {
                senders.entry(time - random(300)).or_insert(0_u64);
            }
            let at = random(senders.len() as u64) as usize;
            let (&start, total) = senders.iter_mut().nth(at).unwrap();
            *total += random(5);
            let message = (*total, start, time);
            let intake = &mut intakes[random(3) as usize];
            follow(intake, message.0 as f64, start, time).unwrap();
            sent.push(message);
            let (total, start, time) = sent[random(sent.len() as u64) as usize];
            follow(intake, total as f64, start, time).unwrap();
            let sum: u64 = senders.values().sum();
            let labels = [("i", "1")];
            let mut shown = Vec::new();
            intake
                .read("c_total", &labels, |taken| shown.push(format!("{:?}", taken.value)))
                .unwrap();
            let expected = format!("Float({:?})", sum as f64);
            assert!(shown[0].contains(&expected), "round {round}: {shown:?}, not {sum}");
        }
    }
}

#[test]
fn a_source_without_room_for_places_still_restarts() {
    let registry = Registry::new();
    let limits = Limits { series: 1, ..Limits::default() };
    let mut intake = Intake::new(&registry, limits).unwrap();
    follow(&mut intake, 5.0, 100, 150).unwrap();
    follow(&mut intake, 3.0, 200, 250).unwrap();
    has(&registry, &["c_total{i=\"1\"} 8"]);
    // We cannot know how much this total has grown.
    assert_eq!(follow(&mut intake, 6.0, 100, 260), Err(Rejection::Series));
}

#[test]
fn a_sender_stays_followed_if_there_is_no_room_for_its_place() {
    let registry = Registry::new();
    let limits = Limits { series: 2, ..Limits::default() };
    let mut intake = Intake::new(&registry, limits).unwrap();
    intake.take(metric("other"), &[], &InputValue::Gauge(1.0), Mode::Set, None).unwrap();
    follow(&mut intake, 5.0, 100, 210).unwrap();
    for time in [220, 230] {
        assert_eq!(follow(&mut intake, 2.0, 200, time), Err(Rejection::Series));
    }
    follow(&mut intake, 6.0, 100, 240).unwrap();
    has(&registry, &["c_total{i=\"1\"} 6"]);
    intake.remove("other", &[]).unwrap();
    for (total, start, time, shown) in [(7.0, 100, 250, 7), (2.0, 200, 260, 9), (8.0, 100, 270, 10)]
    {
        follow(&mut intake, total, start, time).unwrap();
        has(&registry, &[&format!("c_total{{i=\"1\"}} {shown}")]);
    }
}

#[test]
fn a_sender_whose_first_total_cannot_be_added_takes_no_place() {
    let registry = Registry::new();
    let mut intake = intake(&registry);
    let mut follow = |total, start, time, refused| {
        let (input, start) = (InputValue::Counter(total), Some(Timestamp::from_nanos(start)));
        intake.follow_into(stream("c_total", time), &[], &input, start, |intake, grown| {
            let refused: Option<Rejection> = refused;
            refused.map_or(Ok(()), Err)?;
            intake.take(metric("sum"), &[], grown, Mode::Add, None)
        })
    };
    follow(5.0, 100, 300, None).unwrap();
    for time in 0..20 {
        let refused = Rejection::Series;
        assert_eq!(follow(2.0, 200, 310 + time, Some(refused)), Err(refused));
    }
    for (total, start, time) in [(6.0, 100, 400), (2.0, 200, 410), (7.0, 100, 420)] {
        follow(total, start, time, None).unwrap();
    }
    has(&registry, &["sum 9"]);
}

#[test]
fn increments_whose_times_cannot_be_kept_are_added() {
    let registry = Registry::new();
    let limits = Limits { series: 10, value_bytes: 10, ..Limits::default() };
    let mut intake = Intake::new(&registry, limits).unwrap();
    let mut add = |pod: &str| {
        intake.add_once(stream("c_total", 100), &[("pod", pod)], |intake| {
            intake.take(metric("sum"), &[], &InputValue::Counter(1.0), Mode::Add, None)
        })
    };
    for pod in 0..100 {
        assert_eq!(add(&pod.to_string()), Ok(()));
    }
    // A time that is kept is known.
    assert_eq!(add("0"), Err(Rejection::Duplicate));
    assert_eq!(add("a long value"), Ok(()));
    has(&registry, &["sum 101"]);
}
