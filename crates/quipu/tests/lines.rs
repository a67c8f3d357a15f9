//! Every line of the line-based formats, for random families: a plain renderer, which keeps no
//! state from series to series, writes the same bytes. A registry's next scrape writes the same
//! page as a new encoder, whatever changed between the two.
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

#[path = "lines/plain.rs"]
mod plain;

use proptest::prelude::*;
use quipu::exposition::{Encoder, Escaping, Format};
use quipu::snapshot::{
    Bucket, CounterValue, Exemplar, FamilyHeader, HistogramValue, Kind, Label, Number, Series,
    Sink, SummaryValue, Texts, Timestamp, Value,
};
use quipu::{
    CounterFamily, Description, FloatCounter, GaugeFamily, HistogramFamily, LabelGroup, LabelValue,
    Registry, Scrape,
};

const FORMATS: [Format; 4] =
    [Format::Text, Format::TextUtf8, Format::OpenMetrics, Format::OpenMetrics2];
const ESCAPINGS: [Escaping; 4] =
    [Escaping::Underscores, Escaping::Dots, Escaping::Values, Escaping::AllowUtf8];

/// A xorshift generator.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % end
    }

    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    fn chance(&mut self, one_in: usize) -> bool {
        self.below(one_in) == 0
    }
}

const KINDS: [Kind; 7] = [
    Kind::Counter,
    Kind::Gauge,
    Kind::Unknown,
    Kind::Histogram,
    Kind::Summary,
    Kind::Info,
    Kind::StateSet,
];
const NAMES: [&str; 6] = ["x", "x_y_seconds", "a.b", "caf\u{e9}", "q\"\\\nx", "x:y"];
const LABELS: [&str; 5] = ["kind", "user.name", "\u{e9}", "a:b", "q\"\\"];
const VALUES: [&str; 6] =
    ["", "a", "x\"\\\ny", "caf\u{e9}", "a value of some more than thirty-two bytes", "\\"];
/// Numbers and their spelling.
const NUMBERS: [(Number, &str); 11] = [
    (Number::Unsigned(0), "0"),
    (Number::Unsigned(9), "9"),
    (Number::Unsigned(10), "10"),
    (Number::Unsigned(u64::MAX), "18446744073709551615"),
    (Number::Signed(-3), "-3"),
    (Number::Signed(i64::MIN), "-9223372036854775808"),
    (Number::Float(0.25), "0.25"),
    (Number::Float(3.0), "3"),
    (Number::Float(-1.25), "-1.25"),
    (Number::Float(f64::NAN), "NaN"),
    (Number::Float(f64::INFINITY), "+Inf"),
];
const BOUNDS: [f64; 5] = [-1.0, 0.005, 1.0, 2.5, f64::INFINITY];

/// A series, with owned parts.
struct Row {
    group: u32,
    texts: Vec<u8>,
    overflow: bool,
    number: Number,
    exemplar: bool,
    bounds: Vec<f64>,
    le: bool,
}

impl Row {
    fn random(random: &mut Random, family: &FamilyHeader<'_>) -> Self {
        let mut texts = Vec::new();
        family.dynamic().for_each(|_| Texts::push(&mut texts, random.pick(&VALUES)));
        let from = random.below(BOUNDS.len() + 1);
        let overflow = random.chance(8);
        Self {
            group: random.below(family.groups() as usize) as u32,
            texts: if overflow { Vec::new() } else { texts },
            overflow,
            number: random.pick(&NUMBERS).0,
            exemplar: random.chance(4),
            bounds: BOUNDS[from..].to_vec(),
            le: random.chance(6),
        }
    }

    /// Passes the series on.
    fn with(&self, kind: Kind, act: impl FnOnce(&Series<'_>)) {
        let mut labels = Vec::new();
        ["id", "7"].iter().for_each(|text| Texts::push(&mut labels, text));
        let labels = Texts::new(&labels);
        let exemplar = Exemplar::new(labels, 0.5).time(Timestamp::from_nanos(2_000_000_001));
        let exemplar = self.exemplar.then_some(exemplar);
        let bucket = |bound: &f64| {
            let le = (self.le && bound.is_finite()).then_some("07");
            Bucket::new(*bound, 12).le(le).exemplar(exemplar)
        };
        let buckets: Vec<_> = self.bounds.iter().map(bucket).collect();
        let positive = self.bounds.iter().filter(|bound| (0.0..=1.0).contains(*bound));
        let quantiles: Vec<_> = positive.map(|bound| (*bound, 0.25)).collect();
        let number = self.number;
        // A larger sum is written with an exponent.
        let sum = Some(number.as_f64()).filter(|sum| sum.abs() < 1e15).unwrap_or(0.25);
        let value = match kind {
            Kind::Counter => Value::Counter(CounterValue::new(number).exemplar(exemplar)),
            Kind::Gauge => Value::Gauge(number),
            Kind::Histogram => {
                let count = 12 * buckets.len() as u64;
                Value::Histogram(HistogramValue::new(count, sum).buckets(&buckets))
            }
            Kind::Summary => Value::Summary(SummaryValue::new(12, sum).quantiles(&quantiles)),
            Kind::Info => Value::Info,
            Kind::StateSet => Value::StateSet(&[("on", true), ("o\"ff", false)]),
            _ => Value::Unknown(number),
        };
        let texts = Texts::new(&self.texts);
        let series = Series::new(texts, value).group(self.group);
        let mut series = series.start(Timestamp::from_nanos(1_500_000_000));
        series.overflow = self.overflow;
        act(&series);
    }
}

/// Passes a random family and its series to both renderers.
fn family(random: &mut Random, number: usize, encoder: &mut Encoder, plain: &mut plain::Page) {
    let base = random.pick(&NAMES);
    let name = format!("n{number}{base}");
    let from = random.below(LABELS.len());
    let names = LABELS.iter().cycle().skip(from).take(random.below(4));
    let kind = random.pick(&KINDS);
    let labels: Vec<Label<'_>> = names
        .map(|name| {
            let count = 1 + random.below(VALUES.len());
            Label::from_values(name, (!random.chance(3)).then_some(&VALUES[..count]))
        })
        .collect();
    let help = random.pick(&["", "A help.", "\"A\" help \\ of\ntwo lines."]);
    let unit = random.pick(&["", "seconds"]);
    let bare = kind == Kind::Counter && random.chance(3);
    let family = FamilyHeader::new(kind, &name, help).unit(unit).with_labels(&labels).bare(bare);
    encoder.family(&family);
    plain.family();
    for _ in 0..random.below(20) {
        Row::random(random, &family).with(kind, |series| {
            encoder.series(&family, series);
            plain.series(&family, series);
        });
    }
}

/// Returns the spelling of a number.
fn number(number: Number) -> String {
    let is_same = |known: &Number| match (*known, number) {
        (Number::Float(one), Number::Float(other)) => one.to_bits() == other.to_bits(),
        (one, other) => one == other,
    };
    match (number, NUMBERS.iter().find(|(known, _)| is_same(known))) {
        (_, Some((_, text))) => (*text).to_owned(),
        // The sum of a histogram is a float.
        (Number::Float(n), None) => format!("{}", n as i64),
        (number, None) => panic!("{number:?}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 400, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn each_line_is_what_a_plain_renderer_writes(seed in 1..u64::MAX) {
        let random = &mut Random(seed);
        let mut encoder = Encoder::default();
        for _ in 0..3 {
            let (format, escaping) = (random.pick(&FORMATS), random.pick(&ESCAPINGS));
            encoder.reset(format, escaping);
            let mut plain = plain::Page::new(format, escaping, number);
            (0..6).for_each(|number| family(random, number, &mut encoder, &mut plain));
            let written = String::from_utf8(encoder.buffer().to_vec()).unwrap();
            for (line, expected) in written.split('\n').zip(plain.text().split('\n')) {
                prop_assert_eq!(line, expected, "{:?} {:?}", format, escaping);
            }
            prop_assert_eq!(written.len(), plain.text().len());
        }
    }

    #[test]
    fn a_scrape_is_what_a_new_encoder_writes_whatever_changed(seed in 1..u64::MAX) {
        let random = &mut Random(seed);
        let registry = Registry::new();
        (0..4).for_each(|number| change(random, &registry, number));
        let (mut format, mut escaping) = (Format::Text, Escaping::Underscores);
        for number in 4..16 {
            if random.chance(4) {
                (format, escaping) =
                    (random.pick(&[Format::Protobuf, FORMATS[0], FORMATS[2], FORMATS[3]]), random.pick(&ESCAPINGS));
            }
            let mut fresh = Fresh(Encoder::new(format, escaping));
            registry.visit(&mut fresh).unwrap();
            fresh.0.finish();
            let mut page = Vec::new();
            registry.scrape().format(format, escaping).append_to(&mut page);
            prop_assert_eq!(
                String::from_utf8_lossy(&page), String::from_utf8_lossy(fresh.0.buffer())
            );
            if random.chance(3) {
                // Another page in between: of one family, or of none.
                let name = format!("n{}", random.below(number));
                let scrape: Scrape = registry.scrape().format(format, escaping).only([name]);
                scrape.append_to(&mut Vec::new());
            }
            change(random, &registry, number);
        }
    }
}

/// Hides the keys of families from an encoder, so that the encoder knows no family.
struct Fresh(Encoder);

impl Sink for Fresh {
    fn family(&mut self, family: &FamilyHeader<'_>) {
        self.0.family(family);
    }

    fn series(&mut self, family: &FamilyHeader<'_>, series: &Series<'_>) {
        self.0.series(family, series);
    }
}

#[derive(Clone, Copy, LabelValue)]
enum Mode {
    Idle,
    #[label(rename = "b\"usy")]
    Busy,
    Odd,
}

#[derive(LabelGroup)]
struct Modes {
    from: Mode,
    to: Mode,
}

impl Modes {
    fn random(random: &mut Random) -> Self {
        let all = [Mode::Idle, Mode::Busy, Mode::Odd];
        Self { from: random.pick(&all), to: random.pick(&all) }
    }
}

/// Registers a family with some series, or removes one.
fn change(random: &mut Random, registry: &Registry, number: usize) {
    let about = |name: String| Description::new(&name, format!("Help of {name}."));
    let name = format!("n{number}");
    match random.below(7) {
        0 => {
            let counter: FloatCounter = registry.register(about(name)).unwrap();
            counter.inc_by(0.25);
        }
        1 => {
            let labels = about(name).labels(["user.name", "kind"]);
            let counters: CounterFamily<[&str; 2]> = registry.register(labels).unwrap();
            (0..9).for_each(|_| counters.inc(&[random.pick(&VALUES), random.pick(&VALUES)]));
        }
        2 => {
            let gauges: GaugeFamily<Modes> =
                registry.register(about(name).unit("seconds")).unwrap();
            (0..9).for_each(|_| gauges.set(&Modes::random(random), 0.25));
        }
        3 => {
            let labels = about(name).buckets([0.5, 1.0]);
            let sizes: HistogramFamily<Modes> = registry.register(labels).unwrap();
            (0..9).for_each(|_| sizes.observe(&Modes::random(random), 0.75));
        }
        4 => registry.counter(&name, "").unwrap().inc(),
        _ => {
            registry.unregister(&format!("n{}", random.below(number + 1)));
        }
    }
}
