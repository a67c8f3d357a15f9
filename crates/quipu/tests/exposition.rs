//! The exposition formats: every kind in every format, byte for byte; label values with any
//! characters; and scrapes that are read slowly.
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

use std::collections::HashSet;

use proptest::prelude::*;
use quipu::exposition::{Encoder, Escaping, Format};
use quipu::snapshot::{
    Bucket, CounterValue, Exemplar, FamilyHeader, HistogramValue, Kind, Label, Native, Number,
    Series, Sink, SummaryValue, Texts, Timestamp, Value,
};
use quipu::{CounterFamily, Description, Registry};

const LABELS: &[Label<'static>] =
    &[Label::new("kind").values(&["a", "b"]), Label::new("user.name")];

fn family(
    name: &'static str,
    kind: Kind,
    labels: &'static [Label<'static>],
) -> FamilyHeader<'static> {
    FamilyHeader::new(kind, name, "A help.").with_labels(labels)
}

fn series<'a>(value: Value<'a>, texts: &'a [u8]) -> Series<'a> {
    let series = Series::checked(Texts::new(texts), false, value);
    series.group(1).start(Timestamp::from_nanos(1_500_000_000))
}

/// Another program can choose the unit.
#[test]
fn a_unit_forges_no_line() {
    let family = family("t_s", Kind::Gauge, &[]).unit("s\nforged 1");
    let mut encoder = Encoder::new(Format::OpenMetrics, Escaping::default());
    encoder.family(&family);
    encoder.series(&family, &series(Value::Gauge(Number::Unsigned(1)), &[]));
    let text = String::from_utf8(encoder.buffer().to_vec()).unwrap();
    assert_eq!(text, "# HELP t_s A help.\n# TYPE t_s gauge\nt_s 1\n");
}

/// Passes one family of each kind to a sink.
fn everything(sink: &mut impl Sink) {
    let mut user = Vec::new();
    Texts::push(&mut user, "x\"\\\ny");
    let mut trace = Vec::new();
    Texts::push(&mut trace, "id");
    Texts::push(&mut trace, "7");
    let exemplar =
        Exemplar::new(Texts::new(&trace), 0.5).time(Timestamp::from_nanos(2_000_000_001));
    let mut one = |family: FamilyHeader<'_>, value: Value<'_>| {
        sink.family(&family);
        let texts = if family.labels().is_empty() { &[][..] } else { &user[..] };
        let mut series = series(value, texts);
        series.group = if family.labels().is_empty() { 0 } else { 1 };
        sink.series(&family, &series);
    };
    let total = Number::Unsigned(u64::MAX);
    one(
        family("my.requests", Kind::Counter, LABELS),
        Value::Counter(CounterValue::new(total).exemplar(exemplar)),
    );
    one(family("level", Kind::Gauge, &[]), Value::Gauge(Number::Signed(-3)));
    one(family("odd", Kind::Unknown, &[]), Value::Unknown(Number::Float(f64::NAN)));
    let buckets = [Bucket::new(1.0, 2).exemplar(exemplar), Bucket::new(f64::INFINITY, 1)];
    let native =
        Native::new(3).zero(0.25, 1).positive(&[(1, 2), (2, 1), (5, 4)]).negative(&[(-1, 1)]);
    let classic = HistogramValue::new(3, 7.5).buckets(&buckets);
    one(family("size", Kind::Histogram, LABELS), Value::Histogram(classic));
    let native = HistogramValue::new(9, 1.0).native(native);
    one(family("exact", Kind::Histogram, &[]), Value::Histogram(native));
    let quantiles = [(0.5, 1.0), (1.0, f64::NAN)];
    let summary = Value::Summary(SummaryValue::new(4, 10.0).quantiles(&quantiles));
    one(family("latency", Kind::Summary, &[]), summary);
    one(family("build", Kind::Info, LABELS), Value::Info);
    one(family("mode", Kind::StateSet, &[]), Value::StateSet(&[("on", true), ("off", false)]));
    // A family without series is not written.
    sink.family(&family("empty", Kind::Gauge, &[]));
    let limited = family("limited", Kind::Counter, LABELS);
    sink.family(&limited);
    let value = Value::counter(Number::Float(0.5));
    let mut overflow = series(value, &[]);
    overflow.overflow = true;
    sink.series(&limited, &overflow);
}

fn written(format: Format, escaping: Escaping) -> Vec<u8> {
    let mut encoder = Encoder::new(format, escaping);
    everything(&mut encoder);
    encoder.finish();
    let first = encoder.buffer().to_vec();
    // A reused encoder writes the same.
    encoder.reset(format, escaping);
    everything(&mut encoder);
    encoder.finish();
    assert_eq!(encoder.buffer(), first);
    first
}

fn assert_text(format: Format, escaping: Escaping, expected: &str) {
    let text = String::from_utf8(written(format, escaping)).unwrap();
    assert_eq!(text, expected, "{format:?} {escaping:?}");
}

#[test]
fn pages_have_the_form_of_text_0_0_4() {
    let expected = r#"# HELP my_requests_total A help.
# TYPE my_requests_total counter
my_requests_total{kind="b",user_name="x\"\\\ny"} 18446744073709551615
# HELP level A help.
# TYPE level gauge
level -3
# HELP odd A help.
# TYPE odd untyped
odd NaN
# HELP size A help.
# TYPE size histogram
size_bucket{kind="b",user_name="x\"\\\ny",le="1"} 2
size_bucket{kind="b",user_name="x\"\\\ny",le="+Inf"} 3
size_sum{kind="b",user_name="x\"\\\ny"} 7.5
size_count{kind="b",user_name="x\"\\\ny"} 3
# HELP exact A help.
# TYPE exact histogram
exact_bucket{le="+Inf"} 9
exact_sum 1
exact_count 9
# HELP latency A help.
# TYPE latency summary
latency{quantile="0.5"} 1
latency{quantile="1"} NaN
latency_sum 10
latency_count 4
# HELP build_info A help.
# TYPE build_info gauge
build_info{kind="b",user_name="x\"\\\ny"} 1
# HELP mode A help.
# TYPE mode gauge
mode{mode="on"} 1
mode{mode="off"} 0
# HELP limited_total A help.
# TYPE limited_total counter
limited_total{quipu_overflow="true"} 0.5
"#;
    assert_text(Format::Text, Escaping::Underscores, expected);
}

#[test]
fn text_1_0_0_has_names_in_quotes() {
    let text = String::from_utf8(written(Format::TextUtf8, Escaping::AllowUtf8)).unwrap();
    let begin = r#"# HELP "my.requests_total" A help.
# TYPE "my.requests_total" counter
{"my.requests_total",kind="b","user.name"="x\"\\\ny"} 18446744073709551615
"#;
    assert!(text.starts_with(begin), "{text}");
    assert!(text.contains("\nlevel -3\n"));
    let text = String::from_utf8(written(Format::TextUtf8, Escaping::Values)).unwrap();
    let line = r#"U__my_2e_requests__total{kind="b",U__user_2e_name="#;
    assert!(text.contains(line), "{text}");
}

#[test]
fn pages_have_the_form_of_openmetrics_1_0_0() {
    let expected = r##"# HELP my_requests A help.
# TYPE my_requests counter
my_requests_total{kind="b",user_name="x\"\\\ny"} 18446744073709551615 # {id="7"} 0.5 2.000000001
# HELP level A help.
# TYPE level gauge
level -3
# HELP odd A help.
# TYPE odd unknown
odd NaN
# HELP size A help.
# TYPE size histogram
size_bucket{kind="b",user_name="x\"\\\ny",le="1.0"} 2 # {id="7"} 0.5 2.000000001
size_bucket{kind="b",user_name="x\"\\\ny",le="+Inf"} 3
size_sum{kind="b",user_name="x\"\\\ny"} 7.5
size_count{kind="b",user_name="x\"\\\ny"} 3
# HELP exact A help.
# TYPE exact histogram
exact_bucket{le="+Inf"} 9
exact_sum 1
exact_count 9
# HELP latency A help.
# TYPE latency summary
latency{quantile="0.5"} 1
latency{quantile="1.0"} NaN
latency_sum 10
latency_count 4
# HELP build A help.
# TYPE build info
build_info{kind="b",user_name="x\"\\\ny"} 1
# HELP mode A help.
# TYPE mode stateset
mode{mode="on"} 1
mode{mode="off"} 0
# HELP limited A help.
# TYPE limited counter
limited_total{quipu_overflow="true"} 0.5
# EOF
"##;
    assert_text(Format::OpenMetrics, Escaping::Underscores, expected);
}

#[test]
fn openmetrics_2_0_0_has_values_of_several_parts() {
    let text = String::from_utf8(written(Format::OpenMetrics2, Escaping::AllowUtf8)).unwrap();
    for line in [
        r##"{"my.requests_total",kind="b","user.name"="x\"\\\ny"} 18446744073709551615 st@1.5 # {id="7"} 0.5 2.000000001"##,
        r##"size{kind="b","user.name"="x\"\\\ny"} {count:3,sum:7.5,bucket:[1.0:2,+Inf:3]} st@1.5 # {id="7"} 0.5 2.000000001"##,
        "exact {count:9,sum:1,schema:3,zero_threshold:0.25,zero_count:1,negative_spans:[-1:1],\
         negative_buckets:[1],positive_spans:[1:2,2:1],positive_buckets:[2,1,4]} st@1.5",
        "latency {count:4,sum:10,quantile:[0.5:1,1.0:NaN]} st@1.5",
        "# TYPE build_info info",
        r#"build_info{kind="b","user.name"="x\"\\\ny"} 1"#,
    ] {
        assert!(text.lines().any(|found| found == line), "no {line} in\n{text}");
    }
}

/// The fields of a message: (number, wire type, value or bytes).
fn fields(mut bytes: &[u8]) -> Vec<(u64, u64, Vec<u8>)> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (first, rest) = bytes.split_first().unwrap();
            *bytes = rest;
            value |= u64::from(first & 0x7f) << shift;
            if first & 0x80 == 0 {
                break;
            }
        }
        value
    }
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let value = match tag & 7 {
            0 => varint(&mut bytes).to_le_bytes().to_vec(),
            1 => bytes.split_off(..8).unwrap().to_vec(),
            2 => {
                let length = varint(&mut bytes) as usize;
                bytes.split_off(..length).unwrap().to_vec()
            }
            other => panic!("wire type {other}"),
        };
        fields.push((tag >> 3, tag & 7, value));
    }
    fields
}

#[test]
fn protobuf_has_every_field_where_it_belongs() {
    let bytes = written(Format::Protobuf, Escaping::AllowUtf8);
    // A sequence of length-prefixed messages.
    let mut tagged = Vec::new();
    let mut rest = &bytes[..];
    let mut families = Vec::new();
    while !rest.is_empty() {
        tagged.clear();
        tagged.push(1 << 3 | 2);
        tagged.extend_from_slice(rest);
        let mut length = 0_usize;
        let mut read = 0;
        while {
            length |= usize::from(rest[read] & 0x7f) << (7 * read);
            read += 1;
            rest[read - 1] & 0x80 != 0
        } {}
        families.push(fields(&rest[read..read + length]));
        rest = &rest[read + length..];
    }
    let text = |field: &(u64, u64, Vec<u8>)| String::from_utf8(field.2.clone()).unwrap();
    let names: Vec<_> = families.iter().map(|family| text(&family[0])).collect();
    let expected = [
        "my.requests_total",
        "level",
        "odd",
        "size",
        "exact",
        "latency",
        "build_info",
        "mode",
        "limited_total",
    ];
    assert_eq!(names, expected);
    let kinds: Vec<_> = families.iter().map(|family| family[2].2[0]).collect();
    assert_eq!(kinds, [0, 1, 3, 4, 4, 2, 1, 1, 0]);
    let metric = fields(&families[0][3].2);
    let label = fields(&metric[1].2);
    assert_eq!((text(&label[0]), text(&label[1])), ("user.name".into(), "x\"\\\ny".into()));
    let counter = fields(&metric[2].2);
    assert_eq!(counter[0].2, (u64::MAX as f64).to_le_bytes());
    assert_eq!(fields(&counter[2].2)[1].2, 500_000_000_u64.to_le_bytes(), "started at 1.5 s");
    let exact = fields(&fields(&families[4][3].2)[0].2);
    let numbers: Vec<_> = exact.iter().map(|field| field.0).collect();
    assert_eq!(numbers, [1, 2, 5, 6, 7, 9, 10, 12, 12, 13, 15]);
    assert_eq!(exact[9].2, [4, 1, 6], "deltas +2, -1, +3");
}

proptest! {
    #[test]
    fn distinct_label_sets_give_distinct_lines(
        sets in proptest::collection::hash_set(("\\PC*|[\"\\\\\n,={}a]*", "\\PC*|[\"\\\\\n,={}a]*"), 1..20),
    ) {
        let registry = Registry::new();
        let description = Description::new("c", "").labels(["x", "y"]);
        let family: CounterFamily<[&str; 2]> = registry.register(description).unwrap();
        for (x, y) in &sets {
            family.inc(&[x, y]);
        }
        let text = registry.text();
        let lines: Vec<&str> = text.split_terminator('\n').filter(|l| !l.starts_with('#')).collect();
        prop_assert_eq!(lines.len(), sets.len());
        let read: HashSet<(String, String)> = lines.iter().map(|line| unescape(line)).collect();
        prop_assert_eq!(read, sets);
    }
}

/// The two label values of a line `c_total{x="...",y="..."} 1`.
fn unescape(line: &str) -> (String, String) {
    let mut chars = line.strip_prefix("c_total{x=\"").unwrap().chars();
    let mut values = Vec::new();
    for behind in [",y=\"", "} 1"] {
        let mut value = String::new();
        loop {
            match chars.next().unwrap() {
                '"' => break,
                '\\' => value.push(match chars.next().unwrap() {
                    'n' => '\n',
                    other => other,
                }),
                other => value.push(other),
            }
        }
        chars = chars.as_str().strip_prefix(behind).unwrap().chars();
        values.push(value);
    }
    let second = values.pop().unwrap();
    (values.pop().unwrap(), second)
}

#[test]
fn a_scrape_that_waits_keeps_no_thread_waiting() {
    let registry = Registry::new();
    let description = Description::new("c", "").labels(["k"]);
    let family: CounterFamily<[&str; 1]> = registry.register(description).unwrap();
    for i in 0..20_000 {
        family.inc(&[i.to_string()]);
    }
    let mut scrape = registry.scrape();
    let first = scrape.next_piece().unwrap().len();
    assert!((64 << 10..70 << 10).contains(&first), "{first}");
    // The reader pauses here. All of this would block if the scrape held a lock.
    for i in 0..40_000 {
        family.inc(&[i.to_string()]);
    }
    assert!(family.remove(&["7"]).unwrap());
    let mut rest = Vec::new();
    scrape.write_to(&mut rest).unwrap();
    assert!(String::from_utf8(rest).unwrap().contains("c_total{k=\"39999\"} 1\n"));
}

#[test]
fn a_page_is_the_pieces_one_after_the_other() {
    let registry = Registry::new();
    let description = Description::new("c", "").labels(["k"]);
    let family: CounterFamily<[&str; 1]> = registry.register(description).unwrap();
    for i in 0..3000 {
        family.inc(&[format!("{i:0>40}")]);
    }
    for format in [Format::Text, Format::OpenMetrics2, Format::Protobuf] {
        let scrape = || registry.scrape().format(format, Escaping::Underscores);
        let mut pieces = Vec::new();
        scrape().write_to(&mut pieces).unwrap();
        assert!(pieces.len() > 64 << 10);
        let mut page = b"before".to_vec();
        scrape().append_to(&mut page);
        assert!(page == [&b"before"[..], &pieces].concat());
        // From the second piece on, and after the last one.
        let mut begun = scrape();
        page = begun.next_piece().unwrap().to_vec();
        begun.append_to(&mut page);
        assert!(page == pieces);
        let mut ended = scrape();
        while ended.next_piece().is_some() {}
        ended.append_to(&mut page);
        assert!(page == pieces);
    }
}

#[test]
fn bounds_of_other_programs_stay_as_they_are() {
    let text = |format| {
        let mut encoder = Encoder::new(format, Escaping::Underscores);
        let bucket = |bound, le| Bucket::new(bound, 1).le(le);
        let infinite = bucket(f64::INFINITY, "+Inf");
        let buckets = [bucket(1.0, "1"), bucket(2.0, "2.0"), bucket(1e6, "1e+06"), infinite];
        let histogram = HistogramValue::new(4, 3.5).buckets(&buckets);
        let family = family("size", Kind::Histogram, &[]);
        encoder.family(&family);
        encoder.series(&family, &series(Value::Histogram(histogram), &[]));
        String::from_utf8(encoder.buffer().to_vec()).unwrap()
    };
    for le in ["1", "2.0", "1e+06"] {
        assert!(text(Format::Text).contains(&format!("{{le=\"{le}\"}} ")));
    }
    for le in ["1.0", "2.0", "1e+06"] {
        assert!(text(Format::OpenMetrics).contains(&format!("{{le=\"{le}\"}} ")));
    }
}
