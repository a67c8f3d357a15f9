//! Lines that clients of each dialect send, and malformed lines.

use std::format;
use std::string::String;
use std::vec::Vec;

use super::*;

/// Formats the result as `name type value value @rate Ttime {tag=value}`, joined by semicolons.
fn shown(input: impl AsRef<[u8]>, tags: Tags) -> String {
    let items: Vec<String> =
        StatsdLines::new(input.as_ref(), tags).map(|line| show(&line)).collect();
    items.join("; ")
}

fn show(line: &Result<StatsdLine<'_>, StatsdLineError>) -> String {
    let sample = match line {
        Ok(StatsdLine::Sample(sample)) => sample,
        Ok(StatsdLine::Event(_)) => return "event".into(),
        Ok(StatsdLine::ServiceCheck(_)) => return "check".into(),
        Err(error) => return format!("{}@{}", error.reason().as_str(), error.offset()),
    };
    let mut text = format!("{} {:?}", sample.name, sample.kind).to_lowercase();
    if sample.kind == StatsdType::Set {
        text += &format!(" '{}'", sample.text());
    } else {
        for value in sample.values() {
            text += &match value {
                Ok(StatsdValue { number, is_signed: true }) => format!(" {number:+}"),
                Ok(StatsdValue { number, is_signed: false }) => format!(" {number}"),
                Err(error) => format!(" {}@{}", error.reason().as_str(), error.offset()),
            };
        }
    }
    if sample.rate != 1.0 {
        text += &format!(" @{}", sample.rate);
    }
    if let Some(time) = sample.timestamp_s {
        text += &format!(" T{time}");
    }
    let tags: Vec<String> = sample
        .tags()
        .map(|tag| match tag {
            Ok((name, value)) => format!("{name}={value}"),
            Err(text) => format!("!{text}"),
        })
        .collect();
    if !tags.is_empty() {
        text += &format!(" {{{}}}", tags.join(" "));
    }
    text
}

#[test]
fn values_and_types() {
    for (line, expected) in [
        ("", ""),
        ("hits:2|c", "hits counter 2"),
        ("level:3|g", "level gauge 3"),
        ("level:-10|g", "level gauge -10"),
        ("level:+0.5|g", "level gauge +0.5"),
        ("took:200|ms", "took timer 200"),
        ("size:1e3|h", "size histogram 1000"),
        ("size:.25|d", "size distribution 0.25"),
        ("users:ada lovelace|s", "users set 'ada lovelace'"),
        ("users:a:b|s", "users set 'a:b'"),
        ("turns:1|m", "turns meter 1"),
        ("took:0.5:120:-3|ms", "took timer 0.5 120 -3"),
        ("hits:1:2:3|c|@0.5", "hits counter 1 2 3 @0.5"),
        ("took:1:x:3|d", "took distribution 1 malformed_value@7 3"),
        ("took:1:|d", "took distribution 1 malformed_value@7"),
        ("a.b-c/d e:1|c", "a.b-c/d e counter 1"),
        ("caf\u{e9}:1|c", "caf\u{e9} counter 1"),
        ("hits:1|c\r\n\n\r\nlevel:2|g\n", "hits counter 1; level gauge 2"),
    ] {
        assert_eq!(shown(line, Tags::ALL), expected, "{line}");
    }
}

#[test]
fn rates_times_and_other_fields() {
    for (line, expected) in [
        ("hits:2|c|@0.1", "hits counter 2 @0.1"),
        ("hits:2|c|@1", "hits counter 2"),
        ("level:3|g|@0.2", "level gauge 3 @0.2"),
        ("took:.5|ms|@1e-3", "took timer 0.5 @0.001"),
        ("hits:2|c|@0", "invalid_sample_factor@9"),
        ("hits:2|c|@-0.5", "invalid_sample_factor@9"),
        ("hits:2|c|@1.5", "invalid_sample_factor@9"),
        ("hits:2|c|@nan", "invalid_sample_factor@9"),
        ("hits:2|c|@bar", "invalid_sample_factor@9"),
        ("hits:2|c|@", "invalid_sample_factor@9"),
        ("hits:2|c|0.1", "malformed_component@9"),
        ("hits:15|c|#env:dev|T1656581400", "hits counter 15 T1656581400 {env=dev}"),
        ("hits:42|c|T1656581400", "hits counter 42 T1656581400"),
        ("hits:1|c|Team:2|e:x", "hits counter 1"),
        ("hits:42|c|T-5", "hits counter 42 T-5"),
        ("hits:1|c|#a:b|Tnot-a-time", "hits counter 1 {a=b}"),
        ("hits:1|c|#a:b|T", "hits counter 1 {a=b}"),
        ("hits:1|c|#a:b|T1:2|c:x", "hits counter 1 {a=b}"),
        ("hits:1|c|#a:b|@0.5:2|c", "invalid_sample_factor@14"),
        ("hits:1|c|@0.1|#a:b|c:abc|T7", "hits counter 1 @0.1 T7 {a=b}"),
        ("hits:1|c|#a:b|c:sha256:abcd", "hits counter 1 {a=b}"),
        ("hits:1|c|c:abc", "hits counter 1"),
        ("hits:1|c|#a:b|e:it-false,cn-x,pu-1|card:low", "hits counter 1 {a=b}"),
        ("hits:1|c|@0.1|#a:b|c:x|extra:component", "hits counter 1 @0.1 {a=b}"),
        ("hits:1|c|c:x|#a:b", "hits counter 1 {a=b}"),
        ("hits:1|c|#a:b|c", "malformed_component@14"),
        ("hits:1|c|", "malformed_component@9"),
        ("hits:1|c||@0.5", "malformed_component@9"),
        ("hits:1|c|@0.5|", "malformed_component@14"),
        ("hits:1|c|%x:y", "malformed_component@9"),
    ] {
        assert_eq!(shown(line, Tags::ALL), expected, "{line}");
    }
}

#[test]
fn tags_of_each_dialect() {
    let cases = [
        ("hits#a=b,c=d:1|c", "hits counter 1 {a=b c=d}"),
        ("hits#09=0,x.y=1:1|c", "hits counter 1 {09=0 x.y=1}"),
        ("hits,a=b,c=d:1|c", "hits counter 1 {a=b c=d}"),
        ("hits.[a=b,c=d]all:1|c", "hits.all counter 1 {a=b c=d}"),
        ("hits.all[a=b,c=d]:1|c", "hits.all counter 1 {a=b c=d}"),
        ("[a=b,c=d]hits:1|c", "hits counter 1 {a=b c=d}"),
        ("hits.[]all:1|c", "hits.all counter 1"),
        ("hits.[a,b]all:1|c", "hits.all counter 1 {!a !b}"),
        ("[a=b,c=dhits:1|c", "[a=b,c=dhits counter 1"),
        ("a=b,c=d]hits:1|c", "a=b,c=d]hits counter 1"),
        ("]hits[:1|c", "]hits[ counter 1"),
        ("hits:1|c|#a:b,c:d", "hits counter 1 {a=b c=d}"),
        ("hits:1|c|#a:b,#c:d", "hits counter 1 {a=b c=d}"),
        ("hits:1|c|@0.1|#a:b:c", "hits counter 1 @0.1 {a=b:c}"),
        ("hits:1|c|#flag", "hits counter 1 {!flag}"),
        ("hits:1|c|#flag,a:b", "hits counter 1 {!flag a=b}"),
        ("hits:1|c|#a:b,,", "hits counter 1 {a=b !}"),
        ("hits:1|c|#:b,a:,:", "hits counter 1 {!:b !a: !:}"),
        ("hits:1|c|#", "hits counter 1"),
        ("hits,a=b=c:1|c", "hits counter 1 {a=b=c}"),
        ("hits,a=b,=,c=:1|c", "hits counter 1 {a=b != !c=}"),
        ("hits[a=b]:0.5:120|ms", "hits timer 0.5 120 {a=b}"),
        ("hits#a=b:1|c|#c:d", "mixed_tagging_styles@13"),
        ("hits[a=b]:1|c|#c:d", "mixed_tagging_styles@14"),
        ("hits,a=b:1|c|@0.1|#c:d", "mixed_tagging_styles@18"),
        ("hits:1|c|#a:b|#c:d", "malformed_component@14"),
        ("hits.[]all:1|c|#c:d", "hits.all counter 1 {c=d}"),
    ];
    for (line, expected) in cases {
        assert_eq!(shown(line, Tags::ALL), expected, "{line}");
    }
    for (line, _) in &cases[..9] {
        let (name, _) = line.split_once(':').unwrap();
        assert_eq!(shown(line, Tags::NONE), format!("{name} counter 1"), "{line}");
        assert_eq!(shown(line, Tags::DATADOG), format!("{name} counter 1"), "{line}");
    }
    for line in ["hits:1|c|#a:b,c:d", "hits:1|c|#", "hits:1|c|#a:b|#c:d"] {
        assert_eq!(shown(line, Tags::NONE), "hits counter 1", "{line}");
    }
    let only = |tags: Tags| shown("a#b=1,c=2:1|c", tags);
    assert_eq!(only(Tags { librato: true, ..Tags::NONE }), "a counter 1 {b=1 c=2}");
    assert_eq!(only(Tags { influxdb: true, ..Tags::NONE }), "a#b=1 counter 1 {c=2}");
    assert_eq!(only(Tags { signalfx: true, ..Tags::NONE }), "a#b=1,c=2 counter 1");
}

#[test]
fn several_samples_in_a_line() {
    for (line, expected) in [
        ("a:1|c:2|g:3|ms", "a counter 1; a gauge 2; a timer 3"),
        ("a:1|c|@0.5:2|c", "a counter 1 @0.5; a counter 2"),
        ("a,b=c:1|c:2|c", "a counter 1 {b=c}; a counter 2 {b=c}"),
        (
            "a:1|c:x|c:3|c\nb:1|c",
            "a counter 1; a counter malformed_value@6; a counter 3; b counter 1",
        ),
        ("a:1|c:2|t:3|c", "a counter 1; illegal_event@8"),
        ("a:1|c:", "a counter 1; malformed_line@6"),
        ("a:1|c:2", "a counter 1; malformed_line@7"),
        ("a:1|c:2|c|#b:c", "mixed_tagging_styles@5"),
    ] {
        assert_eq!(shown(line, Tags::ALL), expected, "{line}");
    }
    assert_eq!(shown("a:1|c:2|c|#b:c", Tags::NONE), "a counter 1; a counter 2");
}

#[test]
fn lines_that_are_wrong() {
    for (line, expected) in [
        (&b"hits"[..], "malformed_line@4"),
        (b"hits:1", "malformed_line@6"),
        (b"hits:", "malformed_line@5"),
        (b"hits:|c", "malformed_value@5"),
        (b":1|c", "malformed_line@0"),
        (b",a=b:1|c", "malformed_line@0"),
        (b"[a=b]:1|c", "malformed_line@0"),
        (b"|c", "malformed_line@2"),
        (b"hits|c:1", "malformed_line@8"),
        (b"a|b:1|c", "a|b counter 1"),
        (b"hits:1o|c", "hits counter malformed_value@5"),
        (b"hits: 1|c", "hits counter malformed_value@5"),
        (b"hits:inf|c", "hits counter malformed_value@5"),
        (b"hits:NaN|g", "hits gauge malformed_value@5"),
        (b"hits:1e999|g", "hits gauge malformed_value@5"),
        (b"hits:2|t", "illegal_event@7"),
        (b"hits:2|", "illegal_event@7"),
        (b"hits:2|cc", "illegal_event@7"),
        (b"a\xc3(b:1|c\nb:1|c", "malformed_line@1; b counter 1"),
        (b"a:1|c|#b:\xc3(", "malformed_line@9"),
        (b"b:1|c\na:1|c|#b:\xe2\x82", "b counter 1; malformed_line@9"),
        (b"cpu.idle:  0.1  -0.0 (  2.4)\n|h|#a:B::C,d:e", "malformed_line@28; malformed_line@14"),
        (b"_e{5,4}:title|text|#a:b\n_sc|up|0\n_x:1|c", "event; check; _x counter 1"),
    ] {
        assert_eq!(shown(line, Tags::ALL), expected, "{}", line.escape_ascii());
    }
    let error = StatsdLines::new(b"a:1|c\n\nb:1|x", Tags::ALL).find_map(Result::err).unwrap();
    assert_eq!((error.line(), error.offset()), (3, 4));
    let text = "statsd: line 3, byte 4: expected a type: `c`, `d`, `g`, `h`, `m`, `ms` or `s`";
    assert_eq!(format!("{error}"), text);
}

#[test]
fn a_name_of_two_parts() {
    let Some(Ok(StatsdLine::Sample(sample))) = StatsdLines::new(b"a[b=c]d:1|c", Tags::ALL).next()
    else {
        panic!();
    };
    assert_eq!(sample.name, Name { head: "a", tail: "d" });
    assert!(sample.name == *"ad" && sample.name != *"a" && sample.name != *"add");
}
