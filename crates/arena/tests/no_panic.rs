//! Fallible functions return errors: their assembly contains no panic.

#![cfg(not(miri))]
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::Command;
use std::{env, fs};

#[test]
fn no_fallible_function_can_panic() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    // A separate folder, because cargo locks the other one while the tests run.
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("no_panic");
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .current_dir(root)
        .args(["rustc", "--release", "--locked", "--example", "fallible", "--target-dir"])
        .arg(&target)
        .args(["--config", "profile.release.lto=false", "--", "--emit", "asm"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let folder = target.join("release/examples");
    let assembly: Vec<_> = fs::read_dir(&folder)
        .unwrap()
        .map(|file| file.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "s"))
        .max_by_key(|path| fs::metadata(path).unwrap().modified().unwrap())
        .into_iter()
        .collect();
    let assembly =
        fs::read_to_string(assembly.first().expect("the compiler wrote assembly")).unwrap();
    let mut function = "";
    let mut functions = 0;
    let mut panics = Vec::new();
    for line in assembly.lines() {
        if let Some(name) = line.strip_suffix(':')
            && name.starts_with("_ZN")
        {
            function = name;
            functions += usize::from(is_ours(name));
        } else if is_ours(function) && PANICS.iter().any(|panic| line.contains(panic)) {
            panics.push(format!("{function}: {line}"));
        }
    }
    assert!(functions > 100, "the functions are in it: {functions}");
    assert!(panics.is_empty(), "{panics:#?}");
}

/// Parts of the names of functions that panic or abort.
const PANICS: [&str; 4] = ["panic", "_fail", "handle_alloc_error", "abort"];

/// Returns whether this is one of the functions to check, and not one that only keeps them in the
/// program.
fn is_ours(function: &str) -> bool {
    (function.contains("8fallible") || function.contains("11quipu_arena"))
        && !function.contains("9addresses")
        && !function.contains("4main")
}
