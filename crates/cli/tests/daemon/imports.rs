//! Tests of imports: complete, compressed, and with invalid lines.

use std::io::Write;

use crate::common::{Daemon, Home, Response};

const TEXT: &str = "# HELP hits_total The hits.\n# TYPE hits_total counter\n\
    hits_total{path=\"/\"} 5\nhits_total{path=\"/a \\\"b\\\"\"} 2\n\
    # TYPE level gauge\nlevel -1.5\nother 7\nlate_count 3\n\
    # TYPE took histogram\ntook_bucket{a=\"b\",le=\"0.5\"} 1\ntook_bucket{a=\"b\",le=\"+Inf\"} 3\n\
    took_sum{a=\"b\"} 2.5\ntook_count{a=\"b\"} 3\n\
    # TYPE size summary\nsize{quantile=\"0.5\"} 3\nsize_sum 10\nsize_count 4\n";

fn import(daemon: &Daemon, parameters: &str, text: &str) -> Response {
    let target = format!("/api/v1/import/prometheus{parameters}");
    daemon.post_body(&target, &[], text.as_bytes())
}

fn expect_text(daemon: &Daemon) {
    for (name, value) in [
        ("hits_total{path=\"/\"}", 5.0),
        ("hits_total{path=\"/a \\\"b\\\"\"}", 2.0),
        ("level", -1.5),
        ("other", 7.0),
        ("late_count", 3.0),
        ("took_bucket{a=\"b\",le=\"0.5\"}", 1.0),
        ("took_bucket{a=\"b\",le=\"+Inf\"}", 3.0),
        ("took_sum{a=\"b\"}", 2.5),
        ("took_count{a=\"b\"}", 3.0),
        ("size{quantile=\"0.5\"}", 3.0),
        ("size_sum", 10.0),
        ("size_count", 4.0),
    ] {
        assert_eq!(daemon.sample(name), value, "{name}");
    }
}

#[test]
fn a_text_is_imported_once_however_often_it_is_sent() {
    let home = Home::new();
    for round in 0..3 {
        let daemon = home.start(&[]);
        for _ in 0..2 {
            let response = import(&daemon, "", TEXT);
            assert_eq!(response.status, 204, "{round} {response:?}");
        }
        expect_text(&daemon);
        assert_eq!(daemon.sample("quipu_input_samples_total{input=\"import\"}"), 14.0);
        // The file contains everything that was acknowledged.
        daemon.kill();
    }
    let daemon = home.start(&[]);
    expect_text(&daemon);
    // The source restarted.
    let rest = TEXT.replace("{path=\"/\"} 5", "{path=\"/\"} 1").replace("} 3\n", "} 2\n");
    assert_eq!(import(&daemon, "", &rest).status, 204);
    assert_eq!(daemon.sample("hits_total{path=\"/\"}"), 6.0);
    assert_eq!(daemon.sample("took_count{a=\"b\"}"), 5.0);
    assert!(daemon.get("/metrics").text().contains("# HELP hits_total The hits.\n"));
}

#[test]
fn a_line_that_is_wrong_leaves_its_neighbours() {
    let home = Home::new();
    let daemon = home.start(&["--series", "8"]);
    let text = "a 1\nb{ 2\n\nc_total -3\n\
        # TYPE took histogram\ntook_bucket{le=\"1\"} 5\ntook_bucket{le=\"+Inf\"} 3\ntook_sum 1\n\
        d 4\nd 5 x\nd 6\n# TYPE d nothing\nquipu_x 1\n";
    let response = import(&daemon, "", text);
    for part in [
        "4 taken, 5 refused",
        "text: line 2, byte 3: ",
        "text: up to line 8: took: a bucket has fewer values",
        "text: line 10, byte 4: ",
        "text: line 12, byte 9: ",
        "text: line 13: quipu_x: the name begins with \"quipu_\", a prefix that is reserved: choose",
    ] {
        response.expect_refusal(400, part);
    }
    assert_eq!((daemon.sample("a"), daemon.sample("d")), (1.0, 6.0));
    // If only the name suggests a counter, a negative value is imported without a type.
    assert_eq!(daemon.sample("c_total"), -3.0);
    let refused = "quipu_input_refused_total{input=\"import\",reason=\"malformed_labels\"}";
    assert_eq!(daemon.sample(refused), 1.0);
    let many: String = (0..20).map(|n| format!("x{{n=\"{n}\"}} 1\n")).collect();
    let response = import(&daemon, "", &many);
    response.expect_refusal(400, "series_limit".split('_').next().unwrap());
    response.expect_refusal(400, "5 taken, 15 refused");
    response.expect_refusal(400, "and 7 more\n");
}

/// Lines with more labels than fit on the stack, with and without escapes. Also, a name that is a
/// counter from its first line on.
#[test]
fn wide_lines_are_taken_and_a_name_keeps_its_type_within_a_text() {
    let home = Home::new();
    let daemon = home.start(&[]);
    for value in ["plain", "a\\\\b"] {
        let labels: Vec<String> = (10..30).map(|n| format!("l{n}=\"{value}\"")).collect();
        let series = format!("wide{{{}}}", labels.join(","));
        assert_eq!(import(&daemon, "", &format!("{series} 1\n")).status, 204);
        assert_eq!(daemon.sample(&series), 1.0);
    }
    let response = import(&daemon, "", "hits_total 2\nhits_total -2\n");
    response.expect_refusal(400, "1 taken, 1 refused");
    assert_eq!(daemon.sample("hits_total"), 2.0);
}

#[test]
fn a_help_may_come_later_and_a_suffix_makes_another_counter() {
    let home = Home::new();
    let daemon = home.start(&[]);
    for text in [
        "# TYPE jobs counter\njobs 1\n# TYPE jobs_total counter\njobs_total 2\n",
        "# HELP jobs_total The jobs.\n# TYPE jobs_total counter\njobs_total 3\n",
    ] {
        assert_eq!(import(&daemon, "", text).status, 204);
    }
    let shown = "# HELP jobs_total The jobs.\n# TYPE jobs_total counter\njobs_total 3\n\
                 # TYPE jobs counter\njobs 1\n";
    let text = daemon.get("/metrics").text();
    assert!(text.contains(shown), "{text}");
    daemon.kill();
    let text = home.start(&[]).get("/metrics").text();
    assert!(text.contains(shown), "{text}");
}

#[test]
fn a_family_that_takes_long_is_refused() {
    let home = Home::new();
    let daemon = home.start(&[]);
    let lines = (0..20_001).map(|n| format!("took_bucket{{n=\"{}\",le=\"{n}\"}} 1\n", n / 50));
    let text: String = ["# TYPE took histogram\n".to_owned()].into_iter().chain(lines).collect();
    let response = import(&daemon, "", &text);
    response
        .expect_refusal(400, "line 20002 or the comments after it: the family has more samples");
}

#[test]
fn parameters_add_labels_and_times() {
    let home = Home::new();
    let daemon = home.start(&[]);
    let extra = "?extra_label=job=a%20b&extra_label=x=1&timestamp=1700000000000";
    assert_eq!(import(&daemon, extra, "level{job=\"c\",y=\"2\"} 1\n").status, 204);
    let name = "level{job=\"a b\",x=\"1\",y=\"2\"}";
    assert_eq!(daemon.sample(name), 1.0);
    // A slightly older value is late, and another value with the same time is refused.
    let older = extra.replace("1700000000000", "1699999999999");
    assert_eq!(import(&daemon, &older, "level{job=\"c\",y=\"2\"} 2\n").status, 204);
    let again = import(&daemon, extra, "level{job=\"c\",y=\"2\"} 3\n");
    again.expect_refusal(400, "line 1: level{job=\"a b\",x=\"1\",y=\"2\"}: a duplicate");
    assert_eq!(daemon.sample(name), 1.0);
    assert_eq!(import(&daemon, extra, "level{y=\"2\"} 4 1700000000001\n").status, 204);
    assert_eq!(daemon.sample(name), 4.0);
    // A total depends on the order of its samples.
    let hits = |value: u64, time: u64| {
        import(&daemon, "", &format!("hits_total{{b=\"1\",a=\"2\"}} {value} 170000000000{time}\n"))
    };
    for (value, time) in [(5, 0), (7, 1), (7, 1), (6, 0)] {
        assert_eq!(hits(value, time).status, 204);
    }
    hits(9, 1).expect_refusal(400, "line 1: hits_total{b=\"1\",a=\"2\"}: a duplicate");
    assert_eq!(daemon.sample("hits_total{a=\"2\",b=\"1\"}"), 7.0);
    for (parameters, part) in [
        ("?timestamp=x", "milliseconds"),
        ("?extra_label=x", "name=value"),
        ("?extra_label==x", "name=value"),
        ("?window=1s", "this route takes timestamp, extra_label"),
        ("?extra_label=%ff", "UTF-8"),
    ] {
        import(&daemon, parameters, "a 1\n").expect_refusal(400, part);
    }
    assert_eq!(daemon.get("/api/v1/import/prometheus").status, 405);
}

#[test]
fn openmetrics_and_compressed_texts_are_imported() {
    let home = Home::new();
    let daemon = home.start(&["--input-body-bytes", "200000"]);
    let openmetrics = "# TYPE took_seconds histogram\n# UNIT took_seconds seconds\n\
        took_seconds_bucket{le=\"1.0\"} 1 # {id=\"x\"} 0.5\ntook_seconds_bucket{le=\"+Inf\"} 2\n\
        took_seconds_count 2\ntook_seconds_sum 1.5\ntook_seconds_created 1.0\n\
        # TYPE hits counter\nhits_total 7 # {id=\"y\"} 3\nhits_created 1.25\n\
        # TYPE file_created gauge\nfile_created 8\n# EOF\n";
    let fields = [("Content-Type", "application/openmetrics-text; version=1.0.0; charset=utf-8")];
    let target = "/api/v1/import/prometheus";
    assert_eq!(daemon.post_body(target, &fields, openmetrics.as_bytes()).status, 204);
    assert_eq!((daemon.sample("took_seconds_count"), daemon.sample("hits_total")), (2.0, 7.0));
    assert_eq!(daemon.sample("file_created"), 8.0);
    let text = daemon.scrape("application/openmetrics-text;version=1.0.0").text();
    for exemplar in ["# {id=\"x\"} 0.5", "# {id=\"y\"} 3"] {
        assert!(text.contains(exemplar), "{text}");
    }
    let cut = openmetrics.replace("# EOF\n", "");
    let response = daemon.post_body(target, &fields, cut.as_bytes());
    response.expect_refusal(400, "# EOF");

    let lines: String = (0..5000).map(|n| format!("level{{n=\"{}\"}} {n}\n", n % 10)).collect();
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(lines.as_bytes()).unwrap();
    let gzip = encoder.finish().unwrap();
    let fields = [("Content-Encoding", "gzip")];
    assert_eq!(daemon.post_body(target, &fields, &gzip).status, 204);
    assert_eq!(daemon.sample("level{n=\"7\"}"), 4997.0);
    // If a body is cut or too large, the part before this point is imported.
    let response = daemon.post_body(target, &fields, &gzip[..gzip.len() / 2]);
    response.expect_refusal(400, "Content-Encoding says, gzip");
    response.expect_refusal(400, " taken, ");
    // The last line can be incomplete, and the last histogram can lack buckets.
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let text = b"whole 12\n# TYPE half histogram\nhalf_bucket{le=\"+Inf\"} 3\nhalf_count 3";
    encoder.write_all(text).unwrap();
    let mut cut = encoder.finish().unwrap();
    cut.extend(b"\x1f\x8b damaged");
    daemon.post_body(target, &fields, &cut).expect_refusal(400, "1 taken");
    assert_eq!(daemon.sample("whole"), 12.0);
    assert!(!daemon.get("/metrics").text().contains("\nhalf"));
    let bomb = zstd::stream::encode_all(lines.repeat(20).as_bytes(), 1).unwrap();
    let response = daemon.post_body(target, &[("Content-Encoding", "zstd")], &bomb);
    response.expect_refusal(413, "more than 200000 bytes");
    let response = daemon.post_body(target, &[("Content-Encoding", "br")], &bomb);
    response.expect_refusal(415, "gzip, deflate, zstd, snappy");
}
