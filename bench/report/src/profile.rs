//! The Cargo profile that a program was built with.
//!
//! You can run a benchmark of code in this process twice: built like most programs, with the
//! profile `default-release`, and with link-time optimisation over all crates, the profile
//! `release` of this workspace. The figures of the second run are in separate files, `NAME-lto`.

use std::path::Path;

/// The profile of this program: the name of its folder in `target`.
pub fn name() -> String {
    let program = std::env::current_exe().unwrap_or_default();
    of(&program).unwrap_or("unknown").to_string()
}

/// The name under which this program writes the figures of a benchmark.
pub fn records_name(benchmark: &str) -> String {
    match name() == LTO {
        true => format!("{benchmark}-lto"),
        false => benchmark.to_string(),
    }
}

/// The profile with link-time optimisation.
const LTO: &str = "release";

/// Returns the name of the folder; for a test, the folder above it.
fn of(program: &Path) -> Option<&str> {
    let folder = program.ancestors().skip(1).find(|folder| !folder.ends_with("deps"))?;
    folder.file_name()?.to_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_names_the_profile() {
        assert_eq!(of(Path::new("/a/target/release/counting")), Some("release"));
        assert_eq!(of(Path::new("/a/target/debug/deps/counting-1f")), Some("debug"));
        assert_eq!(of(Path::new("counting")), None);
    }
}
