//! Checks that the page stays readable for any exposition of targets, next to any metric of the
//! daemon itself.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use quipu::exposition::{Encoder, Escaping, Format as PageFormat, ShownNames};
use quipu::{CounterFamily, Description, GaugeFamily, HistogramFamily, Info, Registry};
use quipu_wire::remote::exposition::read_families;

use super::super::super::merged::MergedFamilies;
use super::super::super::walk::PageWalk;
use super::super::turns;
use super::*;
use quipu_sources::recorded::{Origin, SourceSnapshot};

fn body(text: &str, content_type: &str) -> Result<Body, String> {
    let text = Text::of_type(text.as_bytes().into(), content_type.into());
    read(&text, 1000, &SeededState::default(), &turns::free(), |_| false).map_err(for_people)
}

fn for_people(flaw: Flaw) -> String {
    match flaw {
        Flaw::Contents(reason) => reason,
        Flaw::Late => panic!("there is no hurry"),
    }
}

/// Renders the page of a daemon with targets that exposed these bodies, in a format.
fn shown(own: &Registry, bodies: Vec<Body>, format: PageFormat) -> Vec<u8> {
    let sources = bodies.into_iter().enumerate().map(|(number, body)| {
        let name = number.to_string();
        let label = |name: &str| (name.to_owned(), number.to_string());
        let labels = vec![label("job"), label("instance")];
        let Body { families, series, .. } = body;
        Arc::new(SourceSnapshot {
            origin: Origin::Target,
            name,
            path: PathBuf::new(),
            labels,
            families,
            series,
        })
    });
    let merged = Arc::new(MergedFamilies::merge(own, sources.collect()));
    let mut all = PageWalk::over(own, &merged, &[]).unwrap();
    let mut encoder = Encoder::new(format, Escaping::default());
    // A separate step for each series.
    while all.step_own(&mut encoder, |_| true) {}
    while all.step_rest(&mut encoder, |_| true) {}
    encoder.finish();
    encoder.buffer().to_vec()
}

fn text(own: &Registry, bodies: Vec<Body>, format: PageFormat) -> String {
    String::from_utf8(shown(own, bodies, format)).unwrap()
}

fn of_one(text_of_it: &str, content_type: &str) -> String {
    text(&Registry::new(), vec![body(text_of_it, content_type).unwrap()], PageFormat::Text)
}

/// Checks that each family and each series occurs once on this page, and returns the series.
#[track_caller]
fn expect_readable(text: &str, format: TextFormat) -> BTreeMap<String, f64> {
    let mut reader = TextReader::new(text.as_bytes(), Options::new(format));
    let mut families = Families::new(format, Limits::default());
    let (mut series, mut names) = (BTreeMap::new(), HashSet::new());
    while let Some(item) = reader.next() {
        let item = item.unwrap_or_else(|error| panic!("{error} in {text}"));
        let pushed = families.push(&item, |family| {
            assert!(names.insert(family.name().to_owned()), "{} twice in {text}", family.name());
        });
        pushed.unwrap_or_else(|error| panic!("{error} at {item:?} in {text}"));
        if let Item::Sample(sample) = &item {
            let mut labels: Vec<String> = sample.labels.iter().map(|l| format!("{l:?}")).collect();
            labels.sort();
            let one = format!("{} {labels:?}", sample.name.to_cow());
            assert!(series.insert(one, sample.value).is_none(), "a series twice in {text}");
        }
    }
    series
}

const OPENMETRICS: &str = "application/openmetrics-text";

#[test]
fn a_help_is_kept_once_for_all_sets_of_label_names() {
    let text = "# HELP x Help.\n# TYPE x gauge\nx 1\nx{a=\"1\"} 2\nx{b=\"1\"} 3\n";
    let body = body(text, "text/plain").unwrap();
    let helps: Vec<&str> = body.families.iter().map(|family| &*family.help).collect();
    assert_eq!(helps, ["Help.", "", ""]);
}

#[test]
fn counts_that_are_not_whole_are_shown_by_their_samples() {
    for (text, lines) in [
        (
            "# TYPE h histogram\nh_bucket{le=\"0.50\"} 1.5\nh_bucket{le=\"+Inf\"} 2\nh_count 2\n",
            &["# TYPE h_bucket untyped", "h_bucket{~,le=\"0.50\"} 1.5", "h_count{~} 2"][..],
        ),
        ("# TYPE s summary\ns{quantile=\"0.5\"} 1\n", &["s{~,quantile=\"0.5\"} 1"]),
        ("# TYPE s summary\ns_sum 1\ns_count 2.5\n", &["s_sum{~} 1", "s_count{~} 2.5"]),
        // The counts fall.
        (
            "# TYPE h histogram\nh_bucket{le=\"1\"} 3\nh_bucket{le=\"+Inf\"} 2\nh_sum 1\nh_count 2\n",
            &["h_bucket{~,le=\"1\"} 3", "h_bucket{~,le=\"+Inf\"} 2"],
        ),
        // The missing bucket without a bound is added.
        (
            "# TYPE h histogram\nh_bucket{le=\"1.0\"} 1\nh_sum 1\nh_count 2\n",
            &["# TYPE h histogram", "h_bucket{~,le=\"1.0\"} 1", "h_bucket{~,le=\"+Inf\"} 2"],
        ),
        // A family that continues after another one.
        ("# TYPE c gauge\nc 1\nd 1\nc{a=\"1\"} 2\nc 3\n", &["c{~} 1", "c{~,a=\"1\"} 2"]),
        ("x{a=\"\"} 1\nx{a=\"b\"} 2\nx 3\n", &["x{~} 1", "x{~,a=\"b\"} 2"]),
        ("# TYPE n counter\nn_total -0.5\n", &["n_total{~} -0.5"]),
        ("# TYPE n counter\nn 1e300\n", &["# TYPE n counter", "n{~} 1e+300"]),
    ] {
        let shown = of_one(text, "");
        for line in lines {
            let line = line.replace('~', "job=\"0\",instance=\"0\"");
            assert!(shown.lines().any(|other| other == line), "no {line} in {shown}");
        }
        expect_readable(&shown, TextFormat::Prometheus);
    }
}

#[test]
fn faults_name_the_line() {
    for (text, content_type, part) in [
        ("x 1\nx{ 2\n", "", "line 2"),
        ("x 1\n", OPENMETRICS, "# EOF"),
        ("# TYPE x gaugehistogram\n", "text/plain", "line 1"),
        (&"x 1\n".repeat(1001), "", "more than 1000 samples"),
    ] {
        let error = body(text, content_type).unwrap_err();
        assert!(error.contains(part), "{text}: {error}");
    }
    let many: String = (0..20_001).map(|n| format!("x{{a{n}=\"1\"}} 1\n")).collect();
    let text = Text::of_type(many.into_bytes(), String::new());
    let error = super::read(&text, 1_000_000, &SeededState::default(), &turns::free(), |_| false);
    let error = for_people(error.unwrap_err());
    assert!(error.contains("more than 20000 families"), "{error}");
    let read = body("x 1\nx 2\nup 3\nup{a=\"b\"} 4\n", "").unwrap();
    assert_eq!((read.samples, read.kept, read.series), (4, 2, 2));
}

/// A reproducible sequence of choices.
struct Choices(u64);

impl Choices {
    fn pick<'t>(&mut self, among: &[&'t str]) -> &'t str {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        among[(self.0 >> 33) as usize % among.len()]
    }
}

fn random(choices: &mut Choices) -> (String, &'static str) {
    let content_type = choices.pick(&["", OPENMETRICS]);
    let kinds: &[&str] = match content_type {
        "" => &["counter", "gauge", "histogram", "summary", "untyped"],
        _ => &["counter", "gauge", "histogram", "summary", "unknown", "info", "gaugehistogram"],
    };
    let names = ["x", "x_total", "y", "x_count", "x_bucket", "x_info", "up", "quipu_x", "x_y"];
    let suffixes = ["", "", "_total", "_bucket", "_sum", "_count", "_info", "_gsum", "_created"];
    let labels =
        ["", "{job=\"a\"}", "{job=\"a\",exported_job=\"b\"}", "{le=\"1\"}", "{le=\"+Inf\"}"];
    let more =
        ["{a=\"1\",le=\"1.0\"}", "{\"a.b\"=\"c\"}", "{a_b=\"c\"}", "{\"a.b\"=\"c\",a_b=\"c\"}"];
    let mut text = String::new();
    for _ in 0..12 {
        let name = choices.pick(&names);
        if choices.pick(&["t", "s", "s"]) == "t" {
            text += &format!("# TYPE {name} {}\n", choices.pick(kinds));
        }
        for _ in 0..choices.pick(&["", "a", "bb", "cccc"]).len() {
            let suffix = choices.pick(&suffixes);
            let labels = choices.pick(&[&labels[..], &more].concat());
            let value = choices.pick(&["1", "2", "0.5", "-1", "NaN", "+Inf"]);
            text += &format!("{name}{suffix}{labels} {value}\n");
        }
    }
    if content_type == OPENMETRICS {
        text += "# EOF\n";
    }
    (text, content_type)
}

#[test]
fn pages_of_any_targets_can_be_read() {
    let mut choices = Choices(1);
    let mut shown_series = 0;
    for _ in 0..800 {
        let texts = [(); 3].map(|()| random(&mut choices));
        let bodies = || {
            let bodies = texts.iter().map(|(text, content_type)| body(text, content_type));
            bodies
                .collect::<Result<Vec<_>, _>>()
                .unwrap_or_else(|error| panic!("{error} {texts:?}"))
        };
        for own in [Registry::new(), random_own(&mut choices)] {
            let in_text = text(&own, bodies(), PageFormat::Text);
            shown_series += expect_readable(&in_text, TextFormat::Prometheus).len();
            expect_readable(
                &text(&own, bodies(), PageFormat::OpenMetrics),
                TextFormat::OpenMetrics,
            );
            let mut names = HashSet::new();
            let bytes = shown(&own, bodies(), PageFormat::Protobuf);
            let each = |family: wire::Family<'_>| {
                assert!(names.insert(family.name().to_owned()), "{} in {in_text}", family.name());
            };
            read_families(&bytes, Limits::default(), each).unwrap();
            // The daemon's own series are never hidden.
            for line in own.text().lines().filter(|line| !line.starts_with('#')) {
                assert!(in_text.lines().any(|other| other == line), "no {line} in {in_text}");
            }
        }
    }
    assert!(shown_series > 20_000, "{shown_series}");
}

/// Registers metrics of the daemon. Some of them carry the labels of a target.
fn random_own(choices: &mut Choices) -> Registry {
    let (registry, mut names) = (Registry::new(), ShownNames::default());
    for _ in 0..4 {
        let name = choices.pick(&["x", "y", "x_count", "x_info", "x_y", "x.y", "up", "quipu_x"]);
        // An empty value counts as a missing label.
        let values = [(); 2].map(|()| choices.pick(&["", "0"]));
        let description = Description::new(name, "").labels(["job", "instance"]).verbatim();
        match choices.pick(&["counter", "gauge", "histogram", "info"]) {
            "counter" if names.take(name, Kind::Counter) => {
                registry.register::<CounterFamily<[&str; 2]>>(description).unwrap().inc(&values);
            }
            "gauge" if names.take(name, Kind::Gauge) => {
                registry.register::<GaugeFamily<[&str; 2]>>(description).unwrap().set(&values, 1.0);
            }
            "histogram" if names.take(name, Kind::Histogram) => {
                let family: HistogramFamily<[&str; 2]> = registry.register(description).unwrap();
                family.observe(&values, 1.0);
            }
            "info" if names.take(name, Kind::Info) => {
                let description = Description::new(name, "").verbatim();
                let [job, instance] = values.map(|value| [value]);
                let description = description.values("job", job).values("instance", instance);
                registry.register::<Info>(description).unwrap();
            }
            _ => {}
        }
    }
    registry
}

#[test]
fn damaged_texts_are_refused_or_read() {
    let text = "# HELP h H.\n# TYPE h histogram\nh_bucket{le=\"1\",a=\"\\n\"} 2\nh_sum{a=\"\\n\"} 7\n\
        h_count{a=\"\\n\"} 3\n# TYPE s summary\ns{quantile=\"0.5\"} 1\ns_count 3\ns_sum 1\nx{b=\"1\"} 2\n\
        # EOF\n";
    for content_type in ["", OPENMETRICS] {
        for end in 0..text.len() {
            let _ = body(&text[..end], content_type);
            for byte in ["0", "\n", "\"", "{", " ", "\u{7f}", "\u{e9}", "_"] {
                let text = [&text[..end], byte, &text[end + 1..]].concat();
                if let Ok(body) = body(&text, content_type) {
                    let shown = shown(&Registry::new(), vec![body], PageFormat::Text);
                    expect_readable(&String::from_utf8(shown).unwrap(), TextFormat::Prometheus);
                }
            }
        }
    }
}

/// Builds the snapshot of a body.
fn snapshot(body: &mut Body) -> Arc<SourceSnapshot> {
    let families = std::mem::take(&mut body.families);
    Arc::new(SourceSnapshot { families, series: body.series, ..SourceSnapshot::default() })
}

/// Changes the values of some samples, and sometimes other parts.
fn changed(text: &str, choices: &mut Choices) -> String {
    let mut changed = String::new();
    for line in text.lines() {
        let is_sample = !line.starts_with('#');
        let value = match choices.pick(&["same", "other", "other", "other"]) {
            "other" if is_sample => {
                let usual = ["1", "2", "3", "0.5", "-1", "NaN", "+Inf", "1e3", "0"];
                let rare = ["1 5", "x", "", " 1", "1 ", "1 # {a=\"b\"} 1", "{a=\"1\"} 1"];
                let is_rare = choices.pick(&[&["usual"; 40][..], &["rare"]].concat()) == "rare";
                Some(if is_rare { choices.pick(&rare) } else { choices.pick(&usual) })
            }
            _ => None,
        };
        match (value, line.rsplit_once(' ')) {
            (Some(value), Some((start, _))) => changed += &format!("{start} {value}\n"),
            _ => changed += &format!("{line}\n"),
        }
    }
    let at = changed.len().saturating_sub(1 + choices.0 as usize % 300);
    let is_whole = choices.pick(&["", "", "", "", "", "", "", "x"]).is_empty();
    if !is_whole && changed.is_char_boundary(at) {
        changed.insert_str(at, choices.pick(&["1", "_", " ", "\n", "{", "x 1\n", "# x\n"]));
    }
    changed
}

#[test]
fn texts_of_a_known_form_are_read_like_others() {
    let (mut choices, hash) = (Choices(7), SeededState::default());
    let (mut known, mut others) = (0, 0);
    for _ in 0..3000 {
        let (first, content_type) = random(&mut choices);
        let read_whole = |text: &str| {
            let text = Text::of_type(text.as_bytes().into(), content_type.into());
            read(&text, 1000, &hash, &turns::free(), |_| true)
        };
        let mut before = read_whole(&first).unwrap();
        for _ in 0..4 {
            let Some(form) = before.form.take() else { break };
            let identities = before.identities.take();
            let form = form.with_snapshot(&snapshot(&mut before));
            let text = changed(&first, &mut choices);
            let of_form = form.read(
                &Text::of_type(text.as_bytes().into(), content_type.into()),
                &hash,
                &turns::free(),
            );
            let whole = read_whole(&text);
            let Some(of_form) = of_form else {
                others += 1;
                break;
            };
            let whole = whole.unwrap_or_else(|error| panic!("{error:?}: {first:?} {text:?}"));
            let all = |body: &Body| {
                format!("{:?} {:?}", body.families, (body.series, body.samples, body.kept))
            };
            assert_eq!(all(&of_form), all(&whole), "{first:?} {text:?}");
            assert!(of_form.identities.is_none());
            assert_eq!(identities, whole.identities, "{first:?} {text:?}");
            known += 1;
            before = Body { identities, ..of_form };
        }
    }
    assert!(known > 1000 && others > 1000, "{known} {others}");
}

#[test]
fn values_do_not_change_the_form() {
    let hash = SeededState::default();
    for content_type in ["", OPENMETRICS] {
        let read = |n: usize| {
            let end = if content_type.is_empty() { "" } else { "# EOF\n" };
            let text = format!(
                "# HELP a A.\n# TYPE a counter\na_total{{b=\"c\"}} {n}\na_total {n}.5\n\
                 # TYPE g gauge\ng -{n}\n# TYPE h histogram\nh_bucket{{le=\"1\"}} {n}\n\
                 h_bucket{{le=\"+Inf\"}} 7{n}\nh_sum {n}\nh_count 7{n}\nx 1\nx{{y=\"z\"}} {n}\n{end}"
            );
            Text::of_type(text.into_bytes(), content_type.into())
        };
        let mut body = super::read(&read(1), 1000, &hash, &turns::free(), |_| true).unwrap();
        for n in 2..5 {
            let form = body.form.take().unwrap().with_snapshot(&snapshot(&mut body));
            body = form.read(&read(n), &hash, &turns::free()).unwrap();
            let whole = super::read(&read(n), 1000, &hash, &turns::free(), |_| true).unwrap();
            assert_eq!(format!("{:?}", body.families), format!("{:?}", whole.families));
        }
    }
}

#[test]
fn a_form_is_kept_where_it_is_of_use() {
    let hash = SeededState::default();
    let shape_of = |text: &str, content_type: &str| {
        let (mut shape, text) = (None, Text::of_type(text.as_bytes().into(), content_type.into()));
        let body = read(&text, 1000, &hash, &turns::free(), |found| {
            shape = Some(*found);
            false
        });
        assert!(body.unwrap().form.is_none());
        shape.unwrap()
    };
    let shape = |text: &str| shape_of(text, "");
    let is_useful = |one: &str, other: &str| shape(other).is_useful(Some(shape(one).hash));
    let numbers = |n: u32| format!("# TYPE a gauge\na{{b=\"{{\"}} {n}\nc {n}.5\n");
    assert!(is_useful(&numbers(1), &numbers(20)));
    assert!(!shape(&numbers(1)).is_useful(None));
    // Other labels, other lines, and other comments.
    for other in ["a{b=\"c\"} 1\n", "a 1\nc 1\n", "c 1\na 1\n", "# A\na 1\n", "# B\na 1\n"] {
        for one in ["a{b=\"d\"} 1\n", "a 1\n", "a 1\nb 1\n", "# C\na 1\n"] {
            assert!(is_useful(other, other) && !is_useful(one, other), "{one:?} {other:?}");
        }
    }
    // At least half of the lines must be plain.
    let histogram = "# TYPE h histogram\nh_bucket{le=\"+Inf\"} 1\nh_sum 1\nh_count 1\n";
    for (text, is_kept) in [("", false), ("x 1\ny 2\nz 3\n", false), ("x 1\ny 1\nz 1\nw 1\n", true)]
    {
        let text = [histogram, text].concat();
        assert_eq!(is_useful(&text, &text), is_kept, "{text}");
    }
    for (text, is_kept) in [("x 1\n# EOF\n", true), ("x 1 5\n# EOF\n", false)] {
        let shape = shape_of(text, OPENMETRICS);
        assert_eq!(shape.is_useful(Some(shape.hash)), is_kept, "{text}");
    }
    // The size limit.
    for (lines, is_kept) in [(139, true), (140, false)] {
        let text = format!("a 1\n{}b 1\n", format!("# {}\n", "x".repeat(60_000)).repeat(lines));
        assert_eq!(is_useful(&text, &text), is_kept, "{lines}");
    }
}
