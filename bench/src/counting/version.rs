//! The versions of the contenders' packages, from the lock file of this workspace.

/// A package's name and version, such as `measured 0.0.25`.
///
/// # Panics
///
/// If the workspace does not depend on the package.
pub(crate) fn of(package: &str) -> String {
    let start = format!("name = \"{package}\"\nversion = \"");
    let version = include_str!("../../../Cargo.lock")
        .split_once(&start)
        .and_then(|(_, rest)| rest.split_once('"'))
        .map(|(version, _)| version);
    format!("{package} {}", version.expect("the package is one that this crate depends on"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn reads_the_lock_file() {
        assert_eq!(super::of("measured"), "measured 0.0.25");
    }
}
