//! Programs that use segments run under valgrind, which emulates the processor, the clock and
//! system calls.

#![cfg(all(target_os = "linux", target_arch = "x86_64", not(miri)))]
#![allow(clippy::unwrap_used)]

use std::process::Command;

use quipu_segment::Segment;
use quipu_segment::series::{Label, Schema};

#[test]
fn families_count_under_valgrind() {
    if std::env::var("UNDER_VALGRIND").is_ok() {
        return count();
    }
    let output = Command::new("valgrind")
        .args(["--quiet", "--error-exitcode=9"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "families_count_under_valgrind", "--test-threads=1"])
        .env("UNDER_VALGRIND", "1")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
}

fn count() {
    for segment in [Segment::private(1 << 20).unwrap(), Segment::anonymous(1 << 20).unwrap()] {
        let fixed = Label { name: "code".into(), values: Some(vec!["200".into(), "500".into()]) };
        for label in [fixed, Label { name: "path".into(), values: None }] {
            let schema = Schema {
                name: label.name.clone(),
                cells: 1,
                additive: true,
                labels: vec![label],
                ..Schema::default()
            };
            let family = segment.family(&schema).unwrap();
            let bound = family.bind(|key| key.text("200"));
            bound.cells().add(0, 1);
            family.add(|key| key.text("200"), 0, 2);
            assert_eq!(family.read(|key| key.text("200"), |cells| cells.sum(0)), Some(3));
        }
    }
}
