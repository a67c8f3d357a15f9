//! Tests of the message formats of quipu-wire: every format, and every kind of message.

use quipu_wire::{
    AnyFormat, BatchTimer, Counter, Framing, Gauge, Message, MetricType, MetricUnion,
};

use crate::common::{Daemon, Home, Response};

fn ingest(daemon: &Daemon, parameters: &str, body: &[u8]) -> Response {
    daemon.post_body(&format!("/ingest{parameters}"), &[], body)
}

fn stream<'m>(format: AnyFormat, framing: Framing, messages: &[Message<'m>]) -> Vec<u8> {
    let mut encoder = format.encoder(framing);
    let mut out = Vec::new();
    for message in messages {
        encoder.append(&message.to_union().into(), &mut out).unwrap();
    }
    encoder.flush(&mut out);
    out
}

#[test]
fn every_format_is_taken_and_a_kill_loses_nothing() {
    let home = Home::new();
    let daemon = home.start(&[]);
    let mut sent = 0.0;
    for format in AnyFormat::all() {
        let messages = [
            Counter { id: b"name=hits,region=eu", value: 3 }.into(),
            Gauge { id: b"level{room=\"a\"}", value: sent }.into(),
            BatchTimer { id: b"api.took", values: &[1.0, 2.0, 3.0] }.into(),
        ];
        let body = stream(format, Framing::Own, &messages);
        let response = ingest(&daemon, &format!("?format={}", format.as_str()), &body);
        assert_eq!(response.status, 204, "{}: {response:?}", format.as_str());
        sent += 1.0;
    }
    let mut daemon = daemon;
    for is_restarted in [false, true] {
        if is_restarted {
            daemon.kill();
            daemon = home.start(&[]);
        }
        assert_eq!(daemon.sample("hits{region=\"eu\"}"), 3.0 * sent);
        assert_eq!(daemon.sample("level{room=\"a\"}"), sent - 1.0);
        assert_eq!(daemon.sample("api_took_count"), 3.0 * sent);
        assert_eq!(daemon.sample("api_took_sum"), 6.0 * sent);
        for (quantile, value) in [("0", 1.0), ("0.5", 2.0), ("1", 3.0)] {
            let shown = daemon.sample(&format!("api_took{{quantile=\"{quantile}\"}}"));
            assert!((shown / value - 1.0_f64).abs() < 0.012, "{quantile} {shown}");
        }
    }
}

#[test]
fn one_message_and_other_kinds_and_framings_are_taken() {
    let home = Home::new();
    let daemon = home.start(&[]);
    let protobuf = "protobuf".parse::<AnyFormat>().unwrap();
    let mut one = Vec::new();
    let hits = Counter { id: b"hits", value: 100 };
    protobuf.encode(&hits.into(), &mut one).unwrap();
    let fields = [("Content-Type", "application/x-protobuf; charset=x")];
    let target = "/ingest?message=counter&framing=none";
    assert_eq!(daemon.post_body(target, &fields, &one).status, 204);
    let framed = [&(one.len() as u32).to_le_bytes()[..], &one].concat();
    let target = "?format=protobuf&message=counter&framing=u32le";
    assert_eq!(ingest(&daemon, target, &framed.repeat(2)).status, 204);
    assert_eq!(daemon.sample("hits"), 300.0);
    for timers in ["histogram", "native"] {
        let id = format!("name=took_{timers}");
        let timer = BatchTimer { id: id.as_bytes(), values: &[0.3, 7.0] };
        let mut body = Vec::new();
        "json".parse::<AnyFormat>().unwrap().encode(&timer.into(), &mut body).unwrap();
        let target = format!("?format=json&message=batch-timer&timers={timers}");
        assert_eq!(ingest(&daemon, &target, &body).status, 204);
        assert_eq!(daemon.sample(&format!("took_{timers}_count")), 2.0);
    }
    assert_eq!(daemon.sample("took_histogram_bucket{le=\"0.5\"}"), 1.0);
    for (parameters, status, part) in [
        ("", 415, "add ?format=NAME"),
        ("?format=xml", 400, "use one of quipu"),
        ("?format=json&message=x", 400, "counter, batch-timer, gauge or union"),
        ("?format=json&framing=x", 400, "own, u32le, varint or none"),
        ("?format=json&timers=x", 400, "summary, histogram or native"),
    ] {
        ingest(&daemon, parameters, b"").expect_refusal(status, part);
    }
}

#[test]
fn a_message_that_is_wrong_leaves_its_neighbours() {
    let home = Home::new();
    let daemon = home.start(&[]);
    let good: Message<'_> = Counter { id: b"good", value: 1 }.into();
    let both = MetricUnion {
        metric_type: MetricType::COUNTER,
        id: b"both",
        counter: 1,
        timer: &[],
        gauge: 1.0,
    };
    let messages = [
        good,
        Counter { id: b"down", value: -1 }.into(),
        both.into(),
        Gauge { id: b"a{", value: 1.0 }.into(),
        Gauge { id: b"a{b}", value: 1.0 }.into(),
        Gauge { id: b"\xff", value: 1.0 }.into(),
        BatchTimer { id: b"took", values: &[1.0, f64::NAN] }.into(),
        good,
    ];
    let format = "quipu".parse::<AnyFormat>().unwrap();
    let response = ingest(&daemon, "?format=quipu", &stream(format, Framing::Own, &messages));
    // A block of the stream contains counters first, then batch timers, gauges and unions.
    for part in [
        "3 taken, 5 refused",
        "message 2, at byte ",
        "the value is negative",
        "message 4, at byte ",
        "the id is not of the form name{label=\"value\"}: \"a{b}\"",
        "message 7, at byte ",
        "the id is not UTF-8",
        "message 8, at byte ",
        "a union needs the type of a metric",
    ] {
        response.expect_refusal(400, part);
    }
    assert_eq!(daemon.sample("good"), 2.0);
    // If lengths mark the start of the next message, an unreadable message is skipped.
    let format = "bson".parse::<AnyFormat>().unwrap();
    let body = stream(format, Framing::U32Le, &[good]);
    let bad = [&3_u32.to_le_bytes()[..], b"bad"].concat();
    let whole = [&body[..], &bad, &body, &body[..body.len() - 1]].concat();
    let response = ingest(&daemon, "?format=bson&framing=u32le", &whole);
    response.expect_refusal(400, "2 taken, 2 refused:\nmessage 2: bson");
    assert_eq!(daemon.sample("good"), 4.0);
    let refused = "quipu_input_refused_total{input=\"ingest\",reason=\"malformed\"}";
    assert_eq!(daemon.sample(refused), 2.0);
}

#[test]
fn large_messages_are_taken_in_steps_and_long_ids_are_refused() {
    let home = Home::new();
    let daemon = home.start(&[]);
    let values: Vec<f64> = (0..100_000).map(|index| f64::from(index % 10)).collect();
    let mut wrong = values[..1000].to_vec();
    wrong[500] = f64::NAN;
    let long = vec![b'a'; 1 << 20];
    let messages = [
        Counter { id: b"hits", value: 1 }.into(),
        BatchTimer { id: b"took", values: &values }.into(),
        BatchTimer { id: b"cut", values: &wrong }.into(),
        Counter { id: &long, value: 1 }.into(),
        BatchTimer { id: b"a{b}", values: &wrong }.into(),
        Counter { id: b"hits", value: 2 }.into(),
    ];
    let format = "quipu".parse::<AnyFormat>().unwrap();
    let response = ingest(&daemon, "?format=quipu", &stream(format, Framing::Own, &messages));
    for part in [
        "3 taken, 3 refused",
        "message 3, at byte ",
        "message 4, at byte ",
        "the id has more than 65,536 bytes",
    ] {
        response.expect_refusal(400, part);
    }
    assert_eq!(daemon.sample("hits"), 3.0);
    assert_eq!(daemon.sample("took_count"), 100_000.0);
    assert_eq!(daemon.sample("took_sum"), 450_000.0);
    assert_eq!(daemon.sample("cut_count"), 500.0);
}
