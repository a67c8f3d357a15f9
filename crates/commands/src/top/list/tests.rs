//! Tests of the list of `quipu top`: sums, order, filters and groups.

use std::time::Duration;

use quipu::snapshot::Number;

use super::*;
use crate::look::{Family, Look, Value};

/// Creates a model of two looks, a second apart: `hits` by path and code, `took` by path, and a
/// gauge.
fn model() -> Model {
    let mut model = Model::default();
    for round in 1..=2 {
        let mut look = Look::default();
        let family = |look: &mut Look, name: &str, kind| {
            let (help, unit) = (String::new(), String::new());
            look.family(Family { name: name.into(), kind, help, unit })
        };
        let hits = family(&mut look, "hits_total", Kind::Counter);
        for (path, code, count) in [("/b", "200", 7), ("/a", "200", 5), ("/a", "500", 1)] {
            let value = Value::Number(Number::Unsigned(count * round));
            look.add(hits, [("path", path), ("code", code)].into_iter(), None, value);
        }
        let took = family(&mut look, "took", Kind::Histogram);
        for (path, one, more) in [("/a", 4.0, 0.0), ("/b", 0.0, 4.0)] {
            let buckets = [(1.0, one * round as f64), (2.0, more * round as f64)];
            let value = Value::Histogram {
                count: 4.0 * round as f64,
                sum: 1.0,
                buckets: &buckets[..],
                is_exponential: false,
            };
            look.add(took, [("path", path)].into_iter(), None, value);
        }
        let level = family(&mut look, "level", Kind::Gauge);
        for (room, value) in [("x", -1.0), ("y", f64::NAN), ("z", 3.5)] {
            let value = Value::Number(Number::Float(value));
            look.add(level, [("room", room)].into_iter(), None, value);
        }
        model.update(&look, Duration::from_secs(round));
    }
    model
}

/// Returns the names of the items.
fn names(model: &Model, items: &[Item]) -> Vec<String> {
    let name = |item: &Item| match &item.subject {
        Subject::Family(number) => model.families()[*number as usize].name.clone(),
        Subject::Group(value) => value.clone(),
        Subject::Row(row) => model.rows()[*row as usize].labels.to_string(),
    };
    items.iter().map(name).collect()
}

fn hits(chosen: &[(&str, &str)], by: Option<&str>) -> ListView {
    ListView::Family {
        family: ("hits_total".into(), Kind::Counter),
        chosen: chosen.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
        by: by.map(Into::into),
    }
}

#[test]
fn families_add_up_their_series() {
    let model = model();
    let items = list(&model, &ListView::Families, &Filter::default(), Sort::Name, false);
    assert_eq!(names(&model, &items), ["hits_total", "level", "took"]);
    let [hits, level, took] = &items[..] else { panic!() };
    assert_eq!((hits.count, hits.total, hits.rate), (3, 26.0, Some(13.0)));
    assert_eq!((level.range, level.rate), ((-1.0, 3.5), None));
    let (quantiles, is_recent) = took.quantiles(&model, [0.5, 0.75]);
    assert_eq!((took.rate, quantiles, is_recent), (Some(8.0), [Some(1.0), Some(1.5)], true));
}

#[test]
fn lists_are_sorted_filtered_and_reversed() {
    let model = model();
    let all = |filter, sort, is_reversed| {
        let items = list(&model, &ListView::All, &Filter::parse(filter), sort, is_reversed);
        names(&model, &items)
    };
    let hits = ["path=\"/b\",code=\"200\"", "path=\"/a\",code=\"200\"", "path=\"/a\",code=\"500\""];
    assert_eq!(all("hits", Sort::Rate, false), hits);
    assert_eq!(all("HITS", Sort::Name, false), [hits[1], hits[2], hits[0]]);
    assert_eq!(all("hits !500", Sort::Value, true), [hits[1], hits[0]]);
    // A NaN, and an item without a rate, are last.
    assert_eq!(all("room", Sort::Value, false), ["room=\"z\"", "room=\"x\"", "room=\"y\""]);
    assert_eq!(all("", Sort::Rate, false).last().map(|name| &name[..4]), Some("room"));
}

#[test]
fn a_family_is_grouped_and_narrowed_by_labels() {
    let model = model();
    let at = |view: &ListView| list(&model, view, &Filter::default(), Sort::Name, false);
    let items = at(&hits(&[], Some("path")));
    assert_eq!(names(&model, &items), ["/a", "/b"]);
    assert_eq!((items[0].count, items[0].rate), (2, Some(6.0)));
    let items = at(&hits(&[("path", "/a")], None));
    assert_eq!(items.len(), 2);
    assert_eq!(names(&model, &at(&hits(&[("path", "/a")], Some("code")))), ["200", "500"]);
    assert_eq!(names(&model, &at(&hits(&[], Some("none")))), [""]);
    let key = ("hits_total".to_owned(), Kind::Counter);
    assert_eq!(label_names(&model, &key, &[]), ["path", "code"]);
    assert_eq!(label_names(&model, &key, &[("path".into(), "/a".into())]), ["code"]);
}
