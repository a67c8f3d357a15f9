//! Sets `BUILD_VERSION`: the version of the package, with the commit of a release build.
//!
//! The commit is read from the variable `BUILD_COMMIT`, which packages set, or from Git. A build
//! for tests has no commit, because it would have to build again after each commit.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=BUILD_COMMIT");
    println!("cargo::rerun-if-changed=build.rs");
    let version = env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let commit = env::var("BUILD_COMMIT").ok().filter(|commit| !commit.is_empty()).or_else(|| {
        let is_release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
        is_release.then(git_commit).flatten()
    });
    let version = match commit {
        Some(commit) => format!("{version} ({commit})"),
        None => version,
    };
    println!("cargo::rustc-env=BUILD_VERSION={version}");
}

/// Returns the first digits of the commit, if this folder is part of a checkout of quipu. A package
/// can lie in the checkout of another program, whose commit is unrelated.
fn git_commit() -> Option<String> {
    let root = Path::new("../..").canonicalize().ok()?;
    if Path::new(&git(&["rev-parse", "--show-toplevel"])?) != root {
        return None;
    }
    println!("cargo::rerun-if-changed={}", git(&["rev-parse", "--git-path", "logs/HEAD"])?);
    git(&["rev-parse", "--short=10", "HEAD"])
}

/// Runs Git, and returns its output.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
