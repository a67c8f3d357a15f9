//! The parsers of Prometheus' server, as a Go program that is built once per test binary. Tests of
//! other crates include this file, too.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use serde_json::Value;

/// Parses an exposition with the parser for `content_type`. Returns its samples, in the form that
/// `textparse/main.go` describes.
///
/// # Panics
///
/// With the parser's message, if it rejects the exposition.
pub(crate) fn textparse(content_type: &str, exposition: &[u8]) -> Vec<Value> {
    let mut child = Command::new(program())
        .arg(content_type)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(exposition).unwrap();
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    let text = String::from_utf8_lossy(exposition);
    assert!(output.status.success(), "{content_type}: {errors}\n{text}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn program() -> &'static Path {
    static PROGRAM: OnceLock<std::path::PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let name = concat!("textparse-", env!("CARGO_PKG_NAME"), "-", env!("CARGO_CRATE_NAME"));
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../quipu/tests/judges/textparse");
        let mut go = Command::new("go");
        go.current_dir(source).args(["build", "-o"]).arg(&program).arg(".");
        let output = go.output().expect("go, which the tests need; see CONTRIBUTING.md");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        program
    })
}
