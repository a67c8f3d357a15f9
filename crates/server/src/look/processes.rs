//! The files that a process has mapped, as `/proc/PID/maps` lists them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read};
use std::path::PathBuf;

use crate::procfs::Mapping;

/// The most bytes of a list that are read. A mapping takes about a hundred.
const MAX_BYTES: u64 = 32 << 20;

/// The files that a process has mapped shared, each once: its path as the process sees it, and
/// paths that lead to the file from here.
pub(super) fn mapped(pid: u32) -> Result<Vec<(String, [PathBuf; 2])>, String> {
    let failed = |error: io::Error| match error.kind() {
        ErrorKind::NotFound => format!("there is no process {pid}"),
        ErrorKind::PermissionDenied => {
            format!("the mappings of process {pid} cannot be read: run as its user")
        }
        _ => format!("the mappings of process {pid} cannot be read: {error}"),
    };
    let maps = File::open(format!("/proc/{pid}/maps")).map_err(failed)?;
    let mut found = BTreeMap::new();
    for line in BufReader::new(maps.take(MAX_BYTES)).split(b'\n') {
        let line = line.map_err(failed)?;
        let line = String::from_utf8_lossy(&line);
        if let Some((range, path)) = parse(&line) {
            found.entry(path.to_owned()).or_insert_with(|| {
                let plain = path.strip_suffix(" (deleted)").unwrap_or(path);
                let root = PathBuf::from(format!("/proc/{pid}/root{plain}"));
                // Of a file that was deleted or renamed; needs more rights.
                [root, PathBuf::from(format!("/proc/{pid}/map_files/{range}"))]
            });
        }
    }
    Ok(found.into_iter().collect())
}

/// The range of addresses and the path of a shared mapping of a file.
fn parse(line: &str) -> Option<(&str, &str)> {
    let Mapping { range, permissions, has_file, path, .. } = Mapping::parse(line)?;
    (permissions.ends_with('s') && has_file && path.starts_with('/')).then_some((range, path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_mappings_of_files_are_found() {
        let line = "7f00-7f10 rw-s 00000000 00:1b 77    /dev/shm/a b.quipu (deleted)";
        assert_eq!(parse(line), Some(("7f00-7f10", "/dev/shm/a b.quipu (deleted)")));
        for other in [
            "7f00-7f10 rw-p 00000000 00:1b 77    /lib/x.so",
            "7f00-7f10 rw-s 00000000 00:1b 0 ",
            "7f00-7f10 rw-p 00000000 00:00 0    [stack]",
            "",
            "7f00",
        ] {
            assert_eq!(parse(other), None, "{other}");
        }
    }
}
