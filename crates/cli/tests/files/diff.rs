//! Tests of `quipu diff` on two expositions, two segments, two moments of one segment, and a
//! server.

use std::fs;
use std::process::Command;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use super::Home;
use super::inspect::Holder;

#[test]
fn expositions_are_compared() {
    let home = Home::new();
    let write = |name: &str, text: &str| fs::write(home.directory().join(name), text).unwrap();
    write("a", "# TYPE hits counter\nhits{p=\"1\"} 10\nhits{p=\"2\"} 5\n# TYPE old gauge\nold 1\n");
    write(
        "b",
        "# TYPE hits counter\nhits{p=\"1\"} 70\nhits{p=\"2\"} 5\n# TYPE new gauge\nnew NaN\n",
    );
    let text = home.succeed(&["diff", "a", "b", "--over", "1m"]);
    let expected = "  hits  counter, 1 series  +60, 1.000/s\n\
                    \x20     hits{p=\"1\"}  10 -> 70  +60, 1.000/s\n\
                    + new  gauge, 1 series\n    + new  NaN\n\
                    - old  gauge, 1 series\n    - old  1\n\
                    families: 1 new, 1 gone, 1 changed, 0 the same\n\
                    series: 1 new, 1 gone, 1 changed, 1 the same\n";
    assert_eq!(text, expected);
    let json = home.succeed(&["diff", "--format", "json", "a", "b"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&json["seconds"], &json["same"]["series"]), (&Value::Null, &1.into()));
    let hits = &json["families"][0];
    assert_eq!((&hits["change"], &hits["growth"]), (&"changed".into(), &60.0.into()));
    assert_eq!(hits["series"][0]["labels"]["p"], "1");
    assert_eq!(json["families"][1]["series"][0]["after"], "NaN");
    home.refuse(&["diff", "a", "none"], 1, &["none: No such file"]);
    home.refuse(&["diff", "--exit-code", "a", "none"], 2, &["none: No such file"]);
    home.refuse(&["diff", "a"], 2, &["<B>"]);
    home.refuse(&["diff", "a", "b", "--after", "1s"], 2, &["cannot be used with"]);
}

#[test]
fn the_rest_of_a_damaged_file_is_compared_and_the_exit_code_reports_it() {
    let home = Home::new();
    let path = |name: &str| home.directory().join(name);
    for name in ["first", "second"] {
        home.succeed(&["inc", "--file", "good.quipu", name]);
    }
    let mut bytes = fs::read(path("good.quipu")).unwrap();
    let at = bytes.windows(6).position(|bytes| bytes == b"second").unwrap();
    bytes[at] = b'S';
    fs::write(path("bad.quipu"), bytes).unwrap();
    fs::write(path("good.prom"), "a 1\nb 2\n").unwrap();
    fs::write(path("bad.prom"), "a 1\nb{ 2\n").unwrap();
    for (arguments, error) in [
        (["bad.quipu", "good.quipu"], "bad.quipu: damaged at byte "),
        (["good.quipu", "bad.quipu"], "bad.quipu: damaged at byte "),
        (["bad.prom", "good.prom"], "bad.prom: text: line 2"),
    ] {
        for format in ["text", "json"] {
            let arguments = [&["diff", "--format", format][..], &arguments].concat();
            let output = home.quipu(&arguments).output().unwrap();
            let errors = String::from_utf8(output.stderr).unwrap();
            assert!(errors.starts_with(&format!("quipu: {error}")), "{errors}");
            assert_eq!(errors.lines().count(), 1, "{errors}");
            assert_eq!(output.status.code(), Some(3), "{arguments:?}");
            let text = String::from_utf8(output.stdout).unwrap();
            assert!(text.contains("second") || text.contains('b'), "{text}");
        }
    }
    // If both sides are the same file, its fault is reported once.
    let output = home.quipu(&["diff", "bad.quipu", "--after", "10ms"]).output().unwrap();
    assert_eq!(String::from_utf8(output.stderr).unwrap().lines().count(), 1);
    assert_eq!(output.status.code(), Some(3));
}

#[test]
fn a_segment_is_compared_with_a_copy_and_with_itself() {
    let home = Home::new();
    home.succeed(&["inc", "jobs_total{queue=\"mail\"}", "3"]);
    fs::copy(home.file(), home.directory().join("copy")).unwrap();
    home.succeed(&["inc", "jobs_total{queue=\"mail\"}", "4"]);
    home.succeed(&["observe", "rows", "3"]);
    let text = home.succeed(&["diff", "copy", "app.quipu"]);
    assert!(text.contains("jobs_total{queue=\"mail\"}  3 -> 7  +4\n"), "{text}");
    assert!(text.contains("+ rows  histogram, 1 series\n    + rows  count 1 sum 3\n"), "{text}");
    // A server exposes the contents of its file.
    let holder = Holder::start(&home);
    let text =
        home.succeed(&["diff", &format!("http://{}/metrics", holder.address()), "app.quipu"]);
    assert!(!text.contains("jobs_total") && !text.contains("rows"), "{text}");
    // Another process counts while the command waits.
    let mut command: Command = home.quipu(&["diff", "app.quipu", "--after", "2s"]);
    let child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| child.wait_with_output().unwrap());
        while !waiting.is_finished() {
            home.succeed(&["inc", "jobs_total{queue=\"mail\"}"]);
            thread::sleep(Duration::from_millis(20));
        }
        let text = String::from_utf8(waiting.join().unwrap().stdout).unwrap();
        assert!(
            text.contains("  jobs_total  counter, 1 series  +") && text.contains("/s\n"),
            "{text}"
        );
    });
}
