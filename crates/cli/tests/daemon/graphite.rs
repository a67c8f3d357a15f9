//! Tests of Graphite's plaintext protocol: the transports, the order of times, the mapping file,
//! restarts, a real client, and refused lines.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream, UdpSocket};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::common::lines::{self, Listeners, shown};
use crate::common::{Daemon, Home};
use crate::python;

/// Returns the address of a listener at a port of the home's host.
fn listener(home: &Home, transport: &str) -> String {
    format!("{transport}://{}:2003", home.host())
}

/// Sends lines over a new connection, and waits until they were read.
fn send(home: &Home, lines: &str) {
    let mut stream = TcpStream::connect((home.host(), 2003)).unwrap();
    stream.write_all(lines.as_bytes()).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(stream.read(&mut [0]).unwrap(), 0);
}

fn wait_for_lines(daemon: &Daemon, lines: f64) {
    lines::wait_for_lines(daemon, "graphite", lines);
}

fn refused(daemon: &Daemon, reason: &str) -> f64 {
    daemon.sample(&format!("quipu_input_refused_total{{input=\"graphite\",reason=\"{reason}\"}}"))
}

fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

#[test]
fn values_survive_a_kill_over_every_transport() {
    let home = Home::new();
    let listeners = Listeners::new(&home, "graphite", 2003);
    let daemon = listeners.start(&home);
    let udp = UdpSocket::bind((home.host(), 0)).unwrap();
    udp.send_to(b"over.udp 1 -1\n1.b-c 2.5 N", (home.host(), 2003)).unwrap();
    let local = UnixDatagram::unbound().unwrap();
    local.send_to(b"local;rack=a;host=web-1 -3 -1\n", &listeners.datagrams).unwrap();
    let mut unix = UnixStream::connect(&listeners.stream).unwrap();
    unix.write_all(b"unix\t4\t-1\r\n\r\n").unwrap();
    // A line in two pieces, and a line without a line feed.
    let mut tcp = TcpStream::connect((home.host(), 2003)).unwrap();
    tcp.write_all(b"tcp;a=b;c= 5").unwrap();
    tcp.write_all(b" -1\nlast 6e3 -1").unwrap();
    tcp.shutdown(Shutdown::Write).unwrap();
    wait_for_lines(&daemon, 6.0);
    let expected = [
        "_1_b_c 2.5",
        "last 6000",
        "local{host=\"web-1\",rack=\"a\"} -3",
        "over_udp 1",
        "tcp{a=\"b\"} 5",
        "unix 4",
    ];
    assert_eq!(shown(&daemon), expected);
    let text = daemon.get("/metrics").text();
    assert!(text.contains("# TYPE over_udp gauge\n"), "{text}");
    assert_eq!(daemon.sample("quipu_graphite_samples_total"), 6.0);
    assert_eq!(daemon.sample("quipu_graphite_tag_errors_total"), 1.0);
    assert_eq!(daemon.sample("quipu_input_samples_total{input=\"graphite\"}"), 6.0);
    daemon.kill();
    let daemon = listeners.start(&home);
    assert_eq!(shown(&daemon), expected);
    daemon.stop();
    assert_eq!(listeners.sockets_exist(), [false; 2]);
}

#[test]
fn the_latest_value_counts_and_of_one_time_the_last() {
    let home = Home::new();
    let daemon = home.start(&["--graphite", &listener(&home, "tcp")]);
    let now = seconds();
    let at = |ago: u64| now - ago;
    send(&home, &format!("a;t=1 1 {}\na;t=2 2 {}\n", at(60), at(60)));
    // Times are whole seconds, so the last of several values with the same time counts, even if it
    // repeats an earlier value.
    send(&home, &format!("a;t=2 3 {0}\na;t=2 2 {0}\n", at(60)));
    // Older values that arrive later do not change anything.
    send(&home, &format!("a;t=1 9 {}\na;t=1 4 {}\na;t=1 9 {}\n", at(61), at(59), at(3600)));
    wait_for_lines(&daemon, 7.0);
    assert_eq!(shown(&daemon), ["a{t=\"1\"} 4", "a{t=\"2\"} 2"]);
    let far = now + 3600;
    send(&home, &format!("a;t=1 5 {}\na;t=1 5 {far}\na;t=1 6 -1\n", at(3 * 3600)));
    wait_for_lines(&daemon, 10.0);
    assert_eq!(shown(&daemon), ["a{t=\"1\"} 6", "a{t=\"2\"} 2"]);
    assert_eq!([refused(&daemon, "out_of_order"), refused(&daemon, "too_new")], [1.0, 1.0]);
    daemon.stop();
}

#[test]
fn a_line_that_is_refused_leaves_its_neighbours() {
    let home = Home::new();
    let daemon = home.start(&["--graphite", &listener(&home, "tcp")]);
    let long = "x".repeat(20_000);
    let tags: String = (0..100).map(|n| format!(";t{n}=v")).collect();
    let lines = format!(
        "a 1 -1\nb\nb 1\nb 1 2 3\nb x -1\nb nan -1\nb 1 x\n{long} 1 -1\nb{tags} 1 -1\nc 1 -1\n"
    );
    send(&home, &lines);
    let mut stream = TcpStream::connect((home.host(), 2003)).unwrap();
    stream.write_all(b"b\xff 1 -1\nd 1 -1\n").unwrap();
    // These bytes would be a packet length in the protocol of Datadog's clients, but here they are
    // a line.
    let mut zeros = TcpStream::connect((home.host(), 2003)).unwrap();
    zeros.write_all(b"\x08\0\0\0\ne 1 -1\n").unwrap();
    wait_for_lines(&daemon, 14.0);
    assert_eq!(shown(&daemon), ["a 1", "c 1", "d 1", "e 1"]);
    for (reason, lines) in [
        ("malformed_line", 5.0),
        ("malformed_value", 2.0),
        ("malformed_time", 1.0),
        ("line_too_long", 1.0),
        ("labels", 1.0),
    ] {
        assert_eq!(refused(&daemon, reason), lines, "{reason}");
    }
    let told = daemon.get("/refused").text();
    assert!(told.contains("byte 4: expected a time in seconds"), "{told}");
    daemon.stop();
}

#[test]
fn a_mapping_file_names_and_labels() {
    let home = Home::new();
    let mapping = "
mappings:
- match: servers.*.cpu.*.load
  name: cpu_load
  help: Load of a processor.
  labels: {host: $1, cpu: $2, rack: none}
- {match: disk.*, name: disk_bytes, labels: {host: $1}, scale: 1024, honor_labels: true}
- {match: counted.*, name: never, match_metric_type: counter}
- {match: 'secret\\..*', match_type: regex, action: drop, name: dropped}
";
    fs::write(home.path("mapping.yml"), mapping).unwrap();
    let address = listener(&home, "tcp");
    let daemon = home.start(&["--graphite", &address, "--graphite-mapping", "mapping.yml"]);
    send(
        &home,
        "servers.web-1.cpu.0.load;rack=a 0.5 -1\ndisk.a;host=b 2 -1\ncounted.x 1 -1\nsecret.x 1 -1\n\
         disk.a;host=b -1e308 -1\n",
    );
    wait_for_lines(&daemon, 5.0);
    assert_eq!(
        shown(&daemon),
        [
            "counted_x 1",
            "cpu_load{cpu=\"0\",host=\"web-1\",rack=\"none\"} 0.5",
            "disk_bytes{host=\"b\"} 2048",
        ]
    );
    assert!(daemon.get("/metrics").text().contains("# HELP cpu_load Load of a processor.\n"));
    assert_eq!(daemon.sample("quipu_graphite_samples_dropped_total"), 1.0);
    // The number is out of range.
    assert_eq!(refused(&daemon, "malformed_value"), 1.0);
    daemon.stop();
}

#[test]
fn a_real_client_is_understood() {
    let home = Home::new();
    let flags = [listener(&home, "tcp"), listener(&home, "udp")];
    let arguments: Vec<&str> = flags.iter().flat_map(|flag| ["--graphite", flag]).collect();
    let daemon = home.start(&arguments);
    let script = "import sys, graphyte\n\
                  for protocol in ('tcp', 'udp'):\n\
                  \x20   sender = graphyte.Sender(sys.argv[1], prefix='app', protocol=protocol)\n\
                  \x20   sender.send(f'{protocol}.level', 21.5, tags={'room': 'a', 'floor': 2})\n\
                  \x20   sender.send(f'{protocol}.jobs', 3, timestamp=1700000000)\n";
    let python = python::with("python-graphite", "tests/daemon/graphite.txt");
    let status = Command::new(python).args(["-c", script, home.host()]).status().unwrap();
    assert!(status.success(), "{status}");
    wait_for_lines(&daemon, 4.0);
    assert_eq!(
        shown(&daemon),
        [
            "app_tcp_jobs 3",
            "app_tcp_level{floor=\"2\",room=\"a\"} 21.5",
            "app_udp_jobs 3",
            "app_udp_level{floor=\"2\",room=\"a\"} 21.5",
        ]
    );
    daemon.stop();
}

#[test]
fn faults_at_the_start_name_the_flag_and_the_way_out() {
    let home = Home::new();
    let listen = format!("{}:0", home.host());
    let parts = ["cannot use --graphite unix:none/g", "create its directory"];
    home.expect_refusal(&["--listen", &listen, "--graphite", "unix:none/g"], 1, &parts);
    fs::write(home.path("m.yml"), "mappings:\n- match: a").unwrap();
    let parts = ["cannot use --graphite-mapping m.yml, line 2", "`name`"];
    home.expect_refusal(&["--check-config", "--graphite-mapping", "m.yml"], 2, &parts);
    home.expect_refusal(&["--graphite", "2003"], 2, &["--graphite", "tcp://HOST:PORT"]);
    assert_eq!(home.files(), ["m.yml"]);
}
