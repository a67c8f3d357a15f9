//! Tests of InfluxDB's line protocol: types, units, the order of times, refusals, and a real
//! client.

use std::io::Write;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::common::lines::shown;
use crate::common::{Daemon, Home, Response};
use crate::python;

fn write(daemon: &Daemon, target: &str, lines: &str) -> Response {
    daemon.post_body(target, &[], lines.as_bytes())
}

fn refused(daemon: &Daemon, reason: &str) -> f64 {
    daemon.sample(&format!("quipu_input_refused_total{{input=\"influx\",reason=\"{reason}\"}}"))
}

fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

#[test]
fn fields_become_series_that_survive_a_kill() {
    let home = Home::new();
    let daemon = home.start(&[]);
    let lines = "cpu\\ use,host=web-1,my\\ tag=a\\,b user=0.5,system=2i,idle=3u,ok=t,name=\"x, \\\"y\n\
                 temp.air,room=a value=21.5 1700000000000000000\n# a comment\n\ndisk value=7i";
    // The quote is not closed, so the rest of the body belongs to the string.
    let response = write(&daemon, "/write?db=metrics&u=ada&p=secret", lines);
    response.expect_refusal(400, "0 taken, 1 refused");
    let lines = lines.replace("\\\"y", "\\\"y\"");
    for target in ["/write?db=metrics&precision=ns", "/api/v2/write?org=o&bucket=b"] {
        assert_eq!(write(&daemon, target, &lines).status, 204);
    }
    let expected = [
        "cpu_use_idle{host=\"web-1\",my_tag=\"a,b\"} 3",
        "cpu_use_ok{host=\"web-1\",my_tag=\"a,b\"} 1",
        "cpu_use_system{host=\"web-1\",my_tag=\"a,b\"} 2",
        "cpu_use_user{host=\"web-1\",my_tag=\"a,b\"} 0.5",
        "disk 7",
        "temp_air{room=\"a\"} 21.5",
    ];
    assert_eq!(shown(&daemon), expected);
    assert!(daemon.get("/metrics").text().contains("\n# TYPE disk untyped\n"));
    // A string field does not make the client retry the rest.
    assert_eq!(refused(&daemon, "text_field"), 2.0);
    daemon.kill();
    let daemon = home.start(&[]);
    assert_eq!(shown(&daemon), expected);
    daemon.stop();
}

#[test]
fn the_latest_value_counts_in_every_unit() {
    let home = Home::new();
    let daemon = home.start(&[]);
    let now = seconds();
    for (name, precision, time) in [
        ("ns", "", now * 1_000_000_000),
        ("us", "&precision=u", now * 1_000_000),
        ("ms", "&precision=ms", now * 1_000),
        ("s", "&precision=s", now),
        ("m", "&precision=m", now / 60),
        ("h", "&precision=h", now / 3600),
    ] {
        let target = format!("/write?db=a{precision}");
        let lines = format!("{name} value=1 {time}\n{name} value=2 {time}\n{name} value=9 1\n");
        // A value is refused if it is more than two hours older than the last one.
        let response = write(&daemon, &target, &lines);
        response.expect_refusal(400, "2 taken, 1 refused");
        assert_eq!(daemon.sample(name), 2.0, "{name}");
        let lines = format!("{name} value=3\n{name} value=9 {}\n", u64::MAX / 4);
        write(&daemon, &target, &lines).expect_refusal(400, "1 taken, 1 refused");
        assert_eq!(daemon.sample(name), 3.0, "{name}");
    }
    assert_eq!(refused(&daemon, "out_of_order"), 6.0);
    let response = write(&daemon, "/write?precision=d", "a value=1");
    response.expect_refusal(400, "give ns, us, ms, s, m or h");
    write(&daemon, "/write?color=red", "a value=1").expect_refusal(400, "unknown parameter");
    daemon.stop();
}

#[test]
fn a_line_that_is_refused_leaves_its_neighbours() {
    let home = Home::new();
    let daemon = home.start(&["--series-per-source", "10"]);
    let long = "x".repeat(70_000);
    // If a reason applies to every field of a line, for example too many tags, it is counted once.
    let tags: String = (0..100).map(|n| format!(",t{n}=v")).collect();
    let name = "n".repeat(600);
    let lines = format!(
        "a value=1\nb\nb,x value=1\nb value\nb value=x\nb value=1 x\n{long} value=1\n\
         b{tags} value=1,other=2,text=\"x\"\n{name} a=1,b=2\nc,t=1,t=2 value=1\n"
    );
    let response = write(&daemon, "/api/v2/write", &lines);
    assert_eq!(response.fields["content-type"], "application/json");
    let told: serde_json::Value = serde_json::from_str(&response.text()).unwrap();
    assert_eq!((response.status, &told["code"]), (400, &"invalid".into()));
    assert_eq!(told["message"], told["error"]);
    let message = told["message"].as_str().unwrap();
    assert!(message.starts_with("2 taken, 8 refused:\n"), "{message}");
    assert!(message.contains("influx: line 5, byte 8: expected a finite number"), "{message}");
    assert!(message.contains("influx: line 7 is longer than 64 KiB"), "{message}");
    for reason in [
        "malformed_line",
        "malformed_tag",
        "malformed_field",
        "malformed_value",
        "malformed_time",
        "line_too_long",
        "labels",
        "name",
    ] {
        assert_eq!(refused(&daemon, reason), 1.0, "{reason}");
    }
    assert_eq!(shown(&daemon), ["a 1", "c{t=\"2\"} 1"]);
    let many: String = (0..20).map(|n| format!("many,n={n} value=1\n")).collect();
    assert_eq!(write(&daemon, "/write", &many).status, 400);
    assert_eq!(shown(&daemon).len(), 10);
    daemon.stop();
}

/// Clients do not escape the line feeds in a string, so the author of the string could otherwise
/// add lines.
#[test]
fn no_part_of_a_text_counts() {
    let home = Home::new();
    let daemon = home.start(&[]);
    let lines = "log msg=\"x\nlogins,host=a value=9e9\n\",n=1 1700000000000000000\nafter value=1\n";
    assert_eq!(write(&daemon, "/write", lines).status, 204);
    // If a line is too long or invalid, no part of it counts either.
    let long = "x\n".repeat(40_000);
    let lines = format!(
        "log msg=\"{long}\nlogins value=9\n\",n=2\nlast value=1\nlog,x msg=\"\nlogins value=9\n\"\n"
    );
    write(&daemon, "/write", &lines).expect_refusal(400, "1 taken, 2 refused");
    let lines = "open value=1\nlog msg=\"x\nlogins value=9";
    write(&daemon, "/write", lines).expect_refusal(400, "1 taken, 1 refused");
    assert_eq!(shown(&daemon), ["after 1", "last 1", "log_n 1", "open 1"]);
    let reasons = ["text_field", "line_too_long", "malformed_tag", "malformed_value"];
    assert_eq!(reasons.map(|reason| refused(&daemon, reason)), [1.0; 4]);
    daemon.stop();
}

#[test]
fn a_large_body_is_read_piece_by_piece() {
    let home = Home::new();
    let daemon = home.start(&[]);
    let lines: String = (0..5_000).map(|n| format!("big,n={n} value={n},text=\"{n}\"\n")).collect();
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(lines.as_bytes()).unwrap();
    let gzip = encoder.finish().unwrap();
    let fields = [("Content-Encoding", "gzip")];
    assert_eq!(daemon.post_body("/api/v2/write", &fields, &gzip).status, 204);
    assert_eq!(daemon.sample("big{n=\"4999\"}"), 4999.0);
    assert_eq!(daemon.sample("quipu_input_samples_total{input=\"influx\"}"), 5000.0);
    let response = daemon.post_body("/write", &fields, &gzip[..gzip.len() / 2]);
    response.expect_refusal(400, "Content-Encoding says, gzip");
    // The last line of a truncated body can be incomplete.
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(b"whole value=12\nhalf value=12").unwrap();
    let mut cut = encoder.finish().unwrap();
    cut.extend(b"\x1f\x8b damaged");
    daemon.post_body("/write", &fields, &cut).expect_refusal(400, "1 taken");
    assert_eq!(daemon.sample("whole"), 12.0);
    assert!(!daemon.get("/metrics").text().contains("\nhalf "));
    daemon.stop();
}

#[test]
fn a_real_client_is_understood() {
    let home = Home::new();
    let daemon = home.start(&[]);
    let script = "import sys\n\
                  from influxdb_client import InfluxDBClient, Point\n\
                  from influxdb_client.client.write_api import SYNCHRONOUS\n\
                  from influxdb_client.rest import ApiException\n\
                  with InfluxDBClient(sys.argv[1], token='t', org='o', enable_gzip=True) as client:\n\
                  \x20   write = client.write_api(write_options=SYNCHRONOUS)\n\
                  \x20   point = Point('room air').tag('floor', 'a b').field('temp', 21.5)\n\
                  \x20   write.write('b', record=point.field('people', 3).field('open', True))\n\
                  \x20   write.write('b', record=[Point('other').field('value', -1)])\n\
                  \x20   try:\n\
                  \x20       write.write('b', record='bad')\n\
                  \x20   except ApiException as error:\n\
                  \x20       assert error.status == 400 and 'line 1, byte 3' in str(error), error\n\
                  \x20   else:\n\
                  \x20       raise SystemExit('it was taken')\n";
    let python = python::with("python-influx", "tests/daemon/influx.txt");
    let url = format!("http://{}", daemon.address());
    let status = Command::new(python).args(["-c", script, &url]).status().unwrap();
    assert!(status.success(), "{status}");
    assert_eq!(
        shown(&daemon),
        [
            "other -1",
            "room_air_open{floor=\"a b\"} 1",
            "room_air_people{floor=\"a b\"} 3",
            "room_air_temp{floor=\"a b\"} 21.5",
        ]
    );
    daemon.stop();
}
