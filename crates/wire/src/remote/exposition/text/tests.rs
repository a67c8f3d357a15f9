//! Lines of both formats, and lines that break their rules.

use std::format;
use std::string::{String, ToString};
use std::vec::Vec;

use super::*;

fn shown(input: impl AsRef<[u8]>, format: TextFormat) -> String {
    let mut reader = TextReader::new(input.as_ref(), Options::new(format));
    let mut items = Vec::new();
    while let Some(item) = reader.next() {
        items.push(show(&item));
    }
    items.join("; ")
}

fn labels(labels: &[TextLabel<'_>]) -> String {
    let pairs: Vec<_> =
        labels.iter().map(|label| format!("{}={}", label.name, label.value)).collect();
    format!("{{{}}}", pairs.join(","))
}

/// Formats a parsed line.
fn show(item: &Result<Item<'_, '_>, TextLineError>) -> String {
    match item {
        Ok(Item::Help { name, text }) => format!("help {name} {text}"),
        Ok(Item::Type { name, kind }) => format!("type {name} {kind:?}"),
        Ok(Item::Unit { name, unit }) => format!("unit {name} {unit}"),
        Ok(Item::Comment(text)) => format!("comment{text}"),
        Ok(Item::End) => "end".into(),
        Ok(Item::Sample(sample)) => {
            let mut text = format!("{}{} {}", sample.name, labels(sample.labels), sample.value);
            if let Some(time) = sample.timestamp_ms {
                text += &format!(" @{time}");
            }
            if let Some(exemplar) = &sample.exemplar {
                text += &format!(" # {} {}", labels(exemplar.labels), exemplar.value);
                if let Some(time) = exemplar.timestamp_ms {
                    text += &format!(" @{time}");
                }
            }
            text
        }
        Err(error) => format!("{}@{}", error.reason().as_str(), error.offset()),
    }
}

#[test]
fn lines_of_prometheus() {
    for (line, expected) in [
        ("", ""),
        (" \t", ""),
        ("a 1", "a{} 1"),
        ("a:b_C9 1.5e3", "a:b_C9{} 1500"),
        ("\ta\t \t-1 \t", "a{} -1"),
        ("a 1 1700000000123", "a{} 1 @1700000000123"),
        ("a 1 -5", "a{} 1 @-5"),
        ("a{} 1", "a{} 1"),
        ("a{}1", "a{} 1"),
        ("a {b=\"c\"} 1", "a{b=c} 1"),
        ("a{b=\"c\",d=\"\",_e9=\"x y\"} +Inf", "a{b=c,d=,_e9=x y} inf"),
        ("a { b = \"c\" , d = \"e\" , } NaN 7", "a{b=c,d=e} NaN @7"),
        (r#"a{b="\"\\\n\x",c="\\n"} 1"#, "a{b=\"\\\n\\x,c=\\n} 1"),
        ("a{b=\"}{,#=\"} 1", "a{b=}{,#=} 1"),
        ("{\"my.name\"} 1", "my.name{} 1"),
        ("{\"my.name\",a=\"b\",\"c.d\"=\"e\"} 1", "my.name{a=b,c.d=e} 1"),
        ("{a=\"b\",\"my \\\"name\\\"\"} 1", "my \"name\"{a=b} 1"),
        ("caf\u{e9} 1", "malformed_name@3"),
        ("{\"caf\u{e9}\",\"\u{e9}\"=\"\u{20ac}\"} 1", "caf\u{e9}{\u{e9}=\u{20ac}} 1"),
        ("# HELP a The \\\\ \\n \\\" text.", "help a The \\ \n \\\" text."),
        ("#\t HELP\t a\ttext ", "help a text "),
        ("# HELP a", "help a "),
        ("# HELP \"my.name\" text", "help my.name text"),
        ("# TYPE a counter", "type a Counter"),
        ("  # TYPE a \t histogram ", "type a Histogram"),
        ("# TYPE a untyped", "type a Unknown"),
        ("# TYPE a unknown", "unknown_type@9"),
        ("# TYPE a Counter", "unknown_type@9"),
        ("# TYPE a", "unknown_type@8"),
        ("# TYPE", "comment TYPE"),
        ("# TYPE ", "malformed_name@7"),
        ("# HELP 9a x", "malformed_name@7"),
        ("# HELP a-b x", "malformed_name@8"),
        ("# HELP \"\" x", "malformed_name@9"),
        ("# HELP \"a", "malformed_name@9"),
        ("#HELP a x", "commentHELP a x"),
        ("# HELPER a x", "comment HELPER a x"),
        ("# UNIT a seconds", "comment UNIT a seconds"),
        ("# EOF", "comment EOF"),
        ("#", "comment"),
        ("a 1\n# EOF\nb 2", "a{} 1; comment EOF; b{} 2"),
    ] {
        assert_eq!(shown(line, TextFormat::Prometheus), expected, "{line}");
    }
}

#[test]
fn lines_that_break_the_rules_of_prometheus() {
    for (line, expected) in [
        ("a", "malformed_value@1"),
        ("a ", "malformed_value@2"),
        ("a{b=\"c\"}", "malformed_value@8"),
        ("a x", "malformed_value@2"),
        ("a 1_0", "malformed_value@2"),
        ("a 0x1p3", "malformed_value@2"),
        ("a 1e999", "malformed_value@2"),
        ("a 1,5", "malformed_value@2"),
        ("a 1 1.5", "malformed_timestamp@4"),
        ("a 1 x", "malformed_timestamp@4"),
        ("a 1 2 3", "malformed_timestamp@6"),
        ("a 1 99999999999999999999", "malformed_timestamp@4"),
        ("a 1 # {b=\"c\"} 1", "malformed_timestamp@4"),
        ("9a 1", "malformed_name@0"),
        ("-a 1", "malformed_name@0"),
        ("a-b 1", "malformed_name@1"),
        ("a-1", "malformed_name@1"),
        ("{} 1", "malformed_name@2"),
        ("{b=\"c\"} 1", "malformed_name@7"),
        ("{\"\"} 1", "malformed_name@1"),
        ("a{\"b\"} 1", "malformed_name@2"),
        ("{\"a\",\"b\"} 1", "malformed_name@5"),
        ("a{b} 1", "malformed_labels@3"),
        ("a{b=c} 1", "malformed_labels@4"),
        ("a{b=\"c} 1", "malformed_labels@9"),
        ("a{b=\"c\\", "malformed_labels@7"),
        ("a{b=\"c\\\"} 1", "malformed_labels@11"),
        ("a{b=\"c\"", "malformed_labels@7"),
        ("a{b=\"c\" d=\"e\"} 1", "malformed_labels@8"),
        ("a{b=\"c\"d=\"e\"} 1", "malformed_labels@7"),
        ("a{,b=\"c\"} 1", "malformed_labels@2"),
        ("a{b=\"c\",,} 1", "malformed_labels@8"),
        ("a{9=\"c\"} 1", "malformed_labels@2"),
        ("a{b:c=\"d\"} 1", "malformed_labels@3"),
        ("a{\"\"=\"d\"} 1", "malformed_labels@2"),
        ("a{", "malformed_labels@2"),
        ("a{__name__=\"b\"} 1", "malformed_labels@2"),
        ("a{b=\"c\",b=\"d\"} 1", "duplicate_label@8"),
        ("a{b=\"c\",\"b\"=\"d\"} 1", "duplicate_label@8"),
        ("a{b=\"line", "malformed_labels@9"),
    ] {
        assert_eq!(shown(line, TextFormat::Prometheus), expected, "{line}");
        // The lines before and after it are read.
        let among = shown(format!("x 1\n{line}\ny 2\n"), TextFormat::Prometheus);
        assert_eq!(among, format!("x{{}} 1; {expected}; y{{}} 2"), "{line}");
    }
    assert_eq!(shown(b"a 1\nb{c=\"\xff\"} 2\nd 3", TextFormat::Prometheus), "a{} 1; utf8@5; d{} 3");
}

#[test]
fn lines_of_openmetrics() {
    for (line, expected) in [
        ("a 1", "a{} 1"),
        ("a{b=\"c\",} 1 1.5", "a{b=c} 1 @1500"),
        ("a 1 -0.0015", "a{} 1 @-2"),
        ("a 1 1700000000.1234", "a{} 1 @1700000000123"),
        ("a_total 1 # {id=\"x\"} 0.5", "a_total{} 1 # {id=x} 0.5"),
        ("a_total 1 # {} 0.5 3", "a_total{} 1 # {} 0.5 @3000"),
        (
            "a_total{b=\"c\"} 1 2 # {i=\"x\",\"j.k\"=\"\"} 4 3.25",
            "a_total{b=c} 1 @2000 # {i=x,j.k=} 4 @3250",
        ),
        ("{\"my.name\",b=\"c\"} 1", "my.name{b=c} 1"),
        ("# HELP a The \\\\ \\n \\\" text.", "help a The \\ \n \" text."),
        ("# HELP a ", "help a "),
        ("# TYPE a gaugehistogram", "type a GaugeHistogram"),
        ("# TYPE a info", "type a Info"),
        ("# TYPE a stateset", "type a StateSet"),
        ("# TYPE a unknown", "type a Unknown"),
        ("# UNIT a_seconds seconds", "unit a_seconds seconds"),
        ("# UNIT a ", "unit a "),
        // Rules that this reader does not share.
        ("", "malformed_name@0"),
        (" a 1", "malformed_name@0"),
        ("a  1", "malformed_value@2"),
        ("a\t1", "malformed_value@1"),
        ("a{}1", "malformed_value@3"),
        ("a {b=\"c\"} 1", "malformed_value@2"),
        ("a{ b=\"c\"} 1", "malformed_labels@2"),
        ("a{b= \"c\"} 1", "malformed_labels@4"),
        ("a{b=\"c\", d=\"e\"} 1", "malformed_labels@8"),
        ("a 1 ", "malformed_timestamp@4"),
        ("a 1  2", "malformed_timestamp@4"),
        ("a 1 NaN", "malformed_timestamp@4"),
        ("a 1 1e30", "malformed_timestamp@4"),
        ("a 1 2 3", "malformed_timestamp@5"),
        ("a 1 #", "malformed_timestamp@4"),
        ("a 1 # x", "malformed_timestamp@3"),
        ("a 1 # {x=\"y\"}", "malformed_exemplar@13"),
        ("a 1 # {x=\"y\"} z", "malformed_exemplar@14"),
        ("a 1 # {x=\"y\"} 1 z", "malformed_exemplar@16"),
        ("a 1 # {x=\"y\"} 1 2 3", "malformed_timestamp@17"),
        ("a 1 # {\"y\"} 1", "malformed_labels@10"),
        ("a 1 # {x=\"y\",x=\"z\"} 1", "duplicate_label@13"),
        ("# TYPE a untyped", "unknown_type@9"),
        ("# TYPE a counter ", "unknown_type@9"),
        ("# TYPE  a counter", "malformed_name@7"),
        ("# HELP a", "malformed_name@8"),
        ("#  HELP a b", "unknown_comment@0"),
        ("#HELP a b", "unknown_comment@0"),
        ("# HELPA b", "unknown_comment@0"),
        ("# a comment", "unknown_comment@0"),
        ("#", "unknown_comment@0"),
        (" # EOF", "malformed_name@0"),
        ("# EOF ", "unknown_comment@0"),
    ] {
        let input = format!("{line}\n# EOF\n");
        assert_eq!(shown(&input, TextFormat::OpenMetrics), format!("{expected}; end"), "{line}");
    }
    assert_eq!(shown("# EOF", TextFormat::OpenMetrics), "end");
    assert_eq!(shown("# EOF\na 1", TextFormat::OpenMetrics), "end; after_end@0");
    assert_eq!(shown("# EOF\n\n# EOF\n", TextFormat::OpenMetrics), "end; after_end@0; after_end@0");
    assert_eq!(shown("a 1\n", TextFormat::OpenMetrics), "a{} 1; missing_end@0");
    assert_eq!(shown("", TextFormat::OpenMetrics), "missing_end@0");
}

#[test]
fn limits() {
    let options = Options::new(TextFormat::Prometheus).max_line(15).max_labels(2);
    let read = |input: &str| {
        let mut reader = TextReader::new(input.as_bytes(), options);
        let mut all = Vec::new();
        while let Some(item) = reader.next() {
            all.push(show(&item));
        }
        let mut pieces = Vec::new();
        let mut stream = Stream::new(options);
        for piece in input.as_bytes().chunks(3) {
            stream.push(piece, |item| pieces.push(show(&item)));
        }
        stream.finish(|item| pieces.push(show(&item)));
        assert_eq!(all, pieces, "{input}");
        all.join("; ")
    };
    assert_eq!(read("a{a=\"\",b=\"\"} 1"), "a{a=,b=} 1");
    assert_eq!(read("a{a=\"\",b=\"\"} 123\nb 2"), "too_long@15; b{} 2");
    assert_eq!(read("b 2\na{a=\"\",b=\"\"} 123"), "b{} 2; too_long@15");
    assert_eq!(read("a{a=\"\",b=\"\",c=\nb 2"), "too_many_labels@12; b{} 2");
    let error = TextReader::new(b"a 1\n\nb{\n", options);
    let mut error = error;
    assert!(error.next().unwrap().is_ok());
    let error = error.next().unwrap().unwrap_err();
    assert_eq!((error.line(), error.offset(), error.reason()), (3, 2, TextReason::MalformedLabels));
    let text =
        "text: line 3, byte 2: expected labels of the form `{name=\"value\",name=\"value\"}`";
    assert_eq!(error.to_string(), text);
}

#[test]
fn texts_are_equal_if_they_mean_the_same() {
    let text = |raw, escapes| Text { raw, escapes };
    assert_eq!(text("a\\\\x", Escapes::All), text("a\\x", Escapes::All));
    assert_eq!(text("a\\x", Escapes::None), text("a\\x", Escapes::All));
    assert_ne!(text("a\\\"", Escapes::Help), text("a\\\"", Escapes::All));
    assert!(text("\\n", Escapes::Help) == *"\n" && text("\\n", Escapes::None) != *"\n");
    assert_eq!(text("\\", Escapes::All).to_cow(), "\\");
    let mut all = String::from("x");
    text("a\\n\\", Escapes::All).append_to(&mut all);
    assert_eq!(all, "xa\n\\");
}

#[test]
fn errors_name_the_limit() {
    let options = Options::new(TextFormat::Prometheus).max_line(9).max_labels(1);
    let mut reader = TextReader::new(b"a 12345678\n", options);
    let error = reader.next().unwrap().unwrap_err();
    assert_eq!(
        error.to_string(),
        "text: line 1, byte 9: the line is longer than `Options::max_line`"
    );
    let mut reader = TextReader::new(b"a{b=\"\",c=\"\"} 1\n", options.max_line(99));
    let error = reader.next().unwrap().unwrap_err();
    let text = "text: line 1, byte 7: more labels than `Options::max_labels`";
    assert_eq!(error.to_string(), text);
    let mut reader = TextReader::new(b"a{b=\"\",b=\"\"} 1\n", Options::new(TextFormat::Prometheus));
    let error = reader.next().unwrap().unwrap_err();
    let text = "text: line 1, byte 7: a label that was already there: each name may appear once";
    assert_eq!(error.to_string(), text);
}
