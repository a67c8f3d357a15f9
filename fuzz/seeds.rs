//! Writes the seed corpus of each target: valid files, which the fuzzer then mutates.
//!
//! Run `cargo run --example seeds` in this folder. An argument limits it to the targets whose names
//! begin with it.

use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use quipu::exposition::{Escaping, Format};
use quipu::{Counter, Description, GaugeFamily, Histogram, Registry, Summary};
use quipu_segment::clock::{Clock, TestClock};
use quipu_segment::history::Options as Recording;
use quipu_segment::series::{Label, Schema};
use quipu_segment::{Options, Segment};
use quipu_window::{BucketedWindow, ExactWindow, KeyedWindows, SlidingWindow};
use quipu_wire::remote::write::{RemoteWrite1, RemoteWrite2, SeriesType};
use quipu_wire::{
    AnyFormat, BatchTimer, Framing, Gauge, Message, MetricType, MetricUnion, StreamWriter,
};

use wire_shared::{DIALECTS, NAMES};

#[path = "targets/queue_coding.rs"]
mod coding;
#[path = "exposition_seeds.rs"]
mod exposition_seeds;
#[path = "targets/exposition_program.rs"]
mod program;
#[allow(dead_code, reason = "the fuzz target has the rest")]
#[path = "../crates/outputs/src/queue/records.rs"]
mod records;
#[path = "targets/wire_shared.rs"]
mod wire_shared;

const MINUTE: Duration = Duration::from_secs(60);
const SECOND: Duration = Duration::from_secs(1);

type Failure = Box<dyn std::error::Error>;

/// Writes an input: its target, its name, its bytes.
trait Corpus: Fn(&str, &str, &[u8]) -> std::io::Result<()> {}

impl<F: Fn(&str, &str, &[u8]) -> std::io::Result<()>> Corpus for F {}

fn main() -> Result<(), Failure> {
    let only = std::env::args().nth(1).unwrap_or_default();
    let corpus = |target: &str, name: &str, bytes: &[u8]| -> std::io::Result<()> {
        if !target.starts_with(&only) {
            return Ok(());
        }
        let folder = format!("corpus/{target}");
        fs::create_dir_all(&folder)?;
        fs::write(format!("{folder}/{name}"), bytes)
    };
    let clock = TestClock::from_nanos(1_700_000_000_000_000_000);
    arena(&corpus)?;
    segments(&corpus, &clock)?;
    bent_segments(&corpus, &clock)?;
    neighbours(&corpus)?;
    buckets(&corpus, &clock)?;
    times(&corpus)?;
    queue(&corpus)?;
    wire(&corpus)?;
    statsd(&corpus)?;
    graphite(&corpus)?;
    influx(&corpus)?;
    remote_write(&corpus)?;
    otlp(&corpus)?;
    text(&corpus)?;
    exposition(&corpus)
}

/// Writes programs of an arena, one per policy: the checkpoints of the first, the scopes of the
/// second.
fn arena(corpus: &impl Corpus) -> Result<(), Failure> {
    for policy in 0..18_u8 {
        for kind in [0, 129] {
            let steps = (0..200_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8);
            let program: Vec<u8> = [policy, 100, 5, kind].into_iter().chain(steps).collect();
            corpus("arena_programs", &format!("policy_{policy}_{kind}"), &program)?;
        }
    }
    for (name, byte) in [("least", 0), ("middle", 0x7f), ("most", 0xff)] {
        corpus("arena_addresses", name, &[byte; 26])?;
    }
    Ok(())
}

/// Writes segments with windows, keys and families, closed cleanly and not.
fn segments(corpus: &impl Corpus, clock: &TestClock) -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let parts = [
        ("empty", 0),
        ("window", 1),
        ("keys", 2),
        ("both", 3),
        ("dense", 4),
        ("keyed", 8),
        ("families", 12),
        ("recorded", 24),
        ("freed", 32),
    ];
    for (name, records) in parts {
        let path = directory.path().join(name);
        let segment = Options::new().limit(1 << 20).open_or_create(&path)?;
        let segment: Segment = segment;
        if records & 1 == 1 {
            let counter = BucketedWindow::options(MINUTE, SECOND).tickets();
            let counter = counter.build_in_with_clock(&segment, "requests", clock.clone())?;
            counter.add(5);
        }
        if records & 2 == 2 {
            let keys = KeyedWindows::options(MINUTE, SECOND, 3).max_key_bytes(16);
            let keys = keys.build_in_with_clock(&segment, "keys", clock.clone())?;
            keys.add_and_count(b"one", 1)?;
            keys.add_and_count(b"two", 2)?;
        }
        if records & 4 == 4 {
            dense(&segment, clock)?;
        }
        if records & 8 == 8 {
            keyed(&segment, clock)?;
        }
        if records & 16 == 16 {
            let mut recorder = Recording::new().bytes(16 << 10).open(&segment)?;
            for _ in 0..3 {
                clock.advance(SECOND);
                recorder.tick_at(clock.now(), clock.now())?;
            }
        }
        if records & 32 == 32 {
            freed(&segment)?;
        }
        let mut bytes = close(segment, &path)?;
        corpus("segment_file", name, &bytes)?;
        corpus("inspect", name, &bytes)?;
        // Marked as closed cleanly: then nothing in it may be torn.
        bytes[1 + 88] = 1;
        corpus("segment_file", &format!("{name}_clean"), &bytes)?;
    }
    Ok(())
}

/// Writes segments where words in the header of a family were once repaired wrongly.
fn bent_segments(corpus: &impl Corpus, clock: &TestClock) -> Result<(), Failure> {
    let directory = tempfile::tempdir()?;
    let bent = [
        ("lock_of_no_token", 8, u64::MAX),
        ("overflow_of_more_than_32_bits", 4, 1 << 32),
        ("table_behind_the_end", 6, 4 << 32 | 0xffff),
    ];
    for (name, word, bits) in bent {
        let path = directory.path().join(name);
        let segment: Segment = Options::new().limit(1 << 20).open_or_create(&path)?;
        keyed(&segment, clock)?;
        for record in segment.records() {
            let record = record?;
            if record.name() == "keyed" {
                record.cells()[word].fetch_or(bits, Ordering::Relaxed);
            }
        }
        corpus("segment_file", name, &close(segment, &path)?)?;
    }
    Ok(())
}

/// Writes programs of a neighbour, run in sequence and concurrently.
fn neighbours(corpus: &impl Corpus) -> Result<(), Failure> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    for at_once in 0..2 {
        for number in 0..8 {
            let steps = (0..200).map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 56) as u8
            });
            let program: Vec<u8> = std::iter::once(at_once).chain(steps).collect();
            corpus("segment_neighbour", &format!("program_{at_once}_{number}"), &program)?;
        }
    }
    Ok(())
}

/// Writes saved windows as JSON.
fn buckets(corpus: &impl Corpus, clock: &TestClock) -> Result<(), Failure> {
    let counter = BucketedWindow::options(MINUTE, Duration::from_millis(200))
        .build_with_clock(clock.clone())?;
    let mut saved = Vec::new();
    for n in 0..4 {
        counter.add(1 << (n * 10));
        clock.advance(SECOND);
        saved.clear();
        counter.save(&mut saved)?;
        corpus("buckets_json", &format!("{n}"), &saved)?;
    }
    corpus("buckets_json", "null", b"[null]")?;
    corpus("buckets_json", "spaces", b" [ {\"Count\": 1, \"Timeint\": 8500000000} ] ")?;
    Ok(())
}

/// Writes saved times of an exact counter.
fn times(corpus: &impl Corpus) -> Result<(), Failure> {
    let clock = TestClock::from_nanos(1_699_999_999_000_000_000);
    let exact = ExactWindow::with_clock(MINUTE, clock.clone())?;
    let mut saved = Vec::new();
    for n in 0..5 {
        exact.add(n);
        clock.advance(Duration::from_nanos(10u64.pow(n as u32)));
        saved.clear();
        exact.save(&mut saved)?;
        corpus("times_binary", &format!("{n}"), &saved)?;
    }
    Ok(())
}

/// Writes files of a queue: empty, with records, and with a torn tail.
fn queue(corpus: &impl Corpus) -> Result<(), Failure> {
    let mut file = records::HEADER.to_vec();
    corpus("queue_records", "empty", &file)?;
    let forms = [records::Form::Write1, records::Form::Write2, records::Form::Totals];
    for (n, form) in (0..3_u32).zip(forms) {
        let time = 1_700_000_000_000 + i64::from(n) * 15_000;
        let (is_done, body) = (n == 1, format!("request {n}"));
        let record = records::Record {
            is_done,
            time,
            samples: n,
            form,
            coding: coding::Coding::Snappy,
            shard: n as u8,
            last_shard: 2,
            body: body.as_bytes(),
        };
        record.encode(&mut file)?;
    }
    corpus("queue_records", "records", &file)?;
    corpus("queue_records", "torn", &file[..file.len() - 3])?;
    file[..records::HEADER.len()].copy_from_slice(&records::header(1));
    corpus("queue_records", "version_1", &file)?;
    Ok(())
}

/// Closes a segment, and returns the input for a file that holds only its records. This keeps the
/// corpus small.
fn close(segment: Segment, path: &Path) -> std::io::Result<Vec<u8>> {
    let used = segment.used();
    drop(segment);
    let mut bytes = fs::read(path)?;
    bytes.truncate(used as usize);
    bytes[64..72].copy_from_slice(&used.to_le_bytes());
    bytes.insert(0, 1);
    Ok(bytes)
}

/// Writes a few messages in each format, and two streams of them.
fn wire(corpus: &impl Corpus) -> Result<(), Failure> {
    let id = b"name=bulbasaur,trainer=ash,type=grass";
    let timer = &[0.5, -3.0, 1234.567, 1e300];
    let zero = MetricUnion {
        metric_type: MetricType::UNKNOWN,
        id: b"",
        counter: 0,
        timer: &[],
        gauge: 0.0,
    };
    let metric_type = MetricType::BATCH_TIMER;
    let messages: [(&str, Message<'_>); 6] = [
        ("counter", quipu_wire::Counter { id, value: 100 }.into()),
        ("timer", BatchTimer { id, values: timer }.into()),
        ("gauge", Gauge { id, value: -0.25 }.into()),
        ("union", MetricUnion { metric_type, id: b"id", timer, ..zero }.into()),
        ("full", MetricUnion { metric_type, id, counter: i64::MIN, timer, gauge: 1e-9 }.into()),
        ("zero", zero.into()),
    ];
    for format in AnyFormat::all() {
        let name = format.as_str();
        let index = NAMES.iter().position(|known| *known == name);
        let index = index.ok_or_else(|| format!("{name} is not in NAMES of wire_shared.rs"))?;
        for (message_name, message) in &messages {
            let mut input = vec![message.kind() as u8];
            if format.encode(message, &mut input).is_err() {
                continue;
            }
            corpus(&format!("wire_decode/{name}"), message_name, &input)?;
            if name.starts_with("capnp") || DIALECTS.iter().any(|names| names.contains(&name)) {
                corpus("wire_dialects", &format!("{name}_{message_name}"), &input)?;
            }
        }
        for (form, framing) in [(3, Framing::Own), (7, Framing::U32Le)] {
            let mut input = vec![index as u8, form, 20];
            let mut encoder = format.encoder(framing);
            for (_, message) in &messages {
                // Messages that the format cannot represent are omitted.
                let _ = encoder.append(&message.to_union().into(), &mut input);
            }
            encoder.flush(&mut input);
            corpus("wire_stream", &format!("{name}_{framing:?}").to_lowercase(), &input)?;
        }
    }
    blocks(corpus)
}

/// Writes blocks of a quipu stream: all kinds of messages, wide and narrow columns, decimals of
/// different precision, short and long lists, and a restart. The target corrects the checksums.
fn blocks(corpus: &impl Corpus) -> Result<(), Failure> {
    let mut writer = StreamWriter::default();
    let mut input = vec![0, 3 | 0x10, 30];
    for number in 0..90 {
        let id = &[b'i', b'd', b'a' + (number % 7) as u8];
        let value = f64::from(number) / [1.0, 10.0, 8.0, 3.0][number as usize % 4];
        let values = [value; 9];
        let values = &values[..number as usize % 10];
        let messages: [Message<'_>; 4] = [
            quipu_wire::Counter { id, value: i64::from(number).pow(number as u32 % 9) }.into(),
            Gauge { id, value }.into(),
            BatchTimer { id, values }.into(),
            MetricUnion { metric_type: MetricType(9), id, counter: 1, timer: values, gauge: value }
                .into(),
        ];
        writer.append(&messages[number as usize % 4], &mut input)?;
        match number {
            20 | 60 => writer.flush(&mut input),
            40 => writer.restart(),
            _ => {}
        }
    }
    writer.flush(&mut input);
    corpus("wire_stream", "quipu_blocks", &input)?;
    Ok(())
}

/// Writes remote write requests of both versions: the output of the writers, and a native histogram
/// with an exemplar and metadata, which they do not support.
fn remote_write(corpus: &impl Corpus) -> Result<(), Failure> {
    let (mut one, mut two) = (RemoteWrite1::new(), RemoteWrite2::new());
    for (labels, value) in
        [(&[("__name__", "hits"), ("region", "eu")][..], 7.0), (&[("a", "b")], 0.5)]
    {
        one.push(labels, value, 1_700_000_000_123)?;
        two.push_typed(labels, SeriesType::Counter, value, 1_700_000_000_123)?;
    }
    let mut request = vec![0];
    one.finish(&mut request);
    corpus("wire_write", "one", &request)?;
    request = vec![1];
    two.finish(&mut request);
    corpus("wire_write", "two", &request)?;
    // 4 observations: 2 and 1 in positive buckets, 1 near zero; or 2, 1 and 1 in buckets with
    // bounds.
    let native =
        b"\x08\x04\x19\0\0\0\0\0\0\xf8\x3f\x20\x02\x30\x01\x5a\x04\x08\x02\x10\x02\x62\x02\x04\x01";
    let custom =
        b"\x08\x04\x20\x69\x5a\x02\x10\x03\x62\x03\x04\x01\x00\x82\x01\x10\0\0\0\0\0\0\xe0\x3f\
        \0\0\0\0\0\0\xf0\x3f";
    let field = |tag: u8, body: &[u8]| [&[tag, body.len() as u8], body].concat();
    let label = field(0x0a, b"\x0a\x01a\x12\x01b");
    let exemplar = field(0x1a, &[&label[..], b"\x11\0\0\0\0\0\0\xf0\x3f\x18\x01"].concat());
    let family = field(0x1a, b"\x08\x01\x12\x01x\x22\x01y\x2a\x01z");
    let series = [&label[..], &exemplar, &field(0x22, native), &field(0x22, custom)].concat();
    corpus("wire_write", "histograms_one", &[&[0][..], &field(0x0a, &series), &family].concat())?;
    let symbols = [field(0x22, b""), field(0x22, b"a"), field(0x22, b"b")].concat();
    let exemplar = field(0x22, b"\x0a\x02\x01\x02\x11\0\0\0\0\0\0\xf0\x3f");
    let histograms = [field(0x1a, native), field(0x1a, custom)].concat();
    let metadata = field(0x2a, b"\x08\x03\x18\x01\x20\x02");
    let series = [b"\x0a\x02\x01\x02", &exemplar[..], &histograms, &metadata, b"\x30\x05"].concat();
    corpus("wire_write", "histograms_two", &[&[1][..], &symbols, &field(0x2a, &series)].concat())?;
    Ok(())
}

/// Writes lines of each StatsD dialect, with all parts that a line can contain.
fn statsd(corpus: &impl Corpus) -> Result<(), Failure> {
    let packets: [(&str, &[u8]); 8] = [
        ("framed", b"\x08\0\0\0hits:1|c\x09\0\0\0hits:2|c\n\x28\0\0\0too long"),
        ("plain", b"hits:1|c\nlevel:-2.5|g|@0.1\r\ntook:12|ms\nusers:ada|s\n"),
        ("datadog", b"took:1:2:3|d|@0.5|#a:b,#c:d|c:ci-1|e:x|card:low|T1656581400"),
        ("influxdb", b"hits,a=b,c=d:1|c\nlevel,a=b:+2|g"),
        ("librato", b"hits#a=b,c=d:1e-3|h"),
        ("signalfx", b"hits.[a=b,c]all:1|c\n[:1|m"),
        ("several", b"hits:1|c:2|g|@0.5:3|ms\nhits:1|c:2|c|#a:b"),
        ("others", b"_e{5,4}:title|text\n_sc|up|0\nbad\n\xc3\xff:1|c\n:1|c\nhits:1|c|"),
    ];
    for (name, packet) in packets {
        for first in [0x00, 0x3f] {
            let input = [&[first], packet].concat();
            corpus("wire_statsd", &format!("{name}_{first}"), &input)?;
        }
    }
    Ok(())
}

/// Writes lines of Graphite, with all parts that a line can contain.
fn graphite(corpus: &impl Corpus) -> Result<(), Failure> {
    let inputs: [(&str, &[u8]); 4] = [
        ("plain", b"a.b.c 1 1700000000\na.b.c -2.5e3 1700000000.25\r\n\n"),
        ("tagged", b"disk;host=a;rack=b=c;;x;=y;z= 7 -1\nlevel\t1\tN"),
        ("wrong", b"a\na 1\na 1 2 3\n;t=v 1 2\na x 2\na nan 2\na 1 -2\na 1 1e13\n"),
        ("bytes", b"a\xff 1 2\n\xc3\xa9 1 2\n\x08\0\0\0a 1 2"),
    ];
    for (name, lines) in inputs {
        for first in [0x00, 0x07] {
            corpus("wire_graphite", &format!("{name}_{first}"), &[&[first], lines].concat())?;
        }
    }
    Ok(())
}

/// Writes lines of InfluxDB, with all parts that a line can contain.
fn influx(corpus: &impl Corpus) -> Result<(), Failure> {
    let inputs: [(&str, &[u8]); 6] = [
        (
            "texts",
            b"m f=\"x\nm,a=b f=9\n\",g=1\n# f=\"\nm,a f=\"\\\"\nm f=2\" 5\nm f=\"open\nm f=1\n",
        ),
        ("edges", b"m f=\xc3\xa7\nm f=1\xc3\xa7 5\nm f=\"a\\\nm,a=\\\nm\\"),
        ("plain", b"cpu,host=a user=0.5,system=2i,idle=3u 1700000000000000000\nm f=t,g=FALSE\r\n"),
        ("escaped", b"my\\ m\\,x\\=y,a\\=b=c\\ d,e\\f=\\\\ f\\ g=1,h=\"a, \\\"b\\\\\" -5\n# c\n\n"),
        ("wrong", b"m\n,a=b f=1\nm,a f=1\nm,a= f=1\nm f\nm f=\nm f=1.5i\nm f=\"a\nm f=1 x\n"),
        ("bytes", b"m\xff f=1\n\xc3\xa9,\xc3\xa8=\xc3\xa7 f=1\n\x08\0\0\0m f=1"),
    ];
    for (name, lines) in inputs {
        for first in [0x00, 0x07] {
            corpus("wire_influx", &format!("{name}_{first}"), &[&[first], lines].concat())?;
        }
    }
    Ok(())
}

/// Writes a request of OTLP with each type of data, in JSON and in protobuf.
fn otlp(corpus: &impl Corpus) -> Result<(), Failure> {
    let json = br#"{"resourceMetrics":[{"resource":{"attributes":[
        {"key":"service.name","value":{"stringValue":"x"}},
        {"key":"l","value":{"arrayValue":{"values":[{"intValue":"-5"},{"bytesValue":"AP8="}]}}},
        {"key":"m","value":{"kvlistValue":{"values":[{"key":"a","value":{"boolValue":true}}]}}}]},
      "scopeMetrics":[{"scope":{"name":"l","version":"1"},"schemaUrl":"u","metrics":[
        {"name":"g","description":"d","unit":"s","gauge":{"dataPoints":[{"asDouble":"NaN","flags":1}]}},
        {"name":"s","sum":{"aggregationTemporality":2,"isMonotonic":true,"dataPoints":[
          {"asInt":"3","startTimeUnixNano":"1","timeUnixNano":2,"exemplars":[
            {"asDouble":0.5,"spanId":"0102","traceId":"ff","filteredAttributes":[{"key":"a"}]}]}]}},
        {"name":"h","histogram":{"aggregationTemporality":1,"dataPoints":[
          {"count":3,"sum":1.5,"min":0,"max":1,"bucketCounts":[1,2],"explicitBounds":[0.5]}]}},
        {"name":"e","exponentialHistogram":{"dataPoints":[{"count":4,"scale":-3,"zeroCount":1,
          "positive":{"offset":-7,"bucketCounts":[1,2]},"negative":{"offset":1}}]}},
        {"name":"q","summary":{"dataPoints":[
          {"count":4,"sum":2,"quantileValues":[{"quantile":0.5,"value":7}]}]}}]}]}]}"#;
    corpus("wire_otlp", "json", &[b"{", &json[..]].concat())?;
    let bytes = quipu_wire::remote::otlp::metrics_request_from_json(json)?;
    corpus("wire_otlp", "protobuf", &[b"p", &bytes[..]].concat())?;
    let resource = b"\x0a\x16\x0a\x0cservice.name\x12\x06\x0a\x04cart\x10\x01";
    corpus("wire_otlp", "resource", &[b"p", &resource[..]].concat())?;
    corpus("wire_otlp", "response", b"p\x0a\x08\x08\xac\x02\x12\x03why")?;
    Ok(())
}

/// Writes programs that send metrics to all inputs.
fn exposition(corpus: &impl Corpus) -> Result<(), Failure> {
    for (name, program) in exposition_seeds::programs() {
        corpus("exposition", &name, &program)?;
    }
    Ok(())
}

/// Writes families of each type in Prometheus' text format and in OpenMetrics, and invalid lines.
fn text(corpus: &impl Corpus) -> Result<(), Failure> {
    let prometheus = [
        "# HELP hits_total The \\\\ \\n hits.\n# TYPE hits_total counter\nhits_total 7 1700000000123\n",
        "# TYPE took histogram\ntook_bucket{a=\"b\",le=\"0.5\"} 1\ntook_bucket{a=\"b\",le=\"+Inf\"} 2\n\
         took_sum{a=\"b\"} 1.5\ntook_count{a=\"b\"} 2\n",
        "# TYPE size summary\nsize{quantile=\"0.5\"} 3\nsize_sum 10\nsize_count 4\n",
        "# a comment\n\n{\"my.name\",\"a b\"=\"\\\"\\\\\\n\u{e9}\"} +Inf\n a { b = \"c\" , } NaN\n",
        "bad\na{b\na 1 x\na{a=\"\",a=\"\"} 1\n# TYPE a x\nlevel 1e-3",
    ];
    let openmetrics = [
        "# TYPE hits counter\nhits_total 7 1.5 # {id=\"x\"} 1 2.5\nhits_created 1.25\n# EOF\n",
        "# TYPE took_seconds histogram\n# UNIT took_seconds seconds\n\
         took_seconds_bucket{le=\"1.0\"} 1 # {} 0.5\ntook_seconds_bucket{le=\"+Inf\"} 2\n\
         took_seconds_count 2\ntook_seconds_sum 1.5\ntook_seconds_created 1.0\n# EOF",
        "# TYPE sizes gaugehistogram\nsizes_bucket{le=\"+Inf\"} 2\nsizes_gcount 2\nsizes_gsum -3\n# EOF",
        "# TYPE build info\nbuild_info{version=\"1\"} 1\n# TYPE mode stateset\nmode{mode=\"on\"} 1\n# EOF",
        "# HELP a b\n\n# x\na 1 # {\na 1 #\n# EOF\nafter",
    ];
    for (format, inputs) in [(0, prometheus), (1, openmetrics)] {
        for (index, input) in inputs.iter().enumerate() {
            for first in [format, format | 0x12] {
                let input = [&[first], input.as_bytes()].concat();
                corpus("wire_text", &format!("{index}_{first}"), &input)?;
            }
            for first in [format, format | 4] {
                let input = [&[first], input.as_bytes()].concat();
                corpus("wire_families", &format!("{index}_{first}"), &input)?;
            }
        }
    }
    families(corpus)
}

/// Writes families of each type as quipu exposes them in protobuf.
fn families(corpus: &impl Corpus) -> Result<(), Failure> {
    let registry = Registry::new();
    let about = |name: &str| Description::new(name, "Some text.").exemplars();
    let hits: Counter = registry.register(about("hits"))?;
    hits.inc_with_exemplar(3, &[("id", "x")]);
    let levels: GaugeFamily<[&str; 2]> =
        registry.register(Description::new("level", "").labels(["a", "b"]))?;
    levels.set(&["x", "y"], 0.5);
    levels.set(&["", "z"], f64::NAN);
    let size: Histogram = registry.register(about("size").unit("bytes").buckets([1.0, 10.0]))?;
    let took: Histogram = registry.register(about("took").native(3))?;
    for value in [-2.0, 0.0, 0.5, 1.5, 30.0] {
        size.observe_with_exemplar(value, &[("id", "y")]);
        took.observe(value);
    }
    let wait: Summary = registry.register(Description::new("wait", ""))?;
    wait.observe(2.0);
    let mut out = Vec::new();
    registry.scrape().format(Format::Protobuf, Escaping::AllowUtf8).write_to(&mut out)?;
    corpus("wire_families", "quipu_2", &[&[2], &out[..]].concat())?;
    corpus("wire_families", "quipu_6", &[&[6], &out[..]].concat())?;
    Ok(())
}

fn schema(name: &str, labels: Vec<Label>) -> Schema {
    Schema { name: name.into(), cells: 2, floats: 2, labels, ..Schema::default() }
}

fn kind() -> Label {
    Label { name: "kind".into(), values: Some(vec!["x".into(), "y".into()]) }
}

/// Creates two families with fixed labels: one of sums, in lanes, and one of values that are set.
fn dense(segment: &Segment, clock: &TestClock) -> Result<(), quipu_segment::Error> {
    for (name, additive) in [("sums", true), ("values", false)] {
        let schema = Schema { additive, ..schema(name, vec![kind()]) };
        let family = segment.family_at(&schema, clock.clone())?;
        family.add(|key| key.text("x"), 0, 3);
        family.bind(|key| key.text("y"));
        family.remove(|key| key.text("x"))?;
    }
    Ok(())
}

/// Creates two families that were freed, around one that is used. The target makes one like them.
fn freed(segment: &Segment) -> Result<(), quipu_segment::Error> {
    let mut families = Vec::new();
    for name in ["first", "second", "third"] {
        let labels = vec![Label { name: "user".into(), values: None }];
        let schema = Schema { name: name.into(), cells: 1, labels, ..Schema::default() };
        let family = segment.family(&schema)?;
        family.add(|key| key.text("ada"), 0, 1);
        families.push(family);
    }
    families.remove(1);
    segment.free_families(&families).map(|_| ())
}

/// Creates a family with dynamic labels, and removes or hides some of its series.
fn keyed(segment: &Segment, clock: &TestClock) -> Result<(), quipu_segment::Error> {
    let user = Label { name: "user".into(), values: None };
    let schema = Schema {
        additive: true,
        limit: Some(100),
        idle: Some(Duration::from_secs(1)),
        ..schema("keyed", vec![kind(), user])
    };
    let family = segment.family_at(&schema, clock.clone())?;
    for text in ["ada", "bob", "eve", "a \"quoted\" text", "one more text of some words"] {
        family.add(
            |key| {
                key.text("y");
                key.text(text);
            },
            0,
            1,
        );
    }
    family.retain(|view| !view.texts.ends_with(b"bob"))?;
    family.sweep()?;
    clock.advance(Duration::from_secs(5));
    family.sweep()?;
    for text in ["ada", "new"] {
        family.add(
            |key| {
                key.text("x");
                key.text(text);
            },
            0,
            1,
        );
    }
    family.add(|key| key.text("unheard of"), 0, 1);
    Ok(())
}
