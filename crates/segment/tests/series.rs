//! Families, compared with a slow model, and the faults of other series tables, which must not
//! occur here.

#![allow(clippy::unwrap_used)]

#[cfg(all(unix, not(miri)))]
#[path = "series/files.rs"]
mod files;
#[path = "series/limits.rs"]
mod limits;
#[path = "series/pairs.rs"]
mod pairs;
#[path = "series/tables.rs"]
mod tables;
#[path = "series/twin.rs"]
mod twin;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::time::Duration;

use quipu_segment::series::{Cursor, Family, Label, Schema, View};

const START: u64 = 1_700_000_000_000_000_000;
const TENTH: Duration = Duration::from_millis(100);

fn dynamic(name: &str) -> Label {
    Label { name: name.into(), values: None }
}

fn fixed(name: &str, values: &[&str]) -> Label {
    let values = values.iter().map(|&value| value.into()).collect();
    Label { name: name.into(), values: Some(values) }
}

/// Returns a schema with one additive cell.
fn schema(labels: Vec<Label>) -> Schema {
    Schema { name: "requests".into(), cells: 1, additive: true, labels, ..Schema::default() }
}

/// Returns the dynamic values of a view.
fn texts(view: &View<'_>) -> Vec<String> {
    let mut rest = view.texts;
    let mut texts = Vec::new();
    while let Some((&first, behind)) = rest.split_first() {
        let (length, behind) = match first {
            255 => {
                let (length, behind) = behind.split_first_chunk().unwrap();
                (u32::from_le_bytes(*length) as usize, behind)
            }
            length => (usize::from(length), behind),
        };
        texts.push(String::from_utf8(behind[..length].to_vec()).unwrap());
        rest = &behind[length..];
    }
    texts
}

/// Returns all series that are shown: the first cell by labels. The overflow series is without
/// labels.
fn shown(family: &Family) -> BTreeMap<Vec<String>, u64> {
    let mut all = BTreeMap::new();
    let mut cursor = Cursor::default();
    let flow = family.walk(&mut cursor, &mut Vec::new(), |view| {
        let mut labels = texts(view);
        if !view.overflow {
            labels.insert(0, view.group.to_string());
        }
        assert!(all.insert(labels, view.cells.sum(0)).is_none(), "a series is there twice");
        ControlFlow::Continue(())
    });
    assert_eq!(flow, ControlFlow::Continue(()));
    all
}

fn value_of(family: &Family, text: &str) -> u64 {
    shown(family).get(&vec!["0".to_owned(), text.to_owned()]).copied().unwrap_or(0)
}

fn total(family: &Family) -> u64 {
    shown(family).values().fold(0, |sum, n| sum.wrapping_add(*n))
}
