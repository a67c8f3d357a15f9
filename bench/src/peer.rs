//! Runs a peer: a program in any language that measures itself and prints records on stdout.
//!
//! It inherits our stderr, to show its progress.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::record::{self, Record};
use crate::{Error, Result};

/// Runs a program to completion and returns the records that it printed.
pub fn run(command: &mut Command) -> Result<Vec<Record>> {
    let records = turn(command)?;
    if records.is_empty() {
        return Err(Error::command(describe(command), "printed no record"));
    }
    Ok(records)
}

/// Like [`run`], for a program that may print no records.
pub fn turn(command: &mut Command) -> Result<Vec<Record>> {
    let name = describe(command);
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| Error::command(&name, format!("cannot be started: {error}")))?;
    if !output.status.success() {
        return Err(Error::command(&name, format!("failed with {}", output.status)));
    }
    let text = String::from_utf8(output.stdout)
        .map_err(|_| Error::command(&name, "printed bytes that are not UTF-8"))?;
    record::parse(&format!("output of `{name}`"), &text)
}

/// Builds the peers written in Go and returns the path of one of them.
pub fn go(program: &str) -> Result<PathBuf> {
    let module = crate::root().join("bench/peers/go");
    let mut command = Command::new("go");
    command.args(["build", "-o", "bin/", "./..."]).current_dir(&module);
    let name = describe(&command);
    let status = command.status().map_err(|error| {
        Error::command(&name, format!("cannot be started: {error}. Install Go 1.26 or later."))
    })?;
    if !status.success() {
        return Err(Error::command(&name, format!("failed with {status}")));
    }
    let path = module.join("bin").join(program);
    match path.is_file() {
        true => Ok(path),
        false => Err(Error::command(&name, format!("made no program of the name {program}"))),
    }
}

/// A command line, without the directory of the program.
pub(crate) fn describe(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let mut text = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
    for argument in command.get_args() {
        text.push(' ');
        text.push_str(&argument.to_string_lossy());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    const LINE: &str = concat!(
        r#"{"case":"c","subject":"s","threads":1,"metric":"time","#,
        r#""unit":"ns","median":2,"min":1,"max":3,"runs":3}"#,
    );

    #[test]
    fn collects_the_lines() {
        let records = run(&mut shell(&format!("echo '{LINE}'"))).unwrap();
        assert_eq!((records[0].median, records[0].runs), (2.0, 3));
    }

    #[test]
    fn says_what_failed() {
        let error = |script: &str| run(&mut shell(script)).unwrap_err().to_string();
        assert!(error("exit 3").contains("exit status: 3"), "{}", error("exit 3"));
        assert!(error("true").contains("printed no record"));
        assert!(turn(&mut shell("true")).unwrap().is_empty());
        let second = error(&format!("echo '{LINE}'; echo hello"));
        assert!(second.contains(":2: not a record"), "{second}");
        let missing = run(&mut Command::new("no-such-program-here")).unwrap_err().to_string();
        assert!(missing.contains("cannot be started"), "{missing}");
    }
}
