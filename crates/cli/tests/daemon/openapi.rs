//! Compares `docs/openapi.yaml` with the daemon. You can run a more thorough comparison with `make
//! judge-openapi`.

use std::collections::BTreeSet;
use std::path::Path;

use quipu_wire::AnyFormat;
use serde_json::Value;

use crate::common::Home;

fn document() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.yaml");
    serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// Returns the path up to its first parameter, which can contain slashes.
fn route(path: &str) -> &str {
    path.find('}').map_or(path, |end| &path[..=end])
}

#[test]
fn the_description_has_the_routes_methods_and_codes_of_the_daemon() {
    let home = Home::new();
    let daemon = home.start(&["--push-admin"]);
    let document = document();
    let paths = document["paths"].as_object().unwrap();
    let told = daemon.get("/nothing").text();
    let (_, served) = told.trim_end().split_once("the routes are ").unwrap();
    let served: BTreeSet<&str> = served.split(", ").collect();
    let described: BTreeSet<&str> = paths.keys().map(|path| route(path)).collect();
    assert_eq!(described, served);
    for (path, item) in paths {
        let operation = |method: &str| match method {
            "HEAD" => item.get("get"),
            _ => item.get(method.to_lowercase()),
        };
        let methods = METHODS.into_iter().filter(|method| operation(method).is_some());
        let methods: BTreeSet<&str> = methods.collect();
        let target = path.replace(['{', '}'], "");
        for method in METHODS {
            let response = daemon.connect().request(method, &target).unwrap();
            match operation(method) {
                Some(operation) => {
                    let code = response.status.to_string();
                    let is_described = operation["responses"].get(code).is_some();
                    assert!(is_described, "{method} {path}: {response:?}");
                }
                None => {
                    assert_eq!(response.status, 405, "{method} {path}");
                    let allowed: BTreeSet<&str> = response.fields["allow"].split(", ").collect();
                    assert_eq!(methods, allowed, "{method} {path}");
                }
            }
        }
    }
}

#[test]
fn the_description_has_the_formats_and_the_version_of_the_daemon() {
    let document = document();
    let formats: Vec<&str> = AnyFormat::all().map(|format| format.as_str()).collect();
    let described = &document["components"]["parameters"]["Format"]["schema"]["enum"];
    assert_eq!(*described, serde_json::json!(formats));
    assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn references_lead_somewhere() {
    fn follow(value: &Value, document: &Value) {
        if let Some(target) = value.get("$ref").and_then(Value::as_str) {
            let pointer = target.strip_prefix('#').unwrap();
            assert!(document.pointer(pointer).is_some(), "{target}");
        }
        match value {
            Value::Object(map) => map.values().for_each(|value| follow(value, document)),
            Value::Array(list) => list.iter().for_each(|value| follow(value, document)),
            _ => {}
        }
    }
    let document = document();
    follow(&document, &document);
}

const METHODS: [&str; 9] =
    ["GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS", "PATCH", "TRACE", "QUERY"];
