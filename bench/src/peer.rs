//! Runs a peer: a program in any language that measures itself and prints records on stdout.
//!
//! The program inherits our stderr, because it shows its progress there.

use std::ffi::OsString;
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

/// Like [`run`], for a program that can print no records.
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

/// Builds the peers written in Go and returns the path of the program.
pub fn go(program: &str) -> Result<PathBuf> {
    let module = crate::root().join("bench/peers/go");
    build(&module, "go", &["build", "-o", "bin/", "./..."], "Install Go 1.26 or later.")?;
    built(module.join("bin").join(program))
}

/// Builds the peers written in Java, and returns the command that runs a main class.
pub fn java(class: &str) -> Result<Vec<OsString>> {
    let project = crate::root().join("bench/peers/java");
    let packages = "Install the packages default-jdk-headless and maven.";
    build(&project, "mvn", &["-q", "-B", "package"], packages)?;
    let target = built(project.join("target"))?;
    let mut path = target.join("classes").into_os_string();
    path.push(":");
    path.push(target.join("lib/*"));
    Ok(vec!["java".into(), "-cp".into(), path, class.into()])
}

/// Builds a peer written in C++ with a library of a Debian package, and returns its path. The
/// program gets the package's version as `VERSION`.
pub fn cpp(program: &str, package: &str, library: &str) -> Result<PathBuf> {
    let folder = crate::root().join("bench/peers/cpp");
    let bin = folder.join("bin");
    std::fs::create_dir_all(&bin).map_err(Error::file("make the folder", &bin))?;
    let query = ["-W", "-f", "${source:Upstream-Version}", package];
    let version = Command::new("dpkg-query").args(query).output();
    let version = version.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let version = format!("-DVERSION=\"{}\"", version.unwrap_or_default());
    let (output, source) = (format!("bin/{program}"), format!("{program}.cpp"));
    let library = format!("-l{library}");
    let options = ["-O3", "-std=c++17", "-Wall", "-Wextra", "-pthread", &version, "-o", &output];
    let arguments = [&options[..], &[&source, &library]].concat();
    build(&folder, "g++", &arguments, &format!("Install the packages g++ and {package}."))?;
    built(folder.join(output))
}

/// Installs the packages of the peers for Node.js, and returns the command that runs the program.
pub fn node(program: &str) -> Result<Vec<OsString>> {
    let project = crate::root().join("bench/peers/node");
    let arguments = ["ci", "--silent", "--no-audit", "--no-fund"];
    build(&project, "npm", &arguments, "Install the packages nodejs and npm.")?;
    Ok(vec!["node".into(), built(project.join(program))?.into_os_string()])
}

/// Runs a build. Its output goes to stderr, because a turn prints its records on stdout.
fn build(folder: &Path, program: &str, arguments: &[&str], packages: &str) -> Result<()> {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(folder).stdout(std::io::stderr());
    let name = describe(&command);
    let status = command.status().map_err(|error| {
        Error::command(&name, format!("cannot be started: {error}. {packages}"))
    })?;
    match status.success() {
        true => Ok(()),
        false => Err(Error::command(&name, format!("failed with {status}. {packages}"))),
    }
}

/// Returns the path, if the build created it.
fn built(path: PathBuf) -> Result<PathBuf> {
    let missing = || std::io::Error::other("the build did not make it");
    if path.exists() { Ok(path) } else { Err(Error::file("find", &path)(missing())) }
}

/// Returns a command line, without the directory of the program.
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
