//! The values of a series, from its cells: `docs/formats.md`, section 5.5, says what they mean.
//! What lies beside the cells (exemplars, exponential buckets, quantiles) is left out.

use quipu_segment::inspect::{Damage, FamilySeen, Inspection, SeriesSeen};
use quipu_segment::series::{Identity, Schema};

/// What a family counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Type {
    Counter,
    Gauge,
    Histogram,
    Summary,
    Info,
    StateSet,
    Unknown,
}

/// The value of a series.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Whole(u64),
    Signed(i64),
    Float(f64),
    /// A gauge that was not set.
    Unset,
    /// Upper bounds with the number of observations in each bucket alone, `+Inf` last; `None` if
    /// some of them are in exponential buckets.
    Histogram {
        sum: f64,
        buckets: Vec<(f64, f64)>,
        is_whole: bool,
    },
    Summary {
        sum: f64,
        count: f64,
    },
    Info,
    /// Names, and whether each is on.
    States(Vec<(String, bool)>),
    /// Of a kind that this version does not know: its cells.
    Cells(Vec<u64>),
}

/// What distinguishes a family. One of an intake that no scrape shows is named by what it has: the
/// last totals of sources, and a help that came late.
pub(crate) fn identity(schema: &Schema) -> &'static str {
    match (schema.identity, (schema.class >> 3) & 3) {
        (Identity::Name, _) => "name",
        (Identity::Apart, _) => "apart",
        (Identity::Variant, 0) => "variant",
        (Identity::Variant, 3) => HELP,
        (Identity::Variant, _) => FOLLOWED,
    }
}

/// Whether scrapes show the family.
pub(crate) fn is_shown(schema: &Schema) -> bool {
    ![HELP, FOLLOWED].contains(&identity(schema))
}

/// The name as Prometheus' text format shows it.
pub(crate) fn shown_name(schema: &Schema) -> String {
    let name = &schema.name;
    let suffix = match Type::of(schema) {
        Type::Counter if schema.class & 1 == 0 => "_total",
        Type::Info => "_info",
        _ => "",
    };
    format!("{}{suffix}", name.strip_suffix(suffix).unwrap_or(name))
}

const HELP: &str = "help";
const FOLLOWED: &str = "followed";

impl Type {
    pub(crate) fn of(schema: &Schema) -> Self {
        match schema.kind {
            1 | 2 | 10 | 12 => Self::Counter,
            3 | 4 | 9 => Self::Gauge,
            5 | 13 => Self::Histogram,
            6 | 14 => Self::Summary,
            7 => Self::Info,
            8 => Self::StateSet,
            _ => Self::Unknown,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
            Self::Summary => "summary",
            Self::Info => "info",
            Self::StateSet => "stateset",
            Self::Unknown => "unknown",
        }
    }
}

/// What the kind of a family is called.
pub(crate) fn kind_name(kind: u8) -> &'static str {
    const NAMES: [&str; 14] = [
        "counter",
        "float counter",
        "gauge",
        "whole gauge",
        "histogram",
        "summary",
        "info",
        "state set",
        "process gauge",
        "mixed counter",
        "unknown",
        "relayed counter",
        "relayed histogram",
        "relayed summary",
    ];
    let name = usize::from(kind).checked_sub(1).and_then(|at| NAMES.get(at));
    name.copied().unwrap_or("of a later version")
}

/// What the value of a process gauge is XORed with.
const NO_VALUE: u64 = 0x7ff8_7175_6970_7567;
/// The aggregation of a process gauge that has one value for all processes.
const MOST_RECENT: u8 = 8;
/// The cells of a relayed series before its values: `docs/formats.md`, section 5.5.
const RELAY_HEAD: usize = 4;

/// Calls `visit` with the series of a family, the cells of each consistent with each other as far
/// as its kind needs that: those of a relayed series have one phase.
pub(crate) fn each_series(
    inspection: &Inspection,
    family: &FamilySeen,
    visit: impl FnMut(&SeriesSeen<'_>),
) -> Vec<Damage> {
    match family.schema.kind {
        12..=14 => inspection.series_that_settle(family, visit),
        _ => inspection.series(family, visit),
    }
}

/// Reads the value of a series. Cells that are missing, in a damaged file, count as zero.
pub(crate) fn value(family: &FamilySeen, series: &SeriesSeen<'_>) -> Value {
    let schema = &family.schema;
    let sum = |at: usize| series.sums.get(at).copied().unwrap_or(0);
    let plain = |at: usize| series.plain.get(at).copied().unwrap_or(0);
    let float = |at: usize| f64::from_bits(sum(at));
    match schema.kind {
        1 => Value::Whole(sum(0)),
        2 => Value::Float(float(0)),
        3 | 11 => Value::Float(f64::from_bits(plain(0))),
        4 => Value::Signed(plain(0).cast_signed()),
        5 => histogram(schema, series),
        6 => Value::Summary { sum: float(0), count: sum(1) as f64 },
        7 => Value::Info,
        8 => states(schema, plain),
        9 => match (schema.settings.first(), plain(0)) {
            (Some(&MOST_RECENT), bits) => Value::Float(f64::from_bits(bits)),
            (_, 0) => Value::Unset,
            (_, bits) => Value::Float(f64::from_bits(bits ^ NO_VALUE)),
        },
        10 => {
            let (whole, rest) = (sum(0), float(1));
            // Below 2^53, and not negative.
            let is_whole = rest >= 0.0 && rest.fract() == 0.0 && rest < 9_007_199_254_740_992.0;
            match is_whole {
                true => Value::Whole(whole.wrapping_add(rest as u64)),
                false => Value::Float(whole as f64 + rest),
            }
        }
        12 => Value::Float(relayed(plain, 1, 0)),
        13 => {
            let bounds = bounds(&schema.settings);
            let count = bounds.len() + 1;
            let buckets = (0..count).map(|i| {
                let bound = bounds.get(i).copied().unwrap_or(f64::INFINITY);
                (bound, relayed(plain, count + 1, i))
            });
            let buckets = buckets.collect();
            Value::Histogram { sum: relayed(plain, count + 1, count), buckets, is_whole: true }
        }
        14 => Value::Summary { sum: relayed(plain, 2, 1), count: relayed(plain, 2, 0) },
        _ => Value::Cells(series.plain.to_vec()),
    }
}

/// The value `i` of `count` relayed values.
fn relayed(plain: impl Fn(usize) -> u64, count: usize, i: usize) -> f64 {
    let of = |part: usize| f64::from_bits(plain(RELAY_HEAD + part * count + i));
    if plain(0).is_multiple_of(2) { of(0) + of(1) } else { of(2) }
}

fn histogram(schema: &Schema, series: &SeriesSeen<'_>) -> Value {
    let (head, rest) = schema.settings.split_at_checked(16).unwrap_or((&[0; 16], &[]));
    let bounds = bounds(rest);
    let sum = |at: usize| series.sums.get(at).copied().unwrap_or(0);
    // A recording holds only one sum of all pairs, in fewer cells.
    let is_paired = schema.pairs > 0 && series.sums.len() == usize::from(schema.cells);
    let (sums, step) = if is_paired { (bounds.len() + 1, 2) } else { (1, 1) };
    let total = (0..sums).map(|i| f64::from_bits(sum(i * step)));
    let total = total.reduce(|total, sum| total + sum).unwrap_or(0.0);
    let is_native = head[1] == 1;
    let buckets = (0..=bounds.len()).map(|i| {
        let bound = bounds.get(i).copied().unwrap_or(f64::INFINITY);
        (bound, sum(1 + i * step) as f64)
    });
    let is_whole = !is_native || !bounds.is_empty();
    Value::Histogram { sum: total, buckets: buckets.collect(), is_whole }
}

fn bounds(settings: &[u8]) -> Vec<f64> {
    settings.as_chunks().0.iter().map(|bytes| f64::from_le_bytes(*bytes)).collect()
}

fn states(schema: &Schema, plain: impl Fn(usize) -> u64) -> Value {
    let names = schema.settings.split(|byte| *byte == 0);
    let states = names
        .enumerate()
        .map(|(i, name)| (String::from_utf8_lossy(name).into_owned(), plain(i) != 0));
    Value::States(states.collect())
}
