//! The guide's examples do what it says.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

const GUIDE: &str = include_str!("../../../../docs/guide-wire.md");

#[test]
fn examples_run() {
    let directory = TempDir::new().unwrap();
    let mut examples = 0;
    // Odd pieces are code.
    for block in GUIDE.split("\n```\n").skip(1).step_by(2) {
        for example in block.split("$ ").filter(|example| !example.trim().is_empty()) {
            let (command, expected) = split(example);
            // Agents and hosts are the reader's, and times the machine's.
            if command.starts_with("quipu convert")
                || command.starts_with("printf")
                || command.starts_with("od")
            {
                assert_eq!(shell(directory.path(), &command), expected, "{command}");
                examples += 1;
            }
        }
    }
    assert_eq!(examples, 7);
}

/// The command, which lines with > go on, and what it prints.
fn split(example: &str) -> (String, String) {
    let mut lines = example.lines();
    let mut command = String::from(lines.next().unwrap());
    let mut printed = String::new();
    for line in lines {
        match line.strip_prefix("> ") {
            Some(more) => command.extend(["\n", more]),
            None => printed.extend([line, "\n"]),
        }
    }
    (command, printed)
}

fn shell(directory: &Path, command: &str) -> String {
    let binaries = Path::new(env!("CARGO_BIN_EXE_quipu")).parent().unwrap();
    let path = format!("{}:{}", binaries.display(), std::env::var("PATH").unwrap());
    let output = Command::new("sh")
        .args(["-c", &format!("({command}) 2>&1")])
        .current_dir(directory)
        .env("PATH", path)
        .output()
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}
