//! Compares our JSON with serde_json. The bytes can differ, because there are several ways to write
//! a number, so we compare the messages that each side reads.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use quipu_wire::Kind;
use serde_json::{Value, json};

use crate::common::Owned;
use crate::{Oracle, blank, never};

#[test]
fn serde_json() {
    for format in ["json", "easyjson"] {
        let knows = |message: &Owned| message.doubles().all(f64::is_finite);
        let compact = |message: &Owned| value(message).to_string().into_bytes();
        let pretty = |message: &Owned| serde_json::to_vec_pretty(&value(message)).unwrap();
        Oracle { format, write: &compact, read: &read, same_bytes: never, knows }.check();
        Oracle { format, write: &pretty, read: &read, same_bytes: never, knows }.check();
    }
}

/// Returns a message as a JSON object. JSON has no bytes, so the id is encoded in base64.
fn value(message: &Owned) -> Value {
    let id = BASE64_STANDARD.encode(&message.id);
    match message.kind {
        Kind::Counter => json!({ "ID": id, "Value": message.counter }),
        Kind::BatchTimer => json!({ "ID": id, "Values": message.timer }),
        Kind::Gauge => json!({ "ID": id, "Value": message.gauge }),
        Kind::MetricUnion => json!({
            "Type": message.metric_type,
            "ID": id,
            "CounterVal": message.counter,
            "BatchTimerVal": message.timer,
            "GaugeVal": message.gauge,
        }),
    }
}

fn read(kind: Kind, bytes: &[u8]) -> Owned {
    let text = std::str::from_utf8(bytes).unwrap();
    let Value::Object(fields) = serde_json::from_str(text).unwrap() else { panic!("{text}") };
    let mut message = blank(kind);
    for (name, value) in &fields {
        match name.as_str() {
            "ID" => message.id = BASE64_STANDARD.decode(value.as_str().unwrap()).unwrap(),
            "Type" => message.metric_type = i8::try_from(value.as_i64().unwrap()).unwrap(),
            "Value" if kind == Kind::Counter => message.counter = value.as_i64().unwrap(),
            "CounterVal" => message.counter = value.as_i64().unwrap(),
            "Value" | "GaugeVal" => message.gauge = double(text, name, 0),
            "Values" | "BatchTimerVal" => {
                let values = value.as_array().unwrap();
                message.timer = (0..values.len()).map(|index| double(text, name, index)).collect();
            }
            name => panic!("{name}"),
        }
    }
    message
}

/// Parses number `index` after a key, in JSON without spaces. Serde_json could return an adjacent
/// double, because it does not always round to the nearest one.
fn double(text: &str, name: &str, index: usize) -> f64 {
    let (_, rest) = text.split_once(&format!("\"{name}\":")).unwrap();
    let numbers = rest.trim_start_matches('[').split([',', ']', '}']);
    numbers.skip(index).map(|number| number.parse().unwrap()).next().unwrap()
}
