//! The values as an OpenMetrics exposition. Families that share a name with an earlier one of
//! another type are left out, and so is what has no cell.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{self, Write};

use quipu::exposition::counter_stem;
use quipu_segment::inspect::{FamilySeen, Inspection, SeriesSeen};

use super::value::{Type, Value, each_series, is_shown, value};

/// Writes the exposition. Returns whether the file is sound.
pub(super) fn write(inspection: &Inspection, out: &mut impl Write) -> io::Result<bool> {
    let mut families: Vec<(String, Vec<&FamilySeen>)> = Vec::new();
    let mut by_name: HashMap<String, usize> = HashMap::new();
    let families_seen = inspection.report().families.iter();
    for family in families_seen.filter(|family| is_shown(&family.schema)) {
        let name = base_name(family);
        let at = *by_name.entry(name.clone()).or_insert_with(|| {
            families.push((name, Vec::new()));
            families.len() - 1
        });
        let others = &mut families[at].1;
        let is_first = others.is_empty();
        if is_first || type_of(others[0]) == type_of(family) {
            others.push(family);
        }
    }
    let mut is_sound = inspection.report().damage.is_empty();
    for (name, variants) in &families {
        let Some(first) = variants.first() else { continue };
        writeln!(out, "# TYPE {} {}", quoted_name(name), type_of(first).name())?;
        if !first.schema.unit.is_empty() {
            writeln!(out, "# UNIT {} {}", quoted_name(name), first.schema.unit)?;
        }
        if !first.schema.help.is_empty() {
            writeln!(out, "# HELP {} {}", quoted_name(name), escaped(&first.schema.help))?;
        }
        for family in variants {
            let mut written = Ok(());
            let damage = each_series(inspection, family, |series| {
                if written.is_ok() && !series.is_hidden {
                    let value = value(family, series);
                    written = samples(out, name, type_of(family), series, &value);
                }
            });
            is_sound &= damage.is_empty();
            written?;
        }
    }
    writeln!(out, "# EOF")?;
    Ok(is_sound)
}

/// What the format calls the family. It requires a suffix of counters: one whose name is to be
/// shown as it is has an unknown type.
fn type_of(family: &FamilySeen) -> Type {
    let schema = &family.schema;
    let is_bare = schema.class & 1 == 1 && counter_stem(&schema.name) == schema.name;
    match Type::of(schema) {
        Type::Counter if is_bare => Type::Unknown,
        other => other,
    }
}

/// The name without the suffixes that the format adds.
fn base_name(family: &FamilySeen) -> String {
    let name = &family.schema.name;
    let base = match type_of(family) {
        Type::Counter => counter_stem(name),
        Type::Info => name.strip_suffix("_info").filter(|base| !base.is_empty()).unwrap_or(name),
        _ => name,
    };
    base.to_owned()
}

fn samples(
    out: &mut impl Write,
    name: &str,
    of: Type,
    series: &SeriesSeen<'_>,
    value: &Value,
) -> io::Result<()> {
    let mut sample = |suffix: &str, more: Option<(&str, &str)>, number: f64| {
        write_sample(out, &format!("{name}{suffix}"), series, more, number)
    };
    match value {
        Value::Whole(n) => {
            let suffix = if of == Type::Counter { "_total" } else { "" };
            write_text(out, &format!("{name}{suffix}"), series, &n.to_string())
        }
        Value::Signed(n) => write_text(out, name, series, &n.to_string()),
        Value::Float(n) => sample(if of == Type::Counter { "_total" } else { "" }, None, *n),
        Value::Histogram { sum, buckets, is_whole } => {
            let mut count = 0.0;
            for (bound, n) in buckets {
                count += n;
                if *is_whole {
                    sample("_bucket", Some(("le", &number(*bound))), count)?;
                }
            }
            if *is_whole {
                sample("_count", None, count)?;
            }
            sample("_sum", None, *sum)
        }
        Value::Summary { sum, count } => {
            sample("_count", None, *count)?;
            sample("_sum", None, *sum)
        }
        Value::Info => sample("_info", None, 1.0),
        Value::States(states) => {
            for (state, is_on) in states {
                sample("", Some((name, state)), f64::from(u8::from(*is_on)))?;
            }
            Ok(())
        }
        Value::Unset | Value::Cells(_) => Ok(()),
    }
}

fn write_sample(
    out: &mut impl Write,
    name: &str,
    series: &SeriesSeen<'_>,
    more: Option<(&str, &str)>,
    n: f64,
) -> io::Result<()> {
    writeln!(out, "{} {}", series_text(name, series, more), number(n))
}

fn write_text(
    out: &mut impl Write,
    name: &str,
    series: &SeriesSeen<'_>,
    value: &str,
) -> io::Result<()> {
    writeln!(out, "{} {value}", series_text(name, series, None))
}

/// A series as the text formats write it.
pub(super) fn series_text(
    name: &str,
    series: &SeriesSeen<'_>,
    more: Option<(&str, &str)>,
) -> String {
    let mut text = String::new();
    let name = quoted_name(name);
    let (is_quoted, mut is_first) = (name.starts_with('"'), true);
    if is_quoted {
        text.push('{');
    }
    text.push_str(&name);
    for (name, value) in shown_labels(series).chain(more.map(|(name, value)| (name, value.into())))
    {
        text.push(if is_first && !is_quoted { '{' } else { ',' });
        is_first = false;
        append_label(&mut text, name, &value);
    }
    if is_quoted || !is_first {
        text.push('}');
    }
    text
}

/// The labels of a series that formats show: that of the overflow series is added, and the name of
/// a process is its process ID.
pub(crate) fn shown_labels<'s>(
    series: &'s SeriesSeen<'_>,
) -> impl Iterator<Item = (&'s str, Cow<'s, str>)> {
    let overflow = series.is_overflow.then_some(("quipu_overflow", "true"));
    let process = super::processes::of_series(series).map(|(_, pid)| pid.to_string());
    let (last, others) = match (process, &series.labels[..]) {
        (Some(process), [others @ .., (name, _)]) => (Some((*name, process.into())), others),
        (_, all) => (None, all),
    };
    let others = others.iter().copied().filter(|(name, _)| *name != ALONE);
    others.chain(overflow).map(|(name, value)| (name, value.into())).chain(last)
}

/// Appends `name="value"`.
pub(crate) fn append_label(text: &mut String, name: &str, value: &str) {
    text.push_str(&quoted_name(name));
    text.push_str("=\"");
    text.push_str(&escaped(value));
    text.push('"');
}

/// The label of families without labels that came from outside.
pub(crate) const ALONE: &str = "__none";

/// A name, in quotes if it has other characters than names had before Prometheus 3.
pub(crate) fn quoted_name(name: &str) -> Cow<'_, str> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b':';
    let is_first = |byte: &u8| !byte.is_ascii_digit();
    match name.bytes().all(is_plain) && name.as_bytes().first().is_some_and(is_first) {
        true => name.into(),
        false => format!("\"{}\"", escaped(name)).into(),
    }
}

fn escaped(text: &str) -> Cow<'_, str> {
    if !text.contains(['\\', '"', '\n']) {
        return text.into();
    }
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n").into()
}

/// A number as OpenMetrics writes it.
pub(crate) fn number(n: f64) -> String {
    if n == f64::INFINITY {
        "+Inf".into()
    } else if n == f64::NEG_INFINITY {
        "-Inf".into()
    } else {
        format!("{n}")
    }
}
