//! Runs the examples of the page about messages, and compares their output.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

const PAGE: &str = include_str!("../../../../docs/cli/messages.md");

#[test]
fn the_examples_of_the_page_run() {
    let directory = TempDir::new().unwrap();
    let mut examples = 0;
    // Every second piece is a code block.
    for block in PAGE.split("\n```\n").skip(1).step_by(2) {
        for example in block.split("$ ").filter(|example| !example.trim().is_empty()) {
            let (command, expected) = split(example);
            // We skip other commands, because they depend on the reader's hosts or on the machine's
            // speed.
            if command.starts_with("quipu messages convert")
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

/// Splits an example into the command, with continuation lines marked by >, and its output.
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
