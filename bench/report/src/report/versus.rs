//! A table of pairs: it compares two groups of subjects, `quipu:NAME` and `go:NAME`, by name.

use super::format;
use super::table::{cases, escape};
use crate::record::Record;
use crate::{Error, Result};

/// Renders a Markdown table with a row for each name of either group, in the order of the records,
/// and a column for each case: our figure, how many times better it is, and below this the peer's
/// figure.
pub(super) fn render(records: &[&Record], ours: &str, theirs: &str) -> Result<String> {
    let mut names: Vec<&str> = Vec::new();
    for record in records {
        let name = record.subject.strip_prefix(ours).or(record.subject.strip_prefix(theirs));
        names.extend(name.filter(|name| !names.contains(name)));
    }
    if names.is_empty() {
        return Err(Error::report(format!("no record is of {ours}NAME or {theirs}NAME")));
    }
    let cases = cases(records);
    let mut text = "| |".to_string();
    for case in &cases {
        text.push_str(&format!(" {} |", escape(&case.case_and_threads(false))));
    }
    text.push_str("\n| --- |");
    text.push_str(&" ---: |".repeat(cases.len()));
    for name in names {
        text.push_str(&format!("\n| {} |", escape(name)));
        for case in &cases {
            let of = |group: &str| case.of(records, &format!("{group}{name}"));
            text.push_str(&format!(" {} |", cell(of(ours), of(theirs))));
        }
    }
    text.push_str(&format!(
        "\n\nMedian of {}: `{ours}NAME` in bold, how many times better it is, and below \
         it `{theirs}NAME`.",
        format::runs(records)
    ));
    Ok(text)
}

fn cell(ours: Option<&Record>, theirs: Option<&Record>) -> String {
    let value = |record: &Record| format::quantity(record.median, &record.unit);
    let Some(ours) = ours else {
        return format!("-<br>{}", theirs.map_or("-".into(), value));
    };
    let mut text = format!("**{}**", value(ours));
    if let Some(theirs) = theirs {
        if let Some(ratio) = ours.times_better_than(theirs) {
            text.push_str(&format!(" {}", format::verdict(ratio)));
        }
        text.push_str(&format!("<br>{}", value(theirs)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Label;

    #[test]
    fn names_stand_beside_each_other() {
        let label = |subject: &str| Label::new("marshal/counter", subject, "time", "ns");
        let records = [
            label("quipu:xdr").of(&[4.0]),
            label("quipu:quipu").of(&[3.0]),
            label("crate:onc-xdr").of(&[5.0]),
            label("go:xdr").of(&[48.0, 49.0, 47.0]),
            label("go:gob").of(&[1000.0]),
        ];
        let records: Vec<&Record> = records.iter().collect();
        assert_eq!(
            render(&records, "quipu:", "go:").unwrap(),
            "| | marshal/counter |\n\
             | --- | ---: |\n\
             | xdr | **4.00 ns** 12.0x<br>48.0 ns |\n\
             | quipu | **3.00 ns** |\n\
             | gob | -<br>1.00 us |\n\
             \n\
             Median of 1 to 3 runs: `quipu:NAME` in bold, how many times better it is, and below \
             it `go:NAME`."
        );
        assert!(render(&records[2..3], "quipu:", "go:").is_err());
    }
}
