//! Tests of a full state: clients are asked to retry, and the log explains the reason.

use std::fs;

use quipu_wire::remote::write::SeriesType;

use crate::common::{Daemon, Home, Response};
use crate::writes;

/// Returns `count` lines of series with this name. Each series takes much space.
fn lines(name: &str, count: usize) -> String {
    let long = "x".repeat(200);
    (0..count).map(|n| format!("{name}{{n=\"{n}\",l=\"{long}\"}} 1\n")).collect()
}

/// Starts a daemon whose state cannot grow and contains no gap.
fn full(home: &Home) -> Daemon {
    let daemon = home.start(&[]);
    assert_eq!(daemon.post_body(IMPORT, &[], b"known 1\n").status, 204);
    daemon.limit_file_size(fs::metadata(home.state()).unwrap().len());
    for number in 0..1000 {
        let lines = lines(&format!("fills_{number}"), 1000);
        let response = daemon.post_body(IMPORT, &[], lines.as_bytes());
        if response.text().starts_with("0 taken") {
            return daemon;
        }
    }
    panic!("the state never fills up")
}

const IMPORT: &str = "/api/v1/import/prometheus";

#[track_caller]
fn expect_again(response: &Response) {
    response.expect_refusal(503, "the state has no room");
    assert_eq!(response.fields["retry-after"], "1");
}

#[test]
fn clients_are_asked_to_send_again() {
    let home = Home::new();
    let daemon = full(&home);
    expect_again(&daemon.post_body(IMPORT, &[], lines("a", 10).as_bytes()));
    expect_again(&daemon.post_body("/write", &[], b"b v=1\n"));
    expect_again(&daemon.post_body("/ingest?format=statsd", &[], b"c:1|c\n"));
    expect_again(&daemon.post_body("/metrics/job/d", &[], lines("d", 10).as_bytes()));
    expect_again(&daemon.post_body("/metrics/job/d?mode=add", &[], lines("d", 10).as_bytes()));
    let request = writes::two(&[(&[("__name__", "e")], SeriesType::Gauge, 1.0, writes::now_ms())]);
    expect_again(&writes::write(&daemon, writes::TWO, &request));
    let logged = daemon.wait_for(
        "metrics are refused because the state has no room: free some \
                                  space on its disk, or raise --input-bytes with a new state",
    );
    assert_eq!(logged["input"], "import");
    // Existing series still count.
    assert_eq!(daemon.post_body(IMPORT, &[], b"known 2\n").status, 204);
}

#[test]
fn a_part_that_would_count_twice_is_not_asked_for() {
    let home = Home::new();
    let daemon = full(&home);
    // For a moment, the file can grow.
    daemon.limit_file_size(u64::MAX >> 1);
    assert_eq!(daemon.post_body("/ingest?format=statsd", &[], b"a:1|c\n").status, 204);
    daemon.limit_file_size(fs::metadata(home.state()).unwrap().len());
    let messages: String = (0..10_000).map(|n| format!("a:1|c\nb{n}:1|c\n")).collect();
    let response = daemon.post_body("/ingest?format=statsd", &[], messages.as_bytes());
    response.expect_refusal(400, "the state has no room");
}
