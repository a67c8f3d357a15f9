//! Sets `BUILD_VERSION`: the version of the package, with the commit of a release build.
//!
//! The commit is read from the variable `BUILD_COMMIT`, which packages set, or from Git. A build
//! for tests has no commit, because it would have to build again after each commit.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-env-changed=BUILD_COMMIT");
    println!("cargo::rerun-if-changed=build.rs");
    let version = env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let commit = env::var("BUILD_COMMIT").ok().or_else(|| {
        let is_release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
        is_release.then(git_commit).flatten()
    });
    let version = match commit {
        Some(commit) => format!("{version} ({commit})"),
        None => version,
    };
    println!("cargo::rustc-env=BUILD_VERSION={version}");
}

/// Returns the first digits of the commit, if this is a checkout.
fn git_commit() -> Option<String> {
    println!("cargo::rerun-if-changed=../../.git/logs/HEAD");
    let output = Command::new("git").args(["rev-parse", "--short=10", "HEAD"]).output().ok()?;
    let commit = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| commit.trim().to_owned())
}
