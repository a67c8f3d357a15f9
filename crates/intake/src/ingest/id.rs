//! Splits the id of a message, which identifies its series, into a metric name and labels.
//!
//! | id | name | labels |
//! |---|---|---|
//! | `name=hits,region=eu` | `hits` | `region="eu"` |
//! | `hits{region="eu"}` | `hits` | `region="eu"` |
//! | `web.hits` | `web_hits` | none |
//!
//! In an id without labels, dots become underscores. The name in an id with labels is not changed.

use std::borrow::Cow;

use quipu_wire::remote::exposition::text::{Item, Options, TextFormat, TextReader};
use quipu_wire::remote::id_labels;

/// The label that contains the name of the metric.
const NAME: &str = "__name__";

/// The maximum length of an id in bytes, because an id is parsed for each message.
const MOST_BYTES: usize = 64 << 10;

/// Calls `then` with the name and the labels.
///
/// # Errors
/// Returns a description of the error in the id.
pub(super) fn split<T>(
    id: &[u8],
    then: impl FnOnce(&str, &[(&str, &str)]) -> T,
) -> Result<T, &'static str> {
    if id.len() > MOST_BYTES {
        return Err("the id has more than 65,536 bytes");
    }
    let id = std::str::from_utf8(id).map_err(|_| "the id is not UTF-8")?;
    if id.is_empty() {
        return Err("the id is empty");
    }
    if let Some(mut labels) = id_labels(id) {
        let name = labels.iter().position(|label| label.0 == NAME).map(|at| labels.remove(at));
        let (_, name) = name.ok_or("the id has no name")?;
        return Ok(then(name, &labels));
    }
    if id.ends_with('}') {
        return braces(id, then);
    }
    let name = match id.contains('.') {
        true => Cow::Owned(id.replace('.', "_")),
        false => Cow::Borrowed(id),
    };
    Ok(then(&name, &[]))
}

/// Parses an id with braces, like a series in the text format.
fn braces<T>(id: &str, then: impl FnOnce(&str, &[(&str, &str)]) -> T) -> Result<T, &'static str> {
    const WRONG: &str = "the id is not of the form name{label=\"value\"}";
    // We reject line breaks, because the text format would read several lines.
    if id.contains(['\n', '\r']) {
        return Err(WRONG);
    }
    let line = format!("{id} 0");
    let mut reader = TextReader::new(line.as_bytes(), Options::new(TextFormat::Prometheus));
    let Some(Ok(Item::Sample(sample))) = reader.next() else { return Err(WRONG) };
    let name = sample.name.to_cow();
    let labels = sample.labels.iter().map(|label| (label.name.to_cow(), label.value.to_cow()));
    let labels: Vec<_> = labels.collect();
    let labels: Vec<_> = labels.iter().map(|(name, value)| (&**name, &**value)).collect();
    let taken = then(&name, &labels);
    match reader.next() {
        None => Ok(taken),
        Some(_) => Err(WRONG),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn display(id: &str) -> Result<String, &'static str> {
        split(id.as_bytes(), |name, labels| format!("{name} {labels:?}"))
    }

    #[test]
    fn ids_become_names_and_labels() {
        let with = |name: &str| Ok(format!("{name} [(\"a\", \"1\"), (\"b\", \"x y\")]"));
        assert_eq!(display("b=x y,name=hits.x,a=1"), with("hits.x"));
        assert_eq!(display("hits{a=\"1\",b=\"x y\"}"), with("hits"));
        assert_eq!(display("{\"web.hits\",a=\"1\",b=\"x y\"}"), with("web.hits"));
        assert_eq!(display("hits"), Ok("hits []".into()));
        assert_eq!(display("web.api.hits"), Ok("web_api_hits []".into()));
        assert_eq!(display("hits{}"), Ok("hits []".into()));
        assert_eq!(display("a=b"), Ok("a=b []".into()));
        for wrong in ["", "hits{a}", "{a=\"1\"}", "#}", "a 1\nb{}"] {
            assert!(display(wrong).is_err(), "{wrong}");
        }
        assert!(split(b"\xff", |_, _| ()).is_err());
    }

    #[test]
    fn a_wrong_id_reaches_no_series() {
        for wrong in ["a{} 5\nb{}", "a{} 5\r\nb{}"] {
            let taken = split(wrong.as_bytes(), |name, _| panic!("{wrong:?} is taken as {name}"));
            assert!(taken.is_err());
        }
    }
}
