//! The JSON output of `quipu top --once`: the items of the list, in order.

use std::io::{self, Write};

use quipu_process::json;
use serde_json::{Map, Value};

use super::app::App;
use super::list::{Item, Subject};
use crate::inspect::json::JsonFloat;
use crate::look::labels;

/// Writes one object with the items of the list, at most `most`.
pub(super) fn write(
    app: &App,
    problems: &[String],
    most: usize,
    out: &mut impl Write,
) -> io::Result<()> {
    let items: Vec<Value> = app.items.iter().take(most).map(|item| object(app, item)).collect();
    let frame = serde_json::json!({
        "target": app.target,
        "families": app.model.used(),
        "series": app.model.rows().len(),
        "problems": problems,
        "items": items,
    });
    json::write(&frame, out)?;
    writeln!(out)
}

/// Returns an item as an object. Unknown numbers are null, and numbers that JSON cannot represent
/// are strings.
fn object(app: &App, item: &Item) -> Value {
    let row = &app.model.rows()[item.row as usize];
    let family = app.model.family(row);
    let mut object = Map::new();
    object.insert("name".into(), family.name.clone().into());
    object.insert("type".into(), item.kind.as_str().into());
    match &item.subject {
        Subject::Family(_) => {}
        Subject::Group(value) => {
            object.insert("group".into(), value.clone().into());
        }
        Subject::Row(_) => {
            let labels = labels(&row.labels);
            let labels = labels.map(|(name, value)| (name.into_owned(), value.into_owned().into()));
            object.insert("labels".into(), Value::Object(labels.collect()));
        }
    }
    let ([p50, p99], is_recent) = item.quantiles(&app.model, [0.5, 0.99]);
    object.insert("series".into(), item.count.into());
    object.insert("value".into(), number(Some(item.total)));
    object.insert("rate".into(), number(item.rate));
    if p50.is_some() || p99.is_some() {
        object.insert("p50".into(), number(p50));
        object.insert("p99".into(), number(p99));
        object.insert("quantiles_since_last_sample".into(), is_recent.into());
    }
    Value::Object(object)
}

/// Returns a number by the same rule as in the other commands.
fn number(n: Option<f64>) -> Value {
    // A float and a string can always be serialized.
    n.and_then(|n| serde_json::to_value(JsonFloat(n)).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_json_cannot_represent_are_strings() {
        for (n, expected) in [
            (Some(0.5), Value::from(0.5)),
            (Some(f64::NAN), "NaN".into()),
            (Some(f64::NEG_INFINITY), "-Inf".into()),
            (None, Value::Null),
        ] {
            assert_eq!(number(n), expected);
        }
    }
}
