//! Programs of the target `exposition`: inputs that once made a page unreadable, and all inputs
//! with all types.

use crate::program::{encode, flags, op, segment};

type Op<'a> = (u8, u8, &'a [u8]);

/// The argument for OpenMetrics.
const OPEN: u8 = 1;

/// The programs, each once for each escaping, with its name.
pub fn programs() -> Vec<(String, Vec<u8>)> {
    let all: [(&str, u8, &[Op<'_>]); 50] = [
        // A counter whose name is only its suffix.
        ("only_suffix_statsd", 0, &[(op::STATSD, 0, b".total:1|c")]),
        ("only_suffix_import", 0, &[(op::IMPORT, 0, b"# TYPE _total counter\n_total 1\n")]),
        ("only_suffix_push", 0, &[(op::PUSH, 0, b"# TYPE _total counter\n_total 1\n")]),
        ("only_suffix_write", 0, &[(op::WRITE, 1, b"0\t_total\t\t\ta=b\t1")]),
        ("only_suffix_ingest", 0, &[(op::INGEST, 1, b"_total:1|c\n")]),
        ("only_suffix_library", 0, &[(op::LIBRARY, 0, b"0\t_total\t\t\t\t1")]),
        (
            "only_suffix_twice",
            0,
            &[(op::STATSD, 0, b".total:1|c"), (op::GRAPHITE, 0, b"_total 2 N\n")],
        ),
        ("only_info", 0, &[(op::PUSH, OPEN, b"# TYPE x info\n_info{a=\"b\"} 1\n# EOF\n")]),
        // Units that do not end the name that is shown.
        (
            "unit_of_otlp_beside_target",
            0,
            &[(op::OTLP, 0, b"0\ty\ts\t\t\t1"), (op::TARGET, 0, b"y_seconds_total 1\n")],
        ),
        (
            "unit_of_target_beside_gauge",
            0,
            &[
                (op::TARGET, OPEN, b"# TYPE y_seconds counter\n# UNIT y_seconds seconds\ny_seconds_total 1\n# EOF\n"),
                (op::GRAPHITE, 0, b"y_seconds 1 N\n"),
            ],
        ),
        (
            "unit_of_info",
            0,
            &[(op::PUSH, OPEN, b"# TYPE x_seconds info\n# UNIT x_seconds seconds\nx_seconds_info{a=\"b\"} 1\n# EOF\n")],
        ),
        ("unit_of_write", 0, &[(op::WRITE, 1, b"1\tx\tseconds\thelp\ta=b\t1")]),
        ("unit_of_segment", 0, &[(op::SEGMENT, segment::HOSTILE, b"1\tx\ts\thelp\ta=b\t1")]),
        // Names of labels that escaping makes the same.
        ("labels_import", 0, &[(op::IMPORT, 0, b"x{\"a b\"=\"1\",a_b=\"2\"} 1\n")]),
        ("labels_push", 0, &[(op::PUSH, 0, b"x{\"a b\"=\"1\",a_b=\"2\"} 1\n")]),
        ("labels_group", 0, &[(op::PUSH, 12, b"x{\"a b\"=\"1\"} 1\n")]),
        ("labels_write", 0, &[(op::WRITE, 0, b"1\tx\t\t\ta b=1;a_b=2\t1")]),
        ("labels_otlp", flags::UNTRANSLATED, &[(op::OTLP, 0, b"1\tx\t\t\ta b=1;a_b=2\t1")]),
        ("labels_influx", 0, &[(op::INFLUX, 0, b"x,a\\ b=1,a_b=2 y=1\n")]),
        (
            "labels_of_segment",
            0,
            &[(op::SEGMENT, segment::LABELLED | segment::VERBATIM, b"1\tx\t\t\ta b=1\t1\n1\ty\t\t\ta_b=1\t1")],
        ),
        (
            "series_import",
            0,
            &[(op::IMPORT, 0, b"{\"x y\"} 1\nx_y 2\nx{\"a b\"=\"1\"} 1\nx{a_b=\"1\"} 2\n")],
        ),
        ("bound_as_label", 0, &[(op::WRITE, 1, b"2\tx\t\t\tle=1;a=b\t1,2")]),
        // A reserved prefix, before escaping.
        ("own_import", flags::OWN, &[(op::IMPORT, 0, b"{\"quipu.events_total\"} 999\n")]),
        ("own_target", flags::OWN, &[(op::TARGET, 0, b"quipu_events_total 999\nquipu_keys 1\n")]),
        // Bounds of histograms of other processes.
        ("bounds_unsorted", 0, &[(op::SEGMENT, segment::HOSTILE, b"2\tx\t\t\ta=b\t2,1")]),
        ("bounds_nan", 0, &[(op::SEGMENT, segment::HOSTILE, b"2\tx\t\t\ta=b\tNaN,1")]),
        ("bounds_equal", 0, &[(op::SEGMENT, segment::HOSTILE, b"2\tx\t\t\ta=b\t1,1")]),
        ("bounds_infinite", 0, &[(op::SEGMENT, segment::HOSTILE, b"2\tx\t\t\ta=b\t-inf,1,inf")]),
        ("native", flags::SEGMENT, &[(op::SEGMENT, segment::HOSTILE, b"3\tx\t\t\ta=b\t1,2")]),
        ("quantiles", 0, &[(op::SEGMENT, segment::HOSTILE, b"4\tx\t\t\ta=b\t2,NaN,0.5,0.5")]),
        // Names that both are registered.
        ("library", 0, &[(op::LIBRARY, 0, b"0\tx y\t\t\t\t1\n0\tx_y\t\t\t\t1")]),
        (
            "library_kinds",
            0,
            &[(op::LIBRARY, 0, b"0\ta\ts\thelp\tl=v\t1\n1\tb\t\thelp\tl=v\t1.5\n2\tc\t\t\tl=v\t1,2\n3\td\t\t\tl=v\t\n4\te\t\t\tl=v\t0.5,0.9\n5\tf\t\t\tl=v\t\n6\tg\t\t\tl=v;m=w\t\n3\th\t\t\tl=v\t1,2")],
        ),
        // Units with characters that names escape.
        ("unit_quoted", 0, &[(op::LIBRARY, 0, b"1\tx\ta\"b\t\t\t1")]),
        // Series that escaping, or labels without values, make the same.
        ("states", 0, &[(op::LIBRARY, 0, b"6\tg\t\t\tl=v;m=v\t\n6\th\t\t\tl=;m=v\t")]),
        (
            "names_of_segment",
            flags::SEGMENT,
            &[(
                op::SEGMENT,
                segment::VARIANT | segment::VERBATIM,
                b"1\tx y\t\t\ta=1\t1\n1\tx_y\t\t\ta=1\t2",
            )],
        ),
        ("names_of_target", 0, &[(op::TARGET, 0, b"{\"x y\"} 1\nx_y 2\n")]),
        (
            "empty_labels_of_segment",
            flags::SEGMENT,
            &[(op::SEGMENT, segment::VARIANT, b"1\te\t\t\ta=\t1\n1\te\t\t\tb=\t1")],
        ),
        ("empty_labels", 0, &[(op::IMPORT, 0, b"x{a=\"\"} 1\nx 2\nx{b=\"\"} 3\n")]),
        (
            "reserved_labels",
            0,
            &[(
                op::IMPORT,
                0,
                b"# TYPE x counter\nx 1\nx{quipu_overflow=\"true\"} 2\nx_total{quipu_name=\"x\"} 3\n",
            )],
        ),
        // A histogram without buckets, and a family whose first series is omitted.
        (
            "sum_and_count",
            0,
            &[(op::TARGET, 0, b"# TYPE c histogram\nc_sum 1\nc_count 2\n")],
        ),
        (
            "first_is_omitted",
            0,
            &[
                (op::SEGMENT, segment::HOSTILE, b"3\tc\t\t\tm=v\t1"),
                (op::SEGMENT, 0, b"3\tc\t\t\tl=v\t1,2"),
            ],
        ),
        // All kinds by all inputs.
        (
            "text_kinds",
            0,
            &[(op::PUSH, OPEN, b"# TYPE a counter\n# UNIT a_s s\na_total 1 # {id=\"x\"} 1 2\n# TYPE b gauge\nb 1\n# TYPE c histogram\nc_bucket{le=\"1\"} 1\nc_bucket{le=\"+Inf\"} 2\nc_sum 1\nc_count 2\n# TYPE d summary\nd{quantile=\"0.5\"} 1\nd_sum 1\nd_count 1\n# TYPE e info\ne_info{v=\"1\"} 1\n# TYPE f stateset\nf{f=\"on\"} 1\n# TYPE g unknown\ng 1\n# EOF\n")],
        ),
        (
            "target_kinds",
            flags::OWN,
            &[(op::TARGET, OPEN, b"# TYPE a counter\na_total 1 # {id=\"x\"} 1 2\na_created 1\n# TYPE b gauge\nb 1\n# TYPE c histogram\nc_bucket{le=\"1\"} 1\nc_bucket{le=\"+Inf\"} 2\nc_sum 1\nc_count 2\n# TYPE d summary\nd{quantile=\"0.5\"} 1\nd_sum 1\nd_count 1\n# TYPE e info\ne_info{v=\"1\"} 1\n# TYPE f stateset\nf{f=\"on\"} 1\n# TYPE g gaugehistogram\ng_bucket{le=\"+Inf\"} 1\ng_gcount 1\ng_gsum 1\n# EOF\n")],
        ),
        (
            "write_kinds",
            0,
            &[(op::WRITE, 1, b"0\ta_total\t\thelp\tl=v\t1\n1\tb\t\t\tl=v\t1\n2\tc\t\t\tl=v\t1,2\n3\td\t\t\tl=v\t\n4\te\t\t\tl=v\t0.5\n5\tf_info\t\t\tl=v\t1\n6\tg\t\t\tg=v\t1\n3\th\t\t\tl=v\t1,2")],
        ),
        (
            "write_1_kinds",
            0,
            &[(op::WRITE, 0, b"0\ta_total\t\thelp\tl=v\t1\n1\tb\t\t\tl=v\t1\n2\tc\t\t\tl=v\t1,2\n3\td\t\t\tl=v\t\n4\te\t\t\tl=v\t0.5\n7\tf\t\t\tl=v\t1")],
        ),
        (
            "otlp_kinds",
            0,
            &[(op::OTLP, 1, b"0\ta\ts\thelp\tl=v\t1\n1\tb\tBy\t\tl=v\t1\n2\tc\t\t\tl=v\t1,2\n3\td\t\t\tl=v\t1\n4\te\t\t\tl=v\t0.5")],
        ),
        (
            "segment_kinds",
            flags::SEGMENT,
            &[(op::SEGMENT, 0, b"0\ta\ts\thelp\tl=v\t1\n1\tb\t\t\tl=v\t1\n2\tc\t\t\tl=v\t1,2\n3\td\t\t\tl=v\t\n4\te\t\t\tl=v\t0.5\n5\tf\t\t\tl=v\t\n6\tg\t\t\tl=v\t")],
        ),
        (
            "push_families",
            0,
            &[(op::PUSH_FAMILIES, 2, b"0\ta\t\thelp\tl=v\t1\n1\tb\t\t\tl=v\t1\n2\tc\t\t\tl=v\t1,2\n3\td\t\t\tl=v\t1\n4\te\t\t\tl=v\t0.5")],
        ),
        (
            "types_of_one_name",
            0,
            &[
                (op::GRAPHITE, 0, b"x_total 1 N\n"),
                (op::TARGET, 0, b"# TYPE x_total counter\nx_total 1\n"),
                (op::SEGMENT, 0, b"0\tx\t\t\tl=v\t1"),
                (op::MERGE, 0, b""),
                (op::STATSD, 0, b"x:1|c\nx_sum:1|ms\ny:1|h|@0.5"),
            ],
        ),
        (
            "influx_and_ingest",
            0,
            &[
                (op::INFLUX, 0, b"cpu,host=a user=0.5,system=2i,idle=t\n"),
                (op::INGEST, 0, b"took:1|ms\n"),
            ],
        ),
    ];
    let mut programs = Vec::new();
    for (name, flags, ops) in all {
        for escaping in 0..4_u8 {
            let flags = flags | escaping << flags::ESCAPING;
            programs.push((format!("{name}_{escaping}"), encode(flags, ops)));
        }
    }
    programs
}
