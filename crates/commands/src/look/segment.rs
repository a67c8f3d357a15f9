//! Looks into segment files: `quipu_segment::inspect` reads them, so nothing in them is changed,
//! locked or trusted. Of a file in use, it reads a copy.

use std::fs::File;
use std::path::Path;

use quipu::snapshot::Number;
use quipu_segment::inspect::{FamilySeen, Inspection, SeriesSeen};
use quipu_segment::printable;
use quipu_segment::series::Schema;

use super::exponential::Exponential;
use super::{Family, Look, Value};
use crate::inspect::openmetrics::shown_labels;
use crate::inspect::value::{self, Type, each_series, is_shown, shown_name, value};
use crate::inspect::{MAX_COPY, left_out};

/// Adds the series of a segment file that scrapes show. What is damaged is left out, and reported
/// with the name.
pub(super) fn read(file: File, name: &Path, look: &mut Look) -> Result<(), String> {
    let inspection = Inspection::of_open_copy(name, file, MAX_COPY);
    let inspection = inspection.map_err(|error| error.to_string())?;
    let mut damage = inspection.report().damage.clone();
    for seen in inspection.report().families.iter().filter(|family| is_shown(&family.schema)) {
        let family = look.family(family(&seen.schema));
        damage.extend(each_series(&inspection, seen, |series| {
            if !series.is_hidden {
                add(look, family, seen, series, Some(&inspection));
            }
        }));
    }
    if let Some(what) = left_out(&inspection) {
        look.problem(format!("{}: {what}", printable(name)));
    }
    if let Some(first) = damage.first() {
        let others = match damage.len() {
            1 => String::new(),
            count => format!(", and {} more: see quipu inspect", count - 1),
        };
        let name = printable(name);
        look.problem(format!("{name}: damaged at byte {}: {}{others}", first.at, first.what));
    }
    Ok(())
}

pub(super) fn family(schema: &Schema) -> Family {
    Family {
        name: shown_name(schema),
        of: Type::of(schema),
        help: schema.help.clone(),
        unit: schema.unit.clone(),
    }
}

/// Adds a series, whose start is 0 if it is not known. What lies beside its cells is read from the
/// inspection.
pub(super) fn add(
    look: &mut Look,
    family: u32,
    seen: &FamilySeen,
    series: &SeriesSeen<'_>,
    inspection: Option<&Inspection>,
) {
    let start = Some(series.start).filter(|start| *start > 0);
    let number = |number| Value::Number(number);
    let value = match value(seen, series) {
        value::Value::Whole(n) => number(Number::Unsigned(n)),
        value::Value::Signed(n) => number(Number::Signed(n)),
        value::Value::Float(n) => number(Number::Float(n)),
        value::Value::Info => number(Number::Unsigned(1)),
        value::Value::Histogram { sum, buckets, is_whole } => {
            let native = inspection.filter(|_| !is_whole);
            let native = native.and_then(|it| exponential(it, &seen.schema, series));
            // The series may have been removed while its buckets were read.
            if inspection.is_some_and(|it| !it.is_whole(seen, series)) {
                return;
            }
            let is_exponential = native.is_some();
            let buckets = native.unwrap_or(if is_whole { buckets } else { Vec::new() });
            // Where exponential buckets are not known, their count is not known either.
            let count = match is_whole || is_exponential {
                true => buckets.iter().map(|(_, count)| count).sum(),
                false => f64::NAN,
            };
            let value = Value::Histogram { count, sum, buckets: &buckets, is_exponential };
            return look.add(family, shown_labels(series), start, value);
        }
        value::Value::Summary { sum, count } => Value::Summary { count, sum, quantiles: &[] },
        value::Value::States(states) => {
            for (name, is_on) in &states {
                let state = (&*seen.schema.name, name.into());
                let value = number(Number::Unsigned((*is_on).into()));
                look.add(family, shown_labels(series).chain([state]), start, value);
            }
            return;
        }
        // A gauge that was not set, or a kind of a later version.
        value::Value::Unset | value::Value::Cells(_) => return,
    };
    look.add(family, shown_labels(series), start, value);
}

/// The buckets of a native histogram without classic ones: `docs/formats.md`, section 5.5.
fn exponential(
    inspection: &Inspection,
    schema: &Schema,
    series: &SeriesSeen<'_>,
) -> Option<Vec<(f64, f64)>> {
    let most = schema.settings.get(4..6)?.first_chunk()?;
    let threshold = schema.settings.get(8..16)?.first_chunk()?;
    let [_, beyond, zeros, ..] = *series.sums else { return None };
    let table = *series.plain.get(3)?;
    let zero = (f64::from_le_bytes(*threshold), zeros as f64);
    let mut buckets = Vec::new();
    let most = u16::from_le_bytes(*most).into();
    Exponential::read(inspection, series, table, most, zero).append_to(&mut buckets);
    if beyond > 0 {
        buckets.push((f64::INFINITY, beyond as f64));
    }
    Some(buckets)
}
