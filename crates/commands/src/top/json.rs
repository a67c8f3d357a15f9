//! The JSON output of `quipu top --once`: the items of the list, in order.

use std::io::{self, Write};

use quipu_process::json;
use serde_json::{Map, Value};

use super::app::App;
use super::list::{Item, Subject};
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

/// Returns an item as an object. Numbers that JSON cannot represent are null.
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
    object.insert("value".into(), item.total.into());
    object.insert("rate".into(), item.rate.into());
    if p50.is_some() || p99.is_some() {
        object.insert("p50".into(), p50.into());
        object.insert("p99".into(), p99.into());
        object.insert("quantiles_since_last_sample".into(), is_recent.into());
    }
    Value::Object(object)
}
