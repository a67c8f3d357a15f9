//! Tests of StatsD and DogStatsD: transports, types, the mapping file, restarts, and refusals.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::unix::net::{UnixDatagram, UnixStream};

use crate::common::lines::{self, Listeners, shown};
use crate::common::{Daemon, Home, wait_until};

/// The arguments for a listener at a port of the home's address.
fn listener(home: &Home, transport: &str) -> String {
    format!("{transport}://{}:9125", home.host())
}

fn udp(home: &Home) -> UdpSocket {
    let socket = UdpSocket::bind((home.host(), 0)).unwrap();
    socket.connect((home.host(), 9125)).unwrap();
    socket
}

/// Waits until the daemon has received this many lines.
fn wait_for_lines(daemon: &Daemon, lines: f64) {
    lines::wait_for_lines(daemon, "statsd", lines);
}

#[test]
fn every_type_arrives_over_udp() {
    let home = Home::new();
    let daemon = home.start(&["--statsd", &listener(&home, "udp")]);
    let socket = udp(&home);
    for packet in [
        "requests.total:3|c|#code:200,route:/a\nrequests.total:1.5|c|@0.5|#route:/a,code:200\n",
        "queue:10|g\nqueue:-3|g\nqueue:+0.5|g",
        "meter:2|m\nempty.tag:1|c|#a:,b:c",
        "took:250|ms\ntook:500|ms|@0.1",
        "size:1:2:3|h\nsize:4|d\n",
        "influx,a=b,c=d:1|c\nlibrato#a=b:1|c\nsig[a=b]nal:1|c",
        "later:1|c|T1656581400|c:abc|e:x",
    ] {
        socket.send(packet.as_bytes()).unwrap();
    }
    wait_for_lines(&daemon, 15.0);
    let quantile = |name: &str| format!("{name}{{quantile=");
    let shown = shown(&daemon);
    let plain: Vec<_> = shown.iter().filter(|line| !line.contains("quantile=")).collect();
    assert_eq!(
        plain,
        [
            "empty_tag{b=\"c\"} 1",
            "influx{a=\"b\",c=\"d\"} 1",
            "later 1",
            "librato{a=\"b\"} 1",
            "meter 2",
            "queue 7.5",
            "requests_total{code=\"200\",route=\"/a\"} 6",
            "signal{a=\"b\"} 1",
            "size_count 4",
            "size_sum 10",
            "took_count 11",
            "took_sum 5.25",
        ]
    );
    for name in ["size", "took"] {
        let quantiles = shown.iter().filter(|line| line.starts_with(&quantile(name)));
        assert_eq!(quantiles.count(), 3, "{shown:#?}");
    }
    let sample = |name: &str| daemon.sample(&format!("quipu_statsd_{name}"));
    assert_eq!(sample("samples_total{type=\"counter\"}"), 7.0);
    assert_eq!(sample("samples_total{type=\"timer\"}"), 2.0);
    assert_eq!(sample("tag_errors_total"), 1.0);
    assert_eq!(sample(&format!("packets_total{{listener=\"{}\"}}", listener(&home, "udp"))), 7.0);
    daemon.stop();
}

#[test]
fn a_line_that_is_refused_leaves_its_neighbours() {
    let home = Home::new();
    let daemon = home.start(&["--statsd", &listener(&home, "udp"), "--statsd-suffixes"]);
    let socket = udp(&home);
    let packet =
        b"a:1|c\nbad\nb:-1|c\nc:x|g\nd:1|s\n\xff:1|c\n_e{1,1}:a|b\n_sc|a|0\ne:1|c|@2\nf:1|c";
    socket.send(packet).unwrap();
    let mut long = b"long:1|c|#".to_vec();
    long.extend((0..100).flat_map(|n| format!("t{n}:1,").into_bytes()));
    socket.send(&long).unwrap();
    wait_for_lines(&daemon, 11.0);
    assert_eq!(shown(&daemon), ["a_total 1", "f_total 1"]);
    let refused = |reason: &str| {
        daemon.sample(&format!("quipu_input_refused_total{{input=\"statsd\",reason=\"{reason}\"}}"))
    };
    assert_eq!(refused("malformed_line"), 2.0);
    for reason in
        ["illegal_negative_counter", "malformed_value", "set", "invalid_sample_factor", "labels"]
    {
        assert_eq!(refused(reason), 1.0, "{reason}");
    }
    assert_eq!(daemon.sample("quipu_statsd_events_total{kind=\"event\"}"), 1.0);
    assert_eq!(daemon.sample("quipu_statsd_events_total{kind=\"service_check\"}"), 1.0);
    daemon.stop();
}

/// The limit on series per source keeps one client from using up the space of the others.
#[test]
fn a_client_with_too_many_series_leaves_room_for_others() {
    let home = Home::new();
    let address = listener(&home, "udp");
    let daemon = home.start(&["--statsd", &address, "--series-per-source", "2"]);
    let (one, other) = (udp(&home), UdpSocket::bind("127.0.0.1:0").unwrap());
    one.send(b"a:1|c\nb:1|c\nc:1|c\na:1|c").unwrap();
    other.send_to(b"d:1|c", (home.host(), 9125)).unwrap();
    wait_for_lines(&daemon, 5.0);
    assert_eq!(shown(&daemon), ["a 2", "b 1", "d 1"]);
    // The form of this packet is cached, and refused lines are refused again.
    one.send(b"c:1|c\na:1|c\nb:1|c|#e:f").unwrap();
    wait_for_lines(&daemon, 8.0);
    assert_eq!(shown(&daemon), ["a 3", "b 1", "d 1"]);
    let limit = "quipu_input_refused_total{input=\"statsd\",reason=\"source_series_limit\"}";
    assert_eq!(daemon.sample(limit), 3.0);
    let refused = daemon.get("/refused").text();
    assert!(refused.contains("source_series_limit") && refused.contains(home.host()), "{refused}");
    daemon.stop();
}

/// The limit on families per source keeps one client from using up the names of the others.
#[test]
fn a_client_that_makes_up_names_leaves_room_for_those_of_others() {
    let home = Home::new();
    let address = listener(&home, "udp");
    let daemon = home.start(&["--statsd", &address, "--families", "8", "--threads", "2"]);
    let (one, other) = (udp(&home), UdpSocket::bind("127.0.0.1:0").unwrap());
    for name in 0..20 {
        one.send(format!("made_up_{name}:1|c").as_bytes()).unwrap();
    }
    wait_for_lines(&daemon, 20.0);
    other.send_to(b"a:1|c", (home.host(), 9125)).unwrap();
    // Its existing names continue to count.
    one.send(b"made_up_0:1|c\nb:1|c").unwrap();
    wait_for_lines(&daemon, 23.0);
    let lines = shown(&daemon);
    assert_eq!(lines.len(), 7, "{lines:?}");
    assert!(lines.contains(&"a 1".into()) && lines.contains(&"made_up_0 2".into()), "{lines:?}");
    let limit = "quipu_input_refused_total{input=\"statsd\",reason=\"source_families_limit\"}";
    assert_eq!(daemon.sample(limit), 15.0);
    daemon.stop();
}

/// Raises the limit on open files, which is often 1024, to the maximum that the system allows.
fn raise_open_files() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
}

#[test]
fn connections_are_bounded_in_lines_and_number() {
    raise_open_files();
    let home = Home::new();
    let daemon = home.start(&["--statsd", &listener(&home, "tcp")]);
    let connect = || TcpStream::connect((home.host(), 9125)).unwrap();
    let mut client = connect();
    let mut input = b"first:1|c\nlong:".to_vec();
    input.resize(100_000, b'1');
    input.extend_from_slice(b"|c\nlast:1|c\n");
    client.write_all(&input).unwrap();
    wait_for_lines(&daemon, 3.0);
    assert_eq!(shown(&daemon), ["first 1", "last 1"]);
    assert!(daemon.get("/metrics").text().contains("reason=\"line_too_long\"} 1\n"));

    let others: Vec<_> = (1..1024).map(|_| connect()).collect();
    let (address, metric) = (listener(&home, "tcp"), "quipu_statsd_connections");
    let open = format!("{metric}_open{{listener=\"{address}\"}}");
    wait_until("all connections are open", || daemon.sample(&open) == 1024.0);
    // The other connections sent no lines, so one of them gives way.
    let mut late = connect();
    late.write_all(b"late:1|c\n").unwrap();
    wait_for_lines(&daemon, 4.0);
    let gave_way = format!("{metric}_gave_way_total{{listener=\"{address}\"}}");
    assert_eq!([daemon.sample(&gave_way), daemon.sample(&open)], [1.0, 1024.0]);
    client.write_all(b"more:1|c\n").unwrap();
    drop(others);
    wait_until("the connections end", || daemon.sample(&open) == 2.0);
    assert_eq!(shown(&daemon), ["first 1", "last 1", "late 1", "more 1"]);
    daemon.stop();
}

#[test]
fn a_client_that_has_all_connections_gives_way_to_others_and_loses_no_line() {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    use rustix::process::Signal;

    raise_open_files();
    let home = Home::new();
    let daemon = home.start(&["--statsd", &listener(&home, "tcp")]);
    let connect_from = |host: &str| {
        let [from, to] = [(host, 0), (home.host(), 9125)]
            .map(|(host, port)| SocketAddr::new(host.parse().unwrap(), port));
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&socket, &from).unwrap();
        connect(&socket, &to).unwrap();
        TcpStream::from(socket)
    };
    let mut greedy: Vec<_> = (0..1024).map(|_| connect_from("127.0.0.1")).collect();
    for client in &mut greedy {
        client.write_all(b"greedy:1|c\n").unwrap();
    }
    wait_for_lines(&daemon, 1024.0);
    // All connections are in use.
    assert_eq!(connect_from("127.0.0.1").read(&mut [0]).unwrap(), 0);

    // The daemon accepts a connection even while there are unread lines.
    daemon.signal(Signal::STOP);
    let mut other = connect_from("127.0.0.2");
    other.write_all(b"other:1|c\n").unwrap();
    for client in &mut greedy {
        client.write_all(b"greedy:1|c\n").unwrap();
    }
    daemon.signal(Signal::CONT);
    wait_for_lines(&daemon, 2049.0);
    assert_eq!(shown(&daemon), ["greedy 2048", "other 1"]);
    let count = |name: &str| {
        let address = listener(&home, "tcp");
        daemon.sample(&format!("quipu_statsd_connections_{name}{{listener=\"{address}\"}}"))
    };
    assert_eq!(["open", "gave_way_total", "refused_total"].map(count), [1024.0, 1.0, 1.0]);
    daemon.stop();
}

/// Counters continue from their totals after a kill, for UDP, TCP and both kinds of unix sockets.
#[test]
fn totals_survive_a_kill_over_every_transport() {
    let home = Home::new();
    let listeners = Listeners::new(&home, "statsd", 9125);
    for round in 1..=3 {
        // The second start finds the socket files of a killed process.
        let daemon = listeners.start(&home);
        udp(&home).send(b"udp:1|c\nudp:1|c").unwrap();
        let local = UnixDatagram::unbound().unwrap();
        local.send_to(b"local:1|c|#a:b\nlocal:1|c|#a:b\n", &listeners.datagrams).unwrap();
        // A line in two pieces, and a line without a line feed.
        let mut tcp = TcpStream::connect((home.host(), 9125)).unwrap();
        tcp.write_all(b"tcp:1|").unwrap();
        tcp.write_all(b"c\ntcp:1|c").unwrap();
        tcp.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(tcp.read(&mut [0]).unwrap(), 0);
        let mut unix = UnixStream::connect(&listeners.stream).unwrap();
        unix.write_all(b"unix:1|c\nunix:1|c\n").unwrap();
        // Packets with a length prefix, like Datadog's clients send them.
        let mut framed = UnixStream::connect(&listeners.stream).unwrap();
        framed.write_all(b"\x0a\0\0\0framed:1|c\x0b\0\0\0framed:1|c\n").unwrap();
        wait_for_lines(&daemon, 10.0);
        let total = 2 * round;
        assert_eq!(
            shown(&daemon),
            [
                format!("framed {total}"),
                format!("local{{a=\"b\"}} {total}"),
                format!("tcp {total}"),
                format!("udp {total}"),
                format!("unix {total}"),
            ]
        );
        assert!(daemon.get("/metrics").text().contains("\nquipu_statsd_connections_open{"));
        if round < 3 {
            daemon.kill();
            assert_eq!(listeners.sockets_exist(), [true; 2]);
        } else {
            daemon.stop();
        }
    }
    assert_eq!(listeners.sockets_exist(), [false; 2]);
}

/// Lines in the socket buffers are read before the daemon stops.
#[test]
fn lines_sent_before_the_end_are_read() {
    let home = Home::new();
    let arguments = ["--statsd", &listener(&home, "udp")];
    let daemon = home.start(&arguments);
    let socket = udp(&home);
    for _ in 0..200 {
        socket.send(b"sent:1|c").unwrap();
    }
    daemon.stop();
    let daemon = home.start(&arguments);
    assert_eq!(shown(&daemon), ["sent 200"]);
    daemon.stop();
}

#[test]
fn a_mapping_file_names_and_shapes() {
    let home = Home::new();
    let mapping = "
defaults: {observer_type: histogram, histogram_options: {buckets: [0.1, 1]}}
mappings:
- match: web.*.requests.*
  name: web_requests_total
  help: Requests by host.
  labels: {host: $1, code: $2}
- {match: web.*.took, name: web_took_seconds, labels: {host: $1}, honor_labels: true}
- {match: 'secret\\..*', match_type: regex, action: drop, name: dropped}
- {match: kib, name: bytes, scale: 1024, match_metric_type: gauge}
";
    fs::write(home.path("mapping.yml"), mapping).unwrap();
    let address = listener(&home, "udp");
    let daemon = home.start(&["--statsd", &address, "--statsd-mapping", "mapping.yml"]);
    let socket = udp(&home);
    let packet = "web.a-1.requests.200:2|c|#code:x\nweb.b.took:50|ms|#host:c\nsecret.x:1|c\n\
                  kib:2|g\nkib:2|c\nother.name:5|h";
    socket.send(packet.as_bytes()).unwrap();
    wait_for_lines(&daemon, 6.0);
    assert_eq!(
        shown(&daemon),
        [
            "bytes 2048",
            "kib 2",
            "other_name_bucket{le=\"+Inf\"} 1",
            "other_name_bucket{le=\"0.1\"} 0",
            "other_name_bucket{le=\"1\"} 0",
            "other_name_count 1",
            "other_name_sum 5",
            "web_requests_total{code=\"200\",host=\"a-1\"} 2",
            "web_took_seconds_bucket{host=\"c\",le=\"+Inf\"} 1",
            "web_took_seconds_bucket{host=\"c\",le=\"0.1\"} 1",
            "web_took_seconds_bucket{host=\"c\",le=\"1\"} 1",
            "web_took_seconds_count{host=\"c\"} 1",
            "web_took_seconds_sum{host=\"c\"} 0.05",
        ]
    );
    let text = daemon.get("/metrics").text();
    assert!(text.contains("# HELP web_requests_total Requests by host.\n"), "{text}");
    assert_eq!(daemon.sample("quipu_statsd_samples_dropped_total"), 1.0);
    daemon.stop();
}

#[test]
fn a_value_that_a_scale_makes_infinite_is_refused() {
    let home = Home::new();
    let mapping = "
defaults: {observer_type: histogram, histogram_options: {buckets: [1]}}
mappings:
- {match: '*', name: scaled_$1, scale: 1024}
";
    fs::write(home.path("mapping.yml"), mapping).unwrap();
    let address = listener(&home, "udp");
    let daemon = home.start(&["--statsd", &address, "--statsd-mapping", "mapping.yml"]);
    let socket = udp(&home);
    // The first lines also establish their forms, and the last lines use these forms.
    let infinite = "c:1e308|c\ng:-1e308|g\nh:1e308|h\n";
    let packet = format!("{infinite}c:2|c\ng:2|g\nh:2|h\n{infinite}c:1|c|@1e-320\n");
    socket.send(packet.as_bytes()).unwrap();
    wait_for_lines(&daemon, 10.0);
    assert_eq!(
        shown(&daemon),
        [
            "scaled_c 2048",
            "scaled_g 2048",
            "scaled_h_bucket{le=\"+Inf\"} 1",
            "scaled_h_bucket{le=\"1\"} 0",
            "scaled_h_count 1",
            "scaled_h_sum 2048",
        ]
    );
    for (reason, lines) in [("malformed_value", 6.0), ("invalid_sample_factor", 1.0)] {
        let refused = format!("quipu_input_refused_total{{input=\"statsd\",reason=\"{reason}\"}}");
        assert_eq!(daemon.sample(&refused), lines, "{reason}");
    }
    let told = daemon.get("/refused").text();
    assert!(told.contains("its mapping's `scale` makes it infinite"), "{told}");
    daemon.stop();
}

/// Returns varied lines from a few names and tags. Some of these lines are refused.
fn many_lines() -> String {
    let mut random = 88_172_645_463_325_252_u64;
    let mut below = |most: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 20) as usize % most
    };
    let wide: String = (0..20).map(|n| format!("t{n}:x,")).collect();
    let long = format!("web.{}.requests.1", "a".repeat(600));
    let names = ["a.b", "web.x.requests.200", "web.x.took", "secret.x", "kib", "x--y", "9", &long];
    let in_names = ["", "", "", "", "#a=1", ",b=2", "[a=1]z", "#a.b=1,a-b=2"];
    let values = ["1", "2.5", "-1", "+3", "1:2:3", "1:x:3", "-1:2", ""];
    let kinds = ["c", "g", "ms", "h", "d", "m", "s"];
    let rates = ["", "", "", "|@0.5", "|@0.25", "|@2", "|T1656581400"];
    let mut lines = String::new();
    for _ in 0..4000 {
        let (one, other) = (below(4), below(3));
        let tags = [
            String::new(),
            format!("|#a:{one}"),
            format!("|#b:{one},a:{other}"),
            format!("|#a:{other},b:{one}"),
            format!("|#a:{one},a:{other}"),
            format!("|#k-v:{one},k.v:{other},kv:0"),
            format!("|#env,a:{one},:,x:"),
            format!("|#host:{one},code:{other}"),
            format!("|#{wide}"),
        ];
        for part in [names[below(names.len())], in_names[below(in_names.len())], ":"] {
            lines.push_str(part);
        }
        for part in [values[below(values.len())], "|", kinds[below(kinds.len())]] {
            lines.push_str(part);
        }
        lines.push_str(rates[below(rates.len())]);
        lines.push_str(&tags[below(tags.len())]);
        lines.push('\n');
    }
    lines
}

/// With rules, no line uses the cache of forms. These rules match no line.
#[test]
fn lines_of_known_forms_have_the_same_outcome_as_without_forms() {
    let mapping = "
defaults: {observer_type: histogram, histogram_options: {buckets: [0.1, 1]}}
mappings:
- {match: web.*.requests.*, name: web_requests, labels: {host: $1, code: $2}}
- {match: web.*.took, name: web_took_seconds, labels: {host: $1, a: own}, honor_labels: true,
   observer_type: summary}
- {match: secret.*, action: drop, name: dropped}
- {match: kib, name: bytes, scale: 1024}
";
    let rules = "metric_relabel_configs:\n\
        - {source_labels: [__name__], regex: nothing, action: drop}\n";
    let lines = many_lines();
    let outcomes = [false, true].map(|has_rules| {
        let home = Home::new();
        fs::write(home.path("mapping.yml"), mapping).unwrap();
        fs::write(home.path("rules.yml"), rules).unwrap();
        let address = listener(&home, "tcp");
        let mut flags = vec!["--statsd", &address, "--statsd-mapping", "mapping.yml"];
        // Some series and label sets do not fit.
        flags.extend(["--series", "250", "--families", "120"]);
        if has_rules {
            flags.extend(["--rules", "rules.yml"]);
        }
        let daemon = home.start(&flags);
        let mut stream = TcpStream::connect((home.host(), 9125)).unwrap();
        stream.write_all(lines.as_bytes()).unwrap();
        drop(stream);
        wait_for_lines(&daemon, 4000.0);
        let text = daemon.get("/metrics").text();
        let is_count = |line: &&str| {
            let counts = ["samples_total", "samples_dropped", "tag_errors"];
            line.starts_with("quipu_input_refused_total")
                || counts.iter().any(|count| line.starts_with(&format!("quipu_statsd_{count}")))
        };
        let counts: Vec<String> = text.lines().filter(is_count).map(str::to_owned).collect();
        let shown = shown(&daemon);
        daemon.stop();
        (shown, counts)
    });
    let [known, long] = outcomes;
    assert!(known.0.len() > 50 && known.1.len() > 10, "{known:#?}");
    assert_eq!(known, long);
}

/// Tags whose names are equal after escaping must not affect the other tags.
#[test]
fn names_that_become_one_label_hide_no_tag_after_them() {
    let home = Home::new();
    let address = listener(&home, "udp");
    let daemon = home.start(&["--statsd", &address]);
    // More labels than a line may contain.
    let alike = (0..70).map(|n| format!("{n:07b}").replace('0', ".").replace('1', "/"));
    let alike: String = alike.map(|name| format!("k{name}:v,")).collect();
    udp(&home).send(format!("hits:1|c|#{alike}z:1").as_bytes()).unwrap();
    wait_for_lines(&daemon, 1.0);
    assert_eq!(shown(&daemon), ["hits{k_______=\"v\",z=\"1\"} 1"]);
    daemon.stop();
}

/// A cached line must find its series again after it expired.
#[test]
fn expired_series_of_known_forms_return() {
    let home = Home::new();
    let address = listener(&home, "udp");
    // Long enough for a busy machine to read the series before they expire.
    let daemon = home.start(&["--statsd", &address, "--expiry", "5s"]);
    let socket = udp(&home);
    for round in [1, 2] {
        // A scrape shows all changes since the last scrape, even if they are old.
        wait_until("they expire", || shown(&daemon).is_empty());
        socket.send(b"c:1|c|#a:b\ng:+1|g|#a:b\nc:1|c|#a:b\ng:+1|g|#a:b").unwrap();
        wait_for_lines(&daemon, f64::from(round * 4));
        // The counter continues, and the gauge starts again.
        let counter = format!("c{{a=\"b\"}} {}", round * 2);
        assert_eq!(shown(&daemon), [counter.as_str(), "g{a=\"b\"} 2"]);
    }
    daemon.stop();
}

#[test]
fn faults_at_the_start_name_the_flag_and_the_way_out() {
    let home = Home::new();
    let taken = UdpSocket::bind((home.host(), 9125)).unwrap();
    let address = listener(&home, "udp");
    let listen = format!("{}:0", home.host());
    let start = |statsd: &str, parts: &[&str]| {
        home.expect_refusal(&["--listen", &listen, "--statsd", statsd], 1, parts);
    };
    start(&address, &["cannot use --statsd udp://", "give another one"]);
    start("unix:none/s", &["cannot use --statsd unix:none/s", "create its directory"]);
    fs::write(home.path("file"), "").unwrap();
    start("unixgram:file", &["cannot use --statsd unixgram:file", "not a socket"]);
    fs::write(home.path("m.yml"), "mappings:\n- match: a").unwrap();
    let parts = ["cannot use --statsd-mapping m.yml, line 2", "`name`"];
    home.expect_refusal(&["--listen", &listen, "--statsd-mapping", "m.yml"], 1, &parts);
    home.expect_refusal(&["--check-config", "--statsd-mapping", "m.yml"], 2, &parts);
    fs::write(home.path("quipu.toml"), "statsd-mapping = \"m.yml\"").unwrap();
    let mut check = home.command();
    check.args(["check", "config", "quipu.toml"]);
    let checked = home.finish(check);
    assert!(checked.status.code() == Some(2) && checked.stderr.contains(parts[0]));
    home.expect_refusal(&["--statsd", "9125"], 2, &["--statsd", "udp://HOST:PORT"]);
    drop(taken);
    // The state was not touched.
    assert_eq!(home.files(), ["file", "m.yml", "quipu.toml"]);
}
