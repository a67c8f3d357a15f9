//! `quipu messages convert` as users run it: the real binary, over pipes and files.

#![allow(clippy::unwrap_used, reason = "functions of tests may fail by panicking")]

#[path = "convert/files.rs"]
mod files;
#[path = "convert/pipes.rs"]
mod pipes;
#[path = "convert/support.rs"]
mod support;

use quipu_arena::Arena;
use quipu_wire::{Framing, Gauge, Kind};
use support::{argument, encoded, exact, format, lines, messages, run, tsv};

#[test]
fn every_format_is_converted_into_every_other() {
    let formats: Vec<_> = exact().collect();
    for (i, from) in formats.iter().enumerate() {
        for (j, to) in formats.iter().enumerate() {
            let kind = Kind::ALL[(i + j) % 4];
            let messages = messages(kind);
            let arguments = [
                "messages",
                "convert",
                "--from",
                from.as_str(),
                "--to",
                to.as_str(),
                "--message",
                argument(kind),
            ];
            let out = run(&arguments, &encoded(*from, Framing::Own, &messages)).success();
            let read = lines(*to, kind, Framing::Own, &out);
            assert_eq!(in_order(&read), in_order(&tsv(&messages)), "{arguments:?}");
        }
    }
}

#[test]
fn every_format_kind_and_framing_survives_a_way_through_tsv() {
    const FRAMINGS: [(&str, Framing); 4] = [
        ("own", Framing::Own),
        ("u32le", Framing::U32Le),
        ("varint", Framing::Varint),
        ("none", Framing::None),
    ];
    for format in exact() {
        for (index, (name, framing)) in FRAMINGS.into_iter().enumerate() {
            for kind in [Kind::ALL[index], Kind::MetricUnion] {
                let mut messages = messages(kind);
                if framing == Framing::None && !format.is_delimited() {
                    messages.truncate(1);
                }
                let text = tsv(&messages);
                let to =
                    ["--to", format.as_str(), "--to-framing", name, "--message", argument(kind)];
                let arguments = [&["messages", "convert", "--from", "tsv"][..], &to].concat();
                let out = run(&arguments, text.as_bytes()).success();
                assert_eq!(out, encoded(format, framing, &messages), "{arguments:?}");

                let from = ["--from", format.as_str(), "--from-framing", name];
                let rest = ["--to", "tsv", "--message", argument(kind)];
                let arguments = [&["messages", "convert"][..], &from[..], &rest].concat();
                let back = run(&arguments, &out).success();
                let back = String::from_utf8(back).unwrap();
                assert_eq!(in_order(&back), in_order(&text), "{arguments:?}");
            }
        }
    }
}

/// Returns the lines in a fixed order, because a quipu stream can reorder unions that hold
/// different metrics.
fn in_order(lines: &str) -> Vec<&str> {
    let mut lines: Vec<_> = lines.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn a_kind_that_loses_all_values_is_questioned() {
    let json = b"{\"ID\":\"Yg==\",\"Value\":7}\n{\"ID\":\"Yg==\",\"Value\":8}\n";
    let run = run(&["messages", "convert", "--from", "json", "--to", "tsv"], json);
    run.expect_error(&["is each message a counter? --message counter", "0 messages"]);
}

#[test]
fn a_second_message_needs_a_length_between() {
    for format in exact().filter(|format| !format.is_delimited()) {
        let to = ["--to", format.as_str(), "--to-framing", "none"];
        let arguments = [&["messages", "convert", "--from", "tsv"][..], &to].concat();
        let text = tsv(&messages(Kind::Counter)[..2]);
        run(&arguments, text.as_bytes()).expect_error(&["use a framing with lengths", "message 2"]);
    }
}

#[test]
fn an_object_with_unknown_members_is_refused() {
    let run = run(&["messages", "convert", "--from", "json", "--to", "tsv"], b"{\"a\":1}\n");
    run.expect_error(&["expected a member of a union: Type, ID,", "0 messages were converted"]);
}

#[test]
fn messages_that_a_format_cannot_carry_fail_or_are_skipped() {
    let gauge = |id, value| Gauge { id, value }.into();
    for value in [f64::NAN, f64::NEG_INFINITY, -0.0] {
        let messages = [gauge(b"a", 1.0), gauge(b"b", value), gauge(b"c", 3.0)];
        let text = tsv(&messages);
        for format in exact() {
            let name = format.as_str();
            let arguments =
                ["messages", "convert", "--from", "tsv", "--to", name, "--message", "gauge"];
            let going = [&arguments[..], &["--keep-going"]].concat();
            let mut alone = Vec::new();
            let written = format.encode(&messages[1], &mut alone);
            let run = |arguments: &[&str]| run(arguments, text.as_bytes());
            if written.is_ok() {
                // Expect the value that the format itself reads back, because some formats lose the
                // sign.
                let mut arena = Arena::new();
                let scope = arena.as_scope();
                let back = format.decode(Kind::Gauge, &alone, &scope).unwrap();
                let out = run(&arguments).success();
                let expected = tsv(&[messages[0], back, messages[2]]);
                assert_eq!(lines(format, Kind::Gauge, Framing::Own, &out), expected, "{name}");
                assert_eq!(run(&going).success(), out, "{name}");
                continue;
            }
            let stopped = run(&arguments);
            stopped.expect_error(&[
                &format!("standard input: message 2: {name}: cannot write the message: "),
                "; 1 message was converted; --keep-going skips such messages",
            ]);
            assert_eq!(lines(format, Kind::Gauge, Framing::Own, &stopped.out), tsv(&messages[..1]));
            let skipped = run(&going);
            skipped
                .expect_error(&["1 message was skipped: message 2: ", "2 messages were converted"]);
            let rest = tsv(&[messages[0], messages[2]]);
            assert_eq!(lines(format, Kind::Gauge, Framing::Own, &skipped.out), rest);
        }
    }
}

#[test]
fn truncated_input_is_an_error_after_the_whole_messages() {
    let messages = messages(Kind::MetricUnion);
    for format in exact() {
        let stream = encoded(format, Framing::U32Le, &messages);
        let first = encoded(format, Framing::U32Le, &messages[..1]).len();
        let name = format.as_str();
        let arguments =
            ["messages", "convert", "--from", name, "--to", "tsv", "--from-framing", "u32le"];
        for cut in [first - 1, first + 1, first + 5, stream.len() - 1] {
            let run = run(&arguments, &stream[..cut]);
            run.expect_error(&[
                &format!("quipu: standard input: {name}: at byte "),
                "found the end",
            ]);
            let whole = run.text().lines().count();
            assert!(tsv(&messages).starts_with(&run.text()) && whole < 4, "{name} {cut} {run:?}");
            assert_eq!(whole > 0, cut > first, "{name} {cut} {run:?}");
        }
    }
}

#[test]
fn own_framing_cut_anywhere_gives_whole_messages() {
    let messages = messages(Kind::MetricUnion);
    let text = tsv(&messages);
    for format in exact() {
        let stream = encoded(format, Framing::Own, &messages);
        for cut in [1, stream.len() / 3, stream.len() / 2, stream.len() - 2] {
            let run = run(
                &["messages", "convert", "--from", format.as_str(), "--to", "tsv"],
                &stream[..cut],
            );
            assert!(text.starts_with(&run.text()), "{} {cut} {run:?}", format.as_str());
            // Without an error, the cut was between two messages.
            if run.code != Some(0) {
                run.expect_error(&["standard input: ", "converted"]);
            }
        }
    }
}

#[test]
fn garbage_is_an_error() {
    // Every format rejects these bytes, because the lengths are too large, and the tags do not
    // exist.
    let mut state = 7u32;
    let garbage: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8 | 0x80
    })
    .take(5000)
    .collect();
    for format in exact() {
        let name = format.as_str();
        for framing in ["own", "u32le", "varint", "none"] {
            let arguments =
                ["messages", "convert", "--from", name, "--to", "tsv", "--from-framing", framing];
            let run = run(&arguments, &garbage);
            run.expect_error(&[&format!("quipu: standard input: {name}: at byte ")]);
        }
    }
}

#[test]
fn errors_suggest_the_framing_and_kind_that_fit() {
    let union = encoded(format("protobuf"), Framing::U32Le, &messages(Kind::MetricUnion));
    let arguments = ["messages", "convert", "--from", "protobuf", "--to", "tsv"];
    run(&arguments, &union)
        .expect_error(&["0 messages were converted; is the framing u32le? --from-framing u32le"]);

    let counters = encoded(format("protobuf"), Framing::Own, &messages(Kind::Counter));
    run(&arguments, &counters).expect_error(&["is each message a counter? --message counter"]);

    run(&arguments, tsv(&messages(Kind::Gauge)).as_bytes())
        .expect_error(&["is the format tsv? --from tsv"]);
}

#[test]
fn a_conversion_continues_after_unreadable_messages() {
    let good = messages(Kind::Counter);
    let mut stream = encoded(format("protobuf"), Framing::U32Le, &good[..2]);
    stream.extend([2, 0, 0, 0, 0xff, 0xff]);
    stream.extend(encoded(format("protobuf"), Framing::U32Le, &good[2..]));
    let arguments = [
        &["messages", "convert", "--from", "protobuf", "--to", "tsv", "--message", "counter"][..],
        &["--from-framing", "u32le", "--keep-going", "-", "-o", "-", "--force"],
    ]
    .concat();
    let run = run(&arguments, &stream);
    run.expect_error(&[
        "standard input: 1 message was skipped: message 3: protobuf: at byte ",
        "4 messages were converted",
    ]);
    assert_eq!(run.text(), tsv(&good));
}

#[test]
fn errors_suggest_skipping_where_it_is_possible() {
    // No framing is suggested, because the fault is after the head of the input.
    let good = encoded(format("protobuf"), Framing::Own, &messages(Kind::Counter)).repeat(2000);
    let arguments =
        ["messages", "convert", "--from", "protobuf", "--to", "tsv", "--message", "counter"];
    let bad = [&good[..], &[2, 0xff, 0xff]].concat();
    run(&arguments, &bad)
        .expect_error(&["; 8,000 messages were converted; --keep-going skips such messages\n"]);

    let text = tsv(&messages(Kind::Counter)).repeat(2000) + "Counter x";
    let arguments = ["messages", "convert", "--from", "tsv", "--to", "tsv", "--message", "counter"];
    let going = [&arguments[..], &["--keep-going"]].concat();
    run(&arguments, text.as_bytes()).expect_error(&["; 8,000 messages were converted\n"]);
    run(&going, text.as_bytes()).expect_error(&["without lengths between them"]);
}

#[test]
fn an_error_has_the_number_of_a_message_of_another_kind() {
    let mut text = tsv(&messages(Kind::Counter));
    let place = text.len();
    text.push_str(&tsv(&messages(Kind::Gauge)));
    let arguments = ["messages", "convert", "--from", "tsv", "--to", "tsv", "--message", "counter"];
    let run = run(&arguments, text.as_bytes());
    run.expect_error(&[
        &format!("tsv: at byte {place}: expected a line of a counter"),
        "4 messages were converted",
    ]);
    assert_eq!(run.text(), tsv(&messages(Kind::Counter)));
}

#[test]
fn empty_input_has_no_messages() {
    for format in exact() {
        assert_eq!(
            run(&["messages", "convert", "--from", format.as_str(), "--to", "tsv"], b"").success(),
            b""
        );
    }
}

#[test]
fn names_of_formats_are_listed() {
    let help = run(&["messages", "convert", "--help"], b"").success();
    let help = String::from_utf8(help).unwrap();
    let wrong = run(&["messages", "convert", "--from", "yaml", "--to", "tsv"], b"");
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
    for format in exact() {
        assert!(help.contains(format.as_str()), "{help}");
        assert!(wrong.err.contains(format.as_str()), "{wrong:?}");
    }
}
