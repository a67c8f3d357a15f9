//! Files as input and output: existing files are kept, and only complete output gets its name.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use quipu_wire::Kind;
use tempfile::TempDir;

use super::support::{Run, messages, run, tsv};

struct Place {
    directory: TempDir,
}

impl Place {
    fn new() -> Place {
        Place { directory: TempDir::new().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        fs::write(self.path(name), text).unwrap();
        self.path(name)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.directory.path()).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn convert(input: &Path, output: &Path, more: &[&str]) -> Run {
    let (input, output) = (input.to_str().unwrap(), output.to_str().unwrap());
    let arguments =
        ["messages", "convert", "--from", "tsv", "--to", "tsv", input, "--output", output];
    run(&[&arguments[..], more].concat(), b"")
}

fn text() -> String {
    tsv(&messages(Kind::MetricUnion))
}

#[test]
fn a_file_is_converted_into_a_file() {
    let place = Place::new();
    let input = place.write("in", &text());
    convert(&input, &place.path("out"), &[]).success();
    assert_eq!(place.read("out"), text());
    assert_eq!(place.names(), ["in", "out"]);
}

#[test]
fn an_existing_file_is_replaced_only_by_force() {
    let place = Place::new();
    let input = place.write("in", &text());
    let output = place.write("out", "precious");
    fs::set_permissions(&output, fs::Permissions::from_mode(0o640)).unwrap();
    symlink("out", place.path("link")).unwrap();
    for name in ["out", "link"] {
        convert(&input, &place.path(name), &[]).expect_error(&["exists already", "--force"]);
        assert_eq!(place.read("out"), "precious");
    }
    convert(&input, &place.path("link"), &["--force"]).success();
    assert_eq!(place.read("out"), text());
    assert_eq!(fs::metadata(&output).unwrap().permissions().mode() & 0o777, 0o640);
    assert!(place.path("link").is_symlink());
    assert_eq!(place.names(), ["in", "link", "out"]);
}

#[test]
fn a_file_is_not_converted_into_itself() {
    let place = Place::new();
    let input = place.write("in", &text().replace('\n', "\r\n"));
    convert(&input, &input, &["--force"]).success();
    assert_eq!(place.read("in"), text());
    assert_eq!(place.names(), ["in"]);
}

#[test]
fn an_incomplete_file_keeps_its_temporary_name() {
    let place = Place::new();
    let input = place.write("in", &(text() + "Counter\tx"));
    let output = place.write("out", "precious");
    let run = convert(&input, &output, &["--force"]);
    run.expect_error(&["in: tsv: at byte ", "4 messages were converted, into ", "out.part"]);
    assert_eq!((place.read("out"), place.read("out.part")), ("precious".into(), text()));

    // A second attempt must not overwrite it either.
    fs::remove_file(&output).unwrap();
    convert(&input, &output, &[]).expect_error(&["out.part exists already", "--force"]);
    place.write("in", &text());
    convert(&input, &output, &["--force"]).success();
    assert_eq!(place.names(), ["in", "out"]);
}

#[test]
fn an_empty_output_leaves_no_file() {
    let place = Place::new();
    let input = place.write("in", "Counter\tx");
    let run = convert(&input, &place.path("out"), &[]);
    run.expect_error(&["; 0 messages were converted\n"]);
    assert_eq!(place.names(), ["in"]);
}

#[test]
fn the_unfinished_file_is_not_the_input() {
    let place = Place::new();
    let input = place.write("out.part", &text());
    convert(&input, &place.path("out"), &["--force"]).expect_error(&["is the input file"]);
    assert_eq!(place.read("out.part"), text());
}

#[test]
fn skipped_messages_do_not_make_a_file_unfinished() {
    let place = Place::new();
    let (input, output) = (place.path("in"), place.path("out"));
    // The second message is invalid.
    fs::write(&input, [&[2, 0x10, 1][..], &[1, 0xff], &[2, 0x10, 2]].concat()).unwrap();
    let (input, output) = (input.to_str().unwrap(), output.to_str().unwrap());
    let arguments =
        ["messages", "convert", "--from", "protobuf", "--to", "tsv", "--message", "counter"];
    let run = run(&[&arguments[..], &["--keep-going", input, "-o", output]].concat(), b"");
    run.expect_error(&["1 message was skipped", "2 messages were converted"]);
    assert_eq!(place.read("out"), "Counter\t-\t\t1\t-\t-\nCounter\t-\t\t2\t-\t-\n");
}

#[test]
fn a_device_is_not_replaced_by_a_file() {
    let place = Place::new();
    let input = place.write("in", &text());
    convert(&input, Path::new("/dev/null"), &[]).success();
    let run = convert(&input, Path::new("/dev/full"), &["--force"]);
    run.expect_error(&["/dev/full: No space left on device"]);
}

#[test]
fn errors_name_files_that_cannot_be_opened() {
    let place = Place::new();
    let input = place.write("in", &text());
    convert(&place.path("none"), &place.path("out"), &[]).expect_error(&["none: No such file"]);
    convert(&input, &place.path("no/out"), &[]).expect_error(&["no/out: No such file"]);
    convert(place.directory.path(), &place.path("out"), &[]).expect_error(&["Is a directory"]);
    assert_eq!(place.names(), ["in"]);
}
