//! Describes files that are not segments: their format, and the command that can read them.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use quipu_segment::MAGIC;
use quipu_segment::inspect::open_regular;

use super::{Look, exposition};
use crate::snapshot;
use quipu_client::Text;

/// The maximum number of bytes read from a file.
const HEAD: u64 = 64 << 10;

/// Returns a sentence about a file that does not begin like a segment. Returns `None` if it does,
/// or if it is unreadable.
pub(crate) fn describe(path: &Path) -> Option<String> {
    let head = open_regular(path).and_then(read_head).ok()?;
    let message = match &head[..] {
        head if head.starts_with(&MAGIC) => return None,
        [] => "it is empty: its program has just created it, or was killed while it did",
        head if snapshot::is_snapshot(head) => {
            "it is not a segment, but a snapshot: quipu restore creates a state file from it"
        }
        head if is_exposition(head) => {
            "it is not a segment, but an exposition: use quipu check metrics, quipu diff or quipu \
             top --once"
        }
        _ => "it is not a segment: its first 8 bytes are not \"QUIPUSEG\"",
    };
    Some(message.to_owned())
}

fn read_head(file: File) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    file.take(HEAD).read_to_end(&mut head)?;
    Ok(head)
}

/// Returns whether the first lines are an exposition with samples. The last line can be incomplete.
fn is_exposition(head: &[u8]) -> bool {
    let mut look = Look::default();
    let is_read = exposition::read(&Text::of_bytes(head.to_vec()), &mut look).is_ok();
    is_read && look.series().len() > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_described_by_what_they_contain() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let described = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            describe(&path).unwrap_or_default()
        };
        let long = b"# TYPE hits counter\nhits{path=\"/a\"} 5\n".repeat(10_000);
        for (bytes, part) in [
            (&b"# HELP a A.\na 1\n"[..], "an exposition: use quipu check metrics"),
            (&long, "an exposition"),
            (b"", "it is empty"),
            (b"# just a comment\n", "its first 8 bytes"),
            (b"nothing of the kind\n", "its first 8 bytes"),
            (b"\xff\0\x01{", "its first 8 bytes"),
            (b"QUIPUSE", "its first 8 bytes"),
        ] {
            assert!(described(bytes).contains(part), "{bytes:?}: {}", described(bytes));
        }
        assert_eq!(described(b"QUIPUSEG and more"), "");
        assert_eq!(describe(directory.path()), None);
        drop(quipu_segment::Segment::open_or_create(directory.path().join("a.quipu")).unwrap());
        assert_eq!(describe(&directory.path().join("a.quipu")), None);
    }
}
