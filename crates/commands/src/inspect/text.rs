//! The output for people of `quipu inspect`: columns, sizes with units, dates.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use quipu::snapshot::{ALONE, CounterValue, Decoder, SummaryValue, Value, each_series};
use quipu_segment::inspect::{FamilySeen, HeaderSeen, Inspection, Report};
use quipu_segment::printable;

use super::names::{exact, number, series_text};
use super::omitted_message;
use super::processes;

/// Writes everything. Returns whether the file is undamaged.
pub(super) fn write(
    inspection: &Inspection,
    file: &Path,
    out: &mut impl Write,
) -> io::Result<bool> {
    let report = inspection.report();
    let series: u64 = report.families.iter().map(|family| family.series).sum();
    let (families, bytes) = (report.families.len(), size(report.length));
    let noun = if families == 1 { "family" } else { "families" };
    writeln!(out, "{}: {bytes}, {families} {noun}, {series} series", printable(file))?;
    header(inspection, out)?;
    owners(inspection, file, out)?;
    memory(report, series, out)?;
    if !report.families.is_empty() {
        title("families", out)?;
        table(&report.families.iter().map(row).collect::<Vec<_>>(), out)?;
    }
    if !report.records.is_empty() {
        title("records", out)?;
        let row = |record: &quipu_segment::inspect::RecordSeen| {
            let kind = format!("{:?}", record.kind);
            [kind, shown(&record.name), size(record.bytes)].to_vec()
        };
        let rows = report.records.iter().map(row);
        let head = ["kind", "name", "bytes"].map(str::to_owned).to_vec();
        columns(&[head].into_iter().chain(rows).collect::<Vec<_>>(), out)?;
    }
    let mut damage = report.damage.clone();
    if series > 0 {
        title("values", out)?;
        for family in &report.families {
            damage.extend(values(inspection, family, out)?);
        }
    }
    if let Some(message) = omitted_message(inspection.omitted()) {
        title("omitted", out)?;
        writeln!(out, "  {message}")?;
    }
    damage.sort_by(|one, other| (one.at, &one.message).cmp(&(other.at, &other.message)));
    damage.dedup();
    if !damage.is_empty() {
        title("damage", out)?;
        for damage in &damage {
            writeln!(out, "  byte {}: {}", damage.at, shown(&damage.message))?;
        }
    }
    Ok(damage.is_empty())
}

pub(super) fn title(title: &str, out: &mut impl Write) -> io::Result<()> {
    writeln!(out, "\n{title}")
}

fn header(inspection: &Inspection, out: &mut impl Write) -> io::Result<()> {
    title("segment", out)?;
    let report = inspection.report();
    let Some(header) = &report.header else { return writeln!(out, "  no header can be read") };
    let HeaderSeen { version, limit, size: bytes, used, .. } = *header;
    let state = match (header.is_clean, report.is_open) {
        (true, _) => "closed cleanly",
        (false, Some(true)) if inspection.is_copy() => "open in a process",
        (false, Some(true)) => {
            "open in a process; not copied, so its values are of different moments"
        }
        (false, _) if header.is_left => "closed, without a sync",
        (false, Some(false)) => "left open: its last process did not close it",
        (false, None) => "open, or left open",
    };
    let boot = match this_boot() {
        Some(boot) if boot == header.boot => "this one",
        Some(_) if header.boot == [0; 16] => "unknown",
        Some(_) => "another one: the machine was started since",
        None => "not known whether this one",
    };
    let rows = [
        ("version", version.to_string()),
        ("size", format!("{}, of which {} are in use", size(bytes), size(used))),
        ("limit", size(limit)),
        ("created", date(header.created)),
        ("instance", hex(&header.instance)),
        ("state", state.to_owned()),
        ("last sync", format!("{}, {}", date(header.synced), size(header.synced_bytes))),
        ("boot", format!("{} ({boot})", hex(&header.boot))),
        ("processes", format!("{} have counted in it", header.tokens)),
    ];
    columns(&rows.map(|(name, text)| vec![name.to_owned(), text]), out)
}

fn owners(inspection: &Inspection, file: &Path, out: &mut impl Write) -> io::Result<()> {
    title("processes", out)?;
    let mut rows = Vec::new();
    for process in processes::find_open(file) {
        let state = match process.state {
            'T' | 't' => "stopped",
            'Z' => "ended",
            _ => "runs",
        };
        rows.push(vec![
            process.pid.to_string(),
            state.into(),
            process.name,
            "has the file open".into(),
        ]);
    }
    let life = |is_alive: Option<bool>| match is_alive {
        Some(true) => "lives",
        Some(false) => "ended",
        None => "unknown",
    };
    for owner in &inspection.report().owners {
        let note = format!("has {}", owner.holding);
        let token = format!("token {}", owner.token);
        rows.push(vec![token, life(owner.is_alive).into(), String::new(), shown(&note)]);
    }
    for (token, (pid, is_alive)) in processes::gauge_processes(inspection) {
        let note = format!("pid {pid} has set a gauge of processes");
        rows.push(vec![format!("token {token}"), life(is_alive).into(), String::new(), note]);
    }
    if rows.is_empty() {
        return writeln!(out, "  none that this user may see");
    }
    columns(&rows, out)
}

fn memory(report: &Report, series: u64, out: &mut impl Write) -> io::Result<()> {
    let Some(header) = &report.header else { return Ok(()) };
    title("memory", out)?;
    let sum = |size: fn(&FamilySeen) -> u64| report.families.iter().map(size).sum::<u64>();
    let live = sum(|family| family.series_bytes);
    let index = sum(|family| family.index_bytes);
    let mut each = String::new();
    if let Some(bytes) = (live + index).checked_div(series) {
        let _ = write!(each, "a series takes {}, with its share of the indexes", size(bytes));
    }
    let records = report.records.iter().map(|record| record.bytes).sum();
    let rows = [
        ("series", live, each),
        ("indexes", index, String::new()),
        ("free", sum(|family| family.free_bytes), "for later series of the same families".into()),
        ("descriptions", sum(|family| family.head_bytes), String::new()),
        ("records", records, "windows, keys, cells of CPUs, the flight recorder".into()),
        ("claims", report.claim_bytes, String::new()),
        (
            "other",
            report.other_bytes(),
            "exemplars, exponential buckets, freed families, gaps".into(),
        ),
        ("unused", header.size.saturating_sub(header.used), "for what comes".into()),
    ];
    columns(&rows.map(|(name, bytes, text)| vec![name.to_owned(), size(bytes), text]), out)
}

fn row(family: &FamilySeen) -> Vec<String> {
    let schema = &family.schema;
    let labels = schema.labels.iter().filter(|label| label.name != ALONE);
    let labels: Vec<String> = labels
        .map(|label| match &label.values {
            Some(values) => format!("{}({})", shown(&label.name), values.len()),
            None => shown(&label.name),
        })
        .collect();
    let decoder = Decoder::new(schema);
    let each = family.series_bytes.checked_div(family.series + family.hidden);
    vec![
        shown(&schema.name),
        decoder.kind_name().into(),
        labels.join(","),
        decoder.identity().into(),
        family.series.to_string(),
        family.hidden.to_string(),
        family.overflowed.to_string(),
        size(family.bytes()),
        each.map_or("-".into(), size),
    ]
}

fn table(rows: &[Vec<String>], out: &mut impl Write) -> io::Result<()> {
    let head =
        ["name", "kind", "labels", "identity", "series", "hidden", "overflowed", "bytes", "each"];
    let head = head.map(str::to_owned).to_vec();
    columns(&[&[head], rows].concat(), out)
}

/// Writes rows. Each cell is as wide as the widest cell in its column.
pub(super) fn columns(rows: &[Vec<String>], out: &mut impl Write) -> io::Result<()> {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |at: usize| {
        let cells = rows.iter().filter_map(|row| row.get(at));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..count).map(width).collect();
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        writeln!(out, "  {}", line.trim_end())?;
    }
    Ok(())
}

fn values(
    inspection: &Inspection,
    family: &FamilySeen,
    out: &mut impl Write,
) -> io::Result<Vec<quipu_segment::inspect::Damage>> {
    let mut written = Ok(());
    let mut decoder = Decoder::new(&family.schema);
    let name = decoder.family(&[]).text_name();
    // We cache the last date, because many series start in the same second.
    let mut since = (0, date(0));
    let damage = each_series(inspection, family, |series| {
        if written.is_err() {
            return;
        }
        let text = series_text(&name, decoder.labels(series));
        // Most strings need no escaping, so check this first.
        let is_plain = text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        let text = if is_plain { text } else { shown(&text) };
        let value = value_text(&mut decoder, series.cells);
        let hidden = if series.is_hidden { ", hidden" } else { "" };
        let second = series.start - series.start % 1_000_000_000;
        if since.0 != second {
            since = (second, date(second));
        }
        written = writeln!(out, "  {text}  {value}  since {}{hidden}", since.1);
    });
    written.map(|()| damage)
}

fn value_text(decoder: &mut Decoder, cells: &[u64]) -> String {
    if !decoder.is_known() {
        return format!("cells {cells:x?}");
    }
    let text = decoder.read(cells, |value| match value {
        Value::Counter(CounterValue { total: n, .. }) | Value::Gauge(n) | Value::Unknown(n) => {
            exact(n)
        }
        Value::Histogram(histogram) if histogram.buckets.is_empty() => {
            format!("sum {}, exponential buckets", number(histogram.sum))
        }
        Value::Histogram(histogram) => {
            let mut text = format!("count {}, sum {}", histogram.count, number(histogram.sum));
            for bucket in histogram.buckets.iter().filter(|bucket| bucket.count > 0) {
                let _ = write!(text, ", {} to {}", bucket.count, number(bucket.bound));
            }
            text
        }
        Value::Summary(SummaryValue { sum, count, .. }) => {
            format!("count {count}, sum {}", number(sum))
        }
        Value::StateSet(states) => {
            let on = states.iter().filter(|(_, is_on)| *is_on).map(|(name, _)| shown(name));
            format!("[{}]", on.collect::<Vec<_>>().join(", "))
        }
        _ => "info".into(),
    });
    text.unwrap_or_else(|| "not set".into())
}

pub(super) fn shown(text: &str) -> String {
    printable(text).to_string()
}

/// Returns the ID of this boot of the machine.
fn this_boot() -> Option<[u8; 16]> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&digits, 16).ok().map(u128::to_be_bytes)
}

pub(super) fn hex(bytes: &[u8; 16]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Formats a number of bytes with a unit.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut amount = bytes as f64;
    let mut unit = 0;
    while amount >= 1024.0 && unit + 1 < UNITS.len() {
        amount /= 1024.0;
        unit += 1;
    }
    format!("{amount:.1} {}", UNITS[unit])
}

/// Formats nanoseconds of Unix time as a date.
pub(crate) fn date(nanos: u64) -> String {
    if nanos == 0 {
        return "never".into();
    }
    // This cannot overflow, because all times are before the year 2555.
    humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_nanos(nanos)).to_string()
}

/// Formats nanoseconds as a duration. Fractions of a second are shown up to a minute.
pub(crate) fn duration(nanos: u64) -> String {
    let duration = Duration::from_nanos(nanos);
    let whole = match duration.as_secs() {
        0..60 => Duration::from_millis(duration.as_millis() as u64),
        seconds => Duration::from_secs(seconds),
    };
    humantime::format_duration(whole).to_string()
}
