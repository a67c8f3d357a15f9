//! Compares our BSON with the crate bson.

use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document};
use quipu_wire::Kind;

use crate::common::Owned;
use crate::{Oracle, always, blank};

#[test]
fn bson() {
    let oracle =
        Oracle { format: "bson", write: &write, read: &read, same_bytes: always, knows: always };
    oracle.check();
}

fn write(message: &Owned) -> Vec<u8> {
    let id = Bson::Binary(Binary { subtype: BinarySubtype::Generic, bytes: message.id.clone() });
    let timer = Bson::Array(message.timer.iter().copied().map(Bson::Double).collect());
    let mut document = Document::new();
    match message.kind {
        Kind::Counter => {
            document.insert("id", id);
            document.insert("value", message.counter);
        }
        Kind::BatchTimer => {
            document.insert("id", id);
            document.insert("values", timer);
        }
        Kind::Gauge => {
            document.insert("id", id);
            document.insert("value", message.gauge);
        }
        Kind::MetricUnion => {
            document.insert("type", i32::from(message.metric_type));
            document.insert("id", id);
            document.insert("counterval", message.counter);
            document.insert("batchtimerval", timer);
            document.insert("gaugeval", message.gauge);
        }
    }
    document.to_vec().unwrap()
}

fn read(kind: Kind, bytes: &[u8]) -> Owned {
    let document = Document::from_reader(bytes).unwrap();
    let mut message = blank(kind);
    for (name, value) in &document {
        match (name.as_str(), value) {
            ("id", Bson::Binary(binary)) => message.id = binary.bytes.clone(),
            ("value" | "counterval", Bson::Int64(number)) => message.counter = *number,
            ("value" | "gaugeval", Bson::Double(number)) => message.gauge = *number,
            ("values" | "batchtimerval", Bson::Array(list)) => {
                message.timer = list.iter().map(|value| value.as_f64().unwrap()).collect();
            }
            ("type", Bson::Int32(number)) => message.metric_type = i8::try_from(*number).unwrap(),
            other => panic!("{other:?}"),
        }
    }
    message
}
