//! Tests of metrics in the files of other programs. These are real segment files, written by the
//! command line and by other daemons. They appear and vanish, their programs are killed, and they
//! are damaged and truncated.

use std::collections::HashSet;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::time::SystemTime;

use quipu_store::files::FileStore;
use quipu_store::{Kind, Spec, Store};

use crate::common::{Daemon, Home, Response, wait_until};

/// Counts in a file by the command line.
pub(super) fn count(home: &Home, command: &str, file: &str, series: &str, n: &str) {
    let mut quipu = home.command();
    quipu.args([command, "--file", file, series, n]);
    let ended = home.finish(quipu);
    assert_eq!(ended.status.code(), Some(0), "{}", ended.stderr);
}

fn exposition(daemon: &Daemon) -> String {
    daemon.get("/metrics").text()
}

/// Returns whether the exposition contains this line.
pub(super) fn has(daemon: &Daemon, line: &str) -> bool {
    exposition(daemon).lines().any(|other| other == line)
}

#[track_caller]
pub(super) fn wait_for(daemon: &Daemon, line: &str) {
    wait_until(line, || has(daemon, line));
}

fn with(daemon: &Daemon, accept: &str) -> Response {
    let mut client = daemon.connect();
    let head = format!("GET /metrics HTTP/1.1\r\nHost: quipu\r\nAccept: {accept}\r\n\r\n");
    client.send(head).unwrap();
    client.read_response().unwrap()
}

#[test]
fn files_are_shown_while_they_are_there() {
    let home = Home::new();
    let labels = "run/{app}-*.quipu";
    let daemon = home.start(&["--segments", "run", "--segments-labels", labels]);
    assert_eq!(daemon.sample("quipu_segments_watched{state=\"shown\"}"), 0.0);
    // The directory can appear later, too.
    fs::create_dir(home.path("run")).unwrap();
    count(&home, "inc", "run/web-1.quipu", "jobs_total{queue=\"a\"}", "1");
    wait_for(&daemon, "jobs_total{segment=\"web-1\",app=\"web\",queue=\"a\"} 1");
    // A scrape reads the files after the scrape has begun.
    for n in 2..5 {
        count(&home, "inc", "run/web-1.quipu", "jobs_total{queue=\"a\"}", "1");
        let line = format!("jobs_total{{segment=\"web-1\",app=\"web\",queue=\"a\"}} {n}");
        assert!(has(&daemon, &line), "{line}");
    }
    fs::create_dir(home.path("run/mail")).unwrap();
    count(&home, "inc", "run/mail/x.quipu", "jobs_total{queue=\"b\"}", "7");
    wait_for(&daemon, "jobs_total{segment=\"mail/x\",queue=\"b\"} 7");
    let text = exposition(&daemon);
    assert_eq!(text.matches("# TYPE jobs_total counter").count(), 1, "{text}");
    assert_eq!(daemon.sample("quipu_segments_open{segment=\"mail/x\"}"), 0.0);
    assert!(text.contains("quipu_segments_info{segment=\"mail/x\",path=\"run/mail/x.quipu\""));
    // Check other formats, and the end of an exposition.
    let open = with(&daemon, "application/openmetrics-text;version=1.0.0").text();
    assert!(open.contains("jobs_total{segment=\"mail/x\",queue=\"b\"} 7"), "{open}");
    assert!(open.ends_with("# EOF\n") && open.matches("# EOF").count() == 1, "{open}");
    let protobuf = with(
        &daemon,
        "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited",
    );
    let has_text = |text: &[u8]| protobuf.body.windows(text.len()).any(|bytes| bytes == text);
    assert!(has_text(b"jobs_total") && has_text(b"mail/x") && has_text(b"quipu_keys"));
    // A removed file is no longer shown, and neither is another file in its place.
    fs::remove_file(home.path("run/web-1.quipu")).unwrap();
    wait_until("a file is gone", || !exposition(&daemon).contains("web-1"));
    assert!(has(&daemon, "jobs_total{segment=\"mail/x\",queue=\"b\"} 7"));
    count(&home, "inc", "other.quipu", "jobs_total{queue=\"c\"}", "9");
    fs::rename(home.path("other.quipu"), home.path("run/mail/x.quipu")).unwrap();
    wait_for(&daemon, "jobs_total{segment=\"mail/x\",queue=\"c\"} 9");
    assert!(!exposition(&daemon).contains("queue=\"b\""));
    daemon.stop();
}

#[test]
fn the_last_values_of_a_killed_process_are_shown() {
    let home = Home::new();
    fs::create_dir(home.path("run")).unwrap();
    let daemon = home.start(&["--segments", "run/*.quipu", "--segments-keep", "1h"]);
    let other = home.start(&["--state", "run/other.quipu"]);
    let body = b"# TYPE sent_total counter\nsent_total{to=\"a\"} 5\n";
    assert_eq!(other.post_body("/api/v1/import/prometheus", &[], body).status, 204);
    wait_for(&daemon, "sent_total{segment=\"other\",to=\"a\"} 5");
    assert_eq!(daemon.sample("quipu_segments_open{segment=\"other\"}"), 1.0);
    other.kill();
    assert_eq!(daemon.sample("quipu_segments_open{segment=\"other\"}"), 0.0);
    assert!(has(&daemon, "sent_total{segment=\"other\",to=\"a\"} 5"));
    // The counts stay visible after the file is removed, as long as the settings allow.
    fs::remove_file(home.path("run/other.quipu")).unwrap();
    daemon.wait_for("a watched file is gone");
    assert!(has(&daemon, "sent_total{segment=\"other\",to=\"a\"} 5"));
    daemon.stop();
    let daemon = home.start(&["--segments", "run", "--segments-keep", "1ms"]);
    count(&home, "inc", "run/x.quipu", "jobs_total", "1");
    wait_for(&daemon, "quipu_segments_watched{state=\"expired\"} 1");
    assert!(!exposition(&daemon).contains("jobs_total"));
}

#[test]
fn a_damaged_file_hides_no_other() {
    let home = Home::new();
    fs::create_dir(home.path("run")).unwrap();
    let series: Vec<String> = (0..200).map(|n| format!("jobs_total{{n=\"{n}\"}}")).collect();
    for one in &series[..20] {
        count(&home, "inc", "run/good.quipu", one, "1");
    }
    let whole = fs::read(home.path("run/good.quipu")).unwrap();
    let write = |name: &str, bytes: &[u8]| {
        // We write to another name first, because a half-written file may be read.
        fs::write(home.path("new"), bytes).unwrap();
        fs::rename(home.path("new"), home.path("run").join(name)).unwrap();
    };
    let daemon = home.start(&["--segments", "run", "--segments-bytes", "4000000"]);
    write("empty.quipu", b"");
    write("short.quipu", &whole[..700]);
    write("other.quipu", b"something else");
    let mut damaged = whole.clone();
    damaged[600..].fill(0xa5);
    write("damaged.quipu", &damaged);
    let mut huge = whole.clone();
    // Change the cursor, which is not protected by a checksum, and the size.
    for at in [64, 72] {
        huge[at..at + 8].copy_from_slice(&(256_u64 << 20).to_le_bytes());
    }
    write("huge.quipu", &huge);
    write("in_use.quipu", &whole);
    write("late.quipu", &whole);
    let good = |name: &str| format!("jobs_total{{segment=\"{name}\",n=\"19\"}} 1");
    // This file was written last. The look that finds it finds all files, but an earlier look may
    // have found the four unreadable ones.
    wait_for(&daemon, &good("late"));
    wait_for(&daemon, "quipu_segments_watched{state=\"unreadable\"} 4");
    for name in ["good", "in_use", "late"] {
        assert!(has(&daemon, &good(name)), "{}", exposition(&daemon));
    }
    // A file that is truncated while it is watched.
    File::options().write(true).open(home.path("run/in_use.quipu")).unwrap().set_len(300).unwrap();
    assert!(!has(&daemon, &good("in_use")) && has(&daemon, &good("late")));
    assert_eq!(daemon.sample("quipu_segments_watched{state=\"unreadable\"}"), 5.0);
    // Each fault is logged only once.
    let faults = || daemon.log().iter().filter(|line| line.contains("is omitted")).count();
    assert_eq!(faults(), 5, "{:#?}", daemon.log());
    exposition(&daemon);
    assert_eq!(faults(), 5);
    assert!(daemon.sample("quipu_segments_read_failures_total") >= 5.0);
    write("in_use.quipu", &whole);
    wait_for(&daemon, &good("in_use"));
    daemon.stop();
}

/// A file cannot use up the budget of the others by claiming a large size.
#[test]
fn a_sparse_file_takes_no_room_of_others() {
    let home = Home::new();
    fs::create_dir(home.path("run")).unwrap();
    for name in ["good", "late"] {
        count(&home, "inc", &format!("run/{name}.quipu"), "jobs_total", "1");
    }
    // These files are found first. They take little space on the disk, but claim to use nearly all
    // bytes that may be read, or more.
    let mut holes = fs::read(home.path("run/good.quipu")).unwrap();
    let used = 3_998_016_u64;
    for (name, used) in [("a", used), ("b", used), ("c", used), ("d", 2 << 30)] {
        for at in [64, 72] {
            holes[at..at + 8].copy_from_slice(&used.to_le_bytes());
        }
        let path = home.path("run").join(name).with_extension("quipu");
        fs::write(&path, &holes).unwrap();
        File::options().write(true).open(path).unwrap().set_len(used).unwrap();
    }
    let daemon = home.start(&["--segments", "run", "--segments-bytes", "4000000"]);
    for name in ["good", "late"] {
        wait_for(&daemon, &format!("jobs_total{{segment=\"{name}\"}} 1"));
    }
    let fault = "it has more bytes in use than --segments-bytes";
    wait_until(fault, || daemon.log().iter().any(|line| line.contains(fault)));
}

/// A scan that could not read a directory must not count the files in it as removed.
#[test]
fn files_stay_when_a_look_is_incomplete() {
    let home = Home::new();
    fs::create_dir(home.path("run")).unwrap();
    count(&home, "inc", "run/a.quipu", "jobs_total", "1");
    let daemon = home.start(&["--segments", "run"]);
    wait_for(&daemon, "jobs_total{segment=\"a\"} 1");
    let mut client = daemon.connect();
    client.request("GET", "/-/healthy").unwrap();
    // One more descriptor is enough for a reading, but not for listing a directory.
    let used = fs::read_dir(format!("/proc/{}/fd", daemon.id())).unwrap();
    let used = used.map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap());
    let used: HashSet<u64> = used.collect();
    let free = (0..).find(|number| !used.contains(number)).unwrap();
    daemon.limit_files(free + 1);
    count(&home, "inc", "run/b.quipu", "jobs_total", "2");
    daemon.wait_for("not all watched places could be looked at");
    let text = client.request("GET", "/metrics").unwrap().text();
    assert!(text.contains("\njobs_total{segment=\"a\"} 1\n"), "{text}");
    assert!(!text.contains("quipu_segments_looks_total{result=\"incomplete\"} 0"), "{text}");
    // A removed file is still noticed.
    fs::remove_file(home.path("run/a.quipu")).unwrap();
    daemon.wait_for("a watched file is gone");
    daemon.limit_files(100);
    wait_for(&daemon, "jobs_total{segment=\"b\"} 2");
    daemon.wait_for("all watched places can be looked at again");
    assert!(!exposition(&daemon).contains("segment=\"a\""));
    daemon.stop();
}

/// The last values of removed files are the first to be dropped at the limit on files.
#[test]
fn files_that_are_gone_make_room_for_others() {
    let home = Home::new();
    fs::create_dir(home.path("run")).unwrap();
    for name in ["a", "b"] {
        count(&home, "inc", &format!("run/{name}.quipu"), "jobs_total", "1");
    }
    let flags = ["--segments", "run", "--segments-count", "2", "--segments-keep", "1h"];
    let daemon = home.start(&flags);
    wait_for(&daemon, "jobs_total{segment=\"a\"} 1");
    fs::remove_file(home.path("run/a.quipu")).unwrap();
    daemon.wait_for("a watched file is gone");
    // The last values are shown until another file needs the place.
    assert!(has(&daemon, "jobs_total{segment=\"a\"} 1"));
    count(&home, "inc", "run/c.quipu", "jobs_total", "1");
    wait_for(&daemon, "jobs_total{segment=\"c\"} 1");
    assert!(has(&daemon, "jobs_total{segment=\"b\"} 1"));
    assert_eq!(daemon.sample("quipu_segments_left_out"), 0.0);
    assert!(!exposition(&daemon).contains("segment=\"a\""));
    daemon.stop();
}

/// A configured path can be created after the daemon has started.
#[test]
fn a_place_that_is_not_there_yet_is_no_warning() {
    let home = Home::new();
    let missing = home.path("run");
    let daemon = home.start(&["--segments", missing.to_str().unwrap(), "--segments", "~/x"]);
    let line = daemon.wait_for("a path does not exist yet; checking every 5s");
    assert_eq!(line["level"], "INFO");
    let line = daemon.wait_for("--segments: ~/x begins with ~, which only a shell expands");
    assert_eq!(line["level"], "WARN");
    fs::create_dir(&missing).unwrap();
    count(&home, "inc", "run/a.quipu", "jobs_total", "1");
    wait_for(&daemon, "jobs_total{segment=\"a\"} 1");
    daemon.stop();
}

/// Another user must not be able to show files through a symbolic link in a watched directory.
#[test]
fn links_that_others_made_are_not_followed() {
    let home = Home::new();
    fs::create_dir(home.path("run")).unwrap();
    count(&home, "inc", "secret.quipu", "secret_total", "1");
    count(&home, "inc", "run/a.quipu", "jobs_total", "1");
    symlink("../secret.quipu", home.path("run/link.quipu")).unwrap();
    let daemon = home.start(&["--segments", "run/*.quipu"]);
    wait_for(&daemon, "jobs_total{segment=\"a\"} 1");
    assert!(!exposition(&daemon).contains("secret_total"));
    daemon.wait_for("a place cannot be watched");
    // If a file becomes a symbolic link, it counts as removed.
    fs::remove_file(home.path("run/a.quipu")).unwrap();
    symlink("../secret.quipu", home.path("run/a.quipu")).unwrap();
    wait_until("the file is gone", || !exposition(&daemon).contains("segment=\"a\""));
    assert!(!exposition(&daemon).contains("secret_total"));
    daemon.stop();
    // A symbolic link that the settings name is followed.
    let daemon = home.start(&["--segments", "run/link.quipu"]);
    wait_for(&daemon, "secret_total{segment=\"link\"} 1");
}

/// Files with conflicting families are shown as far as possible, and each conflict is counted.
#[test]
fn contradictions_are_kept_apart_and_counted() {
    let home = Home::new();
    fs::create_dir(home.path("run")).unwrap();
    count(&home, "inc", "run/a.quipu", "size_total", "3");
    let daemon = home.start(&["--segments", "run"]);
    wait_for(&daemon, "size_total{segment=\"a\"} 3");
    count(&home, "set", "run/b.quipu", "size", "4");
    count(&home, "set", "run/b.quipu", "sent", "6");
    count(&home, "set", "run/b.quipu", "free", "5");
    wait_for(&daemon, "free{segment=\"b\"} 5");
    // The counter `size` belongs to the first file.
    let text = exposition(&daemon);
    assert!(!text.contains("size{") && text.contains("size_total{segment=\"a\"} 3"), "{text}");
    assert_eq!(daemon.sample("quipu_segments_conflicts{about=\"type\"}"), 1.0);
    let event = daemon.wait_for("conflicting metric types");
    let of = ["name", "about", "first", "second"].map(|field| event[field].as_str().unwrap());
    assert_eq!(of, ["size", "type", "a", "b"]);
    let result = event["result"].as_str().unwrap();
    assert!(result.starts_with("that of the second is omitted; /metrics?segment="), "{event}");
    // Received metrics are shown together with the metrics of files.
    let body = b"# TYPE sent gauge\nsent 1\n";
    assert_eq!(daemon.post_body("/api/v1/import/prometheus", &[], body).status, 204);
    let text = exposition(&daemon);
    assert!(text.contains("# TYPE sent gauge\nsent 1\nsent{segment=\"b\"} 6\n"), "{text}");
    // If the daemon contains a series itself, the same series of a file is not shown. This includes
    // the daemon's own metrics about a file.
    count(&home, "set", "run/b.quipu", "quipu_segments_up", "7");
    count(&home, "set", "run/b.quipu", "quipu_keys", "8");
    wait_for(&daemon, "quipu_keys{segment=\"b\"} 8");
    wait_for(&daemon, "quipu_segments_conflicts{about=\"series\"} 1");
    assert_eq!(daemon.sample("quipu_segments_up{segment=\"b\"}"), 1.0);
    assert_eq!(daemon.sample("quipu_keys"), 0.0);
    daemon.wait_for("a series has the name and labels of another one");
    // A file's family is not shown if the daemon's family of that name is of another type.
    let body = b"# TYPE free summary\nfree_sum 1\nfree_count 1\n";
    assert_eq!(daemon.post_body("/api/v1/import/prometheus", &[], body).status, 204);
    let text = exposition(&daemon);
    assert!(text.contains("\nfree_sum 1\n") && !text.contains("free{"), "{text}");
    assert_eq!(daemon.sample("quipu_segments_conflicts{about=\"type\"}"), 2.0);
    // You can still see all series of a source if you ask only for this source.
    let text = daemon.get("/metrics?segment=b").text();
    let values = text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>();
    let all = [
        "free{segment=\"b\"} 5",
        "quipu_keys{segment=\"b\"} 8",
        "quipu_segments_up{segment=\"b\"} 7",
        "sent{segment=\"b\"} 6",
        "size{segment=\"b\"} 4",
    ];
    assert_eq!(values, all);
    let text = daemon.get("/metrics?segment=b&name[]=free").text();
    assert!(text.ends_with("free{segment=\"b\"} 5\n") && text.lines().count() == 2, "{text}");
    let text = daemon.get("/metrics?name%5B%5D=size_total&name[]=quipu_keys&name[]=sent").text();
    let names = text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>();
    let all = [
        "sent 1",
        "sent{segment=\"b\"} 6",
        "quipu_keys 0",
        "quipu_keys{segment=\"b\"} 8",
        "size_total{segment=\"a\"} 3",
    ];
    assert_eq!(names, all);
    daemon.get("/metrics?segment=none").expect_refusal(404, "no watched segment is called none");
    daemon.stop();
    let daemon = home.start(&[]);
    daemon.get("/metrics?segment=a").expect_refusal(404, "--segments");
}

#[test]
fn there_are_no_more_files_than_the_settings_allow() {
    let home = Home::new();
    fs::create_dir(home.path("run")).unwrap();
    for name in ["a", "b", "c"] {
        count(&home, "inc", &format!("run/{name}.quipu"), "jobs_total", "1");
    }
    let daemon = home.start(&["--segments", "run", "--segments-count", "2"]);
    wait_for(&daemon, "quipu_segments_left_out 1");
    assert_eq!(exposition(&daemon).matches("\njobs_total{").count(), 2);
    fs::remove_file(home.path("run/a.quipu")).unwrap();
    wait_for(&daemon, "jobs_total{segment=\"c\"} 1");
    daemon.stop();
    // The daemon's own state is not a source.
    let daemon = home.start(&["--segments", ".", "--segments-bytes", "500"]);
    wait_for(&daemon, "quipu_segments_watched{state=\"unreadable\"} 2");
    assert!(!exposition(&daemon).contains("segment=\"state\""));
    for (value, part) in [
        (["--segments", "run/[a"], "cannot use --segments"),
        (["--segments", "run/**/a.quipu"], "write a * for each directory"),
        (["--segments-labels", "run/{app"], "a brace is not closed"),
        (["--segments-count", "0"], "cannot use --segments-count"),
    ] {
        home.expect_refusal(&value, 2, &[part]);
    }
}

#[test]
fn files_of_several_processes_are_shown_next_to_segments() {
    let home = Home::new();
    fs::create_dir_all(home.path("run/ruby")).unwrap();
    let store = FileStore::open(home.path("run/ruby")).unwrap();
    let jobs = store.metric(&Spec::new("jobs", Kind::Counter).labels(["queue"])).unwrap();
    jobs.add(&["a"], 2.0);
    count(&home, "inc", "run/web.quipu", "hits_total", "1");
    let daemon = home.start(&["--segments", "run"]);
    wait_for(&daemon, "hits_total{segment=\"web\"} 1");
    let shown = |n: u64| format!("jobs{{segment=\"ruby\",queue=\"a\"}} {n}");
    assert!(has(&daemon, &shown(2)), "{}", exposition(&daemon));
    jobs.add(&["a"], 1.0);
    assert!(has(&daemon, &shown(3)));
    daemon.stop();
}

#[test]
fn a_directory_alone_is_shown() {
    let home = Home::new();
    fs::create_dir_all(home.path("run/web,1")).unwrap();
    fs::create_dir(home.path("run/none")).unwrap();
    count(&home, "inc", "run/web,1/a.quipu", "hits_total", "1");
    count(&home, "inc", "run/mail.quipu", "hits_total", "2");
    // A path can contain a comma.
    let daemon = home.start(&["--segments", "run/web,1", "--segments", "run"]);
    wait_for(&daemon, "hits_total{segment=\"a\"} 1");
    let values = |target: &str| {
        let text = daemon.get(target).text();
        text.lines().filter(|line| !line.starts_with('#')).map(String::from).collect::<Vec<_>>()
    };
    let inside = ["hits_total{segment=\"a\"} 1"];
    assert_eq!(values("/metrics?directory=run/web,1"), inside);
    assert_eq!(values("/metrics?directory=run&segment=a"), inside);
    let absolute = home.path("run/web,1/").display().to_string();
    assert_eq!(values(&format!("/metrics?directory={absolute}")), inside);
    assert_eq!(values("/metrics?directory=run").len(), 2);
    assert_eq!(values("/metrics?directory=run&name[]=other").len(), 0);
    // A watched directory may be empty, but a directory that is not watched is a mistake.
    assert_eq!(values("/metrics?directory=run/none").len(), 0);
    let refusal = "no watched segment is in ";
    daemon.get("/metrics?directory=run/we").expect_refusal(404, refusal);
    daemon.get("/metrics?directory=").expect_refusal(400, "the directory is empty");
    daemon.stop();
    let daemon = home.start(&[]);
    daemon.get("/metrics?directory=run").expect_refusal(404, "--segments");
}

#[test]
fn each_file_has_the_time_of_its_last_reading() {
    let home = Home::new();
    fs::create_dir(home.path("run")).unwrap();
    count(&home, "inc", "run/a.quipu", "hits_total", "1");
    let daemon = home.start(&["--segments", "run"]);
    wait_for(&daemon, "quipu_segments_up{segment=\"a\"} 1");
    let time = || daemon.sample("quipu_segments_last_read_time_seconds{segment=\"a\"}");
    let before = time();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64();
    assert!((now - 3600.0..=now).contains(&before), "{before} is long before {now}");
    assert!(time() > before);
    // If a file becomes unreadable, the time of its last successful reading is kept.
    File::options().write(true).open(home.path("run/a.quipu")).unwrap().set_len(300).unwrap();
    wait_for(&daemon, "quipu_segments_up{segment=\"a\"} 0");
    let last = time();
    assert!(!exposition(&daemon).contains("\nhits_total"));
    assert_eq!(time(), last);
}
