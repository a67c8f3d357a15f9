//! What can fail says so: no fallible function has a panic in its assembly.

#![cfg(not(miri))]
#![allow(clippy::unwrap_used)]

use std::path::Path;
use std::process::Command;
use std::{env, fs};

#[test]
fn no_fallible_function_can_panic() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    // A folder of its own: cargo holds a lock on the other while the tests run.
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
    let functions = assembly.matches("try_alloc").count();
    assert!(functions > 100, "the functions are in it: {functions}");
    let panics: Vec<&str> = assembly
        .lines()
        .filter(|line| line.contains("panic") && !line.contains("no_panic"))
        .collect();
    assert!(panics.is_empty(), "{panics:#?}");
}
