//! Expositions in each format can be read back by `quipu-wire`, and all formats give the same
//! result.

#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use quipu::exposition::{Escaping, Format};
use quipu::{
    CounterFamily, Description, FloatCounter, GaugeFamily, HistogramFamily, Info, LabelValue,
    Registry, StateSet, Summary,
};
use quipu_wire::remote::exposition::text::{self, Options, TextReader};
use quipu_wire::remote::exposition::{
    Families, Family, FamilyType, Limits, MetricValue, read_families,
};

#[derive(LabelValue)]
enum Mode {
    Idle,
    Busy,
}

/// Maps family and labels to the value.
type Rows = BTreeMap<String, String>;

/// The metrics of a registry as they are read in this format.
fn read(registry: &Registry, format: Format, escaping: Escaping) -> Rows {
    let mut out = Vec::new();
    registry.scrape().format(format, escaping).write_to(&mut out).unwrap();
    let mut rows = Rows::new();
    let mut add = |family: Family<'_>| add(family, &mut rows);
    let format = match format {
        Format::Protobuf => {
            read_families(&out, Limits::default(), add).unwrap();
            return rows;
        }
        Format::OpenMetrics => text::TextFormat::OpenMetrics,
        _ => text::TextFormat::Prometheus,
    };
    let mut reader = TextReader::new(&out, Options::new(format));
    let mut families = Families::new(format, Limits::default());
    while let Some(item) = reader.next() {
        families.push(&item.unwrap(), &mut add).unwrap();
    }
    families.finish(add);
    rows
}

fn add(family: Family<'_>, rows: &mut Rows) {
    // Formats differ in these suffixes.
    let name = family.name();
    let name = name.strip_suffix("_total").or(name.strip_suffix("_info")).unwrap_or(name);
    let kind = match family.kind() {
        FamilyType::Info | FamilyType::StateSet => FamilyType::Gauge,
        kind => kind,
    };
    for metric in family.metrics() {
        let labels: Vec<_> = metric.labels().collect();
        let value = match metric.value() {
            MetricValue::Counter { total, exemplar: _ } => format!("{total:?}"),
            MetricValue::Gauge(value) => format!("{value:?}"),
            MetricValue::Histogram(histogram) => {
                let finite = histogram.buckets().filter(|bucket| bucket.upper_bound.is_finite());
                let buckets: Vec<_> =
                    finite.map(|bucket| (bucket.upper_bound, bucket.cumulative_count)).collect();
                format!("{:?} {:?} {buckets:?}", histogram.count, histogram.sum)
            }
            MetricValue::Summary(summary) => format!("{:?} {:?}", summary.count, summary.sum),
            value => panic!("{name} {value:?}"),
        };
        let row = format!("{name} {kind:?} {:?} {labels:?}", family.help());
        assert_eq!(rows.insert(row, value), None, "{name} {labels:?}");
    }
}

const HELP: &str = "A \"help\" with \\ and\na second line.";

fn about(name: &str) -> Description {
    Description::new(name, HELP)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn all_formats_are_read_alike(
        counts in vec((any::<[String; 2]>(), any::<u32>()), 0..6),
        levels in vec(("[a-z \\\\\"\n]{0,4}", any::<f64>()), 0..6),
        sizes in vec(("[ab]?", -10.0..1e7), 0..20),
    ) {
        let registry = Registry::new();
        let hits: CounterFamily<[&str; 2]> =
            registry.register(about("hits").labels(["path", "user"])).unwrap();
        for ([path, user], count) in &counts {
            hits.inc_by(&[path, user], u64::from(*count));
        }
        let cpu: FloatCounter = registry.register(about("cpu").unit("seconds")).unwrap();
        cpu.inc_by(0.25);
        let level: GaugeFamily<[&str; 1]> = registry.register(about("level").labels(["k"])).unwrap();
        for (label, value) in &levels {
            level.set(&[label], *value);
        }
        let size: HistogramFamily<[&str; 1]> =
            registry.register(about("size").labels(["k"]).buckets([0.0, 1.0, 1e6])).unwrap();
        let wait: Summary = registry.register(about("wait")).unwrap();
        for (label, value) in &sizes {
            size.observe(&[label], *value);
            wait.observe(*value);
        }
        let _info: Info = registry.register(about("build").values("version", ["1.2"])).unwrap();
        let mode: StateSet<Mode> = registry.register(about("mode")).unwrap();
        mode.set(&Mode::Busy);
        prop_assert!(mode.is_on(&Mode::Busy) && !mode.is_on(&Mode::Idle));

        let rows = read(&registry, Format::Text, Escaping::Underscores);
        for format in [Format::TextUtf8, Format::OpenMetrics, Format::Protobuf] {
            prop_assert_eq!(&rows, &read(&registry, format, Escaping::AllowUtf8));
        }
        let mut expected = BTreeMap::new();
        for ([path, user], count) in &counts {
            // A label with an empty value equals a missing label.
            let labels = [("path", path.as_str()), ("user", user)];
            let labels: Vec<_> = labels.into_iter().filter(|label| !label.1.is_empty()).collect();
            let row = format!("hits Counter {:?} {labels:?}", HELP);
            *expected.entry(row).or_insert(0) += u64::from(*count);
        }
        for (row, count) in expected {
            prop_assert_eq!(rows.get(&row), Some(&format!("{:?}", count as f64)), "{}", row);
        }
    }
}
