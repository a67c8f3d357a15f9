//! Tests of the pending deltas when a receiver refuses requests, across restarts of the daemon, and
//! of the permissions of the file that contains them.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::common::{Home, wait_until};
use crate::otlp_output::{Receiver, Reply, Request, text};
use crate::outputs::import;

/// The receiver's count. A repeated request with the same bytes counts once.
#[derive(Default)]
struct Counted {
    bodies: Vec<Vec<u8>>,
    hits: f64,
}

impl Counted {
    fn count(&mut self, request: &Request) {
        if !self.bodies.contains(&request.body) {
            self.bodies.push(request.body.clone());
            self.hits += hits(request);
        }
    }
}

/// Returns the growth of the counter by a request.
fn hits(request: &Request) -> f64 {
    let points = request.points.iter().filter(|point| point.series.starts_with("hits_total"));
    points.map(|point| point.number).sum()
}

fn with_hits(requests: &[Request]) -> usize {
    requests.iter().filter(|request| hits(request) > 0.0).count()
}

/// Returns the settings of a daemon that sends deltas.
fn deltas<'a>(receiver: &'a Receiver, interval: &'a str) -> [&'a str; 6] {
    ["--otlp", &receiver.url, "--otlp-temporality", "delta", "--otlp-interval", interval]
}

#[test]
fn deltas_left_at_the_end_are_sent_after_refusals() {
    for (is_killed, status) in [(false, 404), (true, 401)] {
        let home = Home::new();
        let counted = Arc::new(Mutex::new((Counted::default(), Reply::Taken)));
        let current = Arc::clone(&counted);
        let receiver = Receiver::start(&home, move |_, request| {
            let (counted, reply) = &mut *current.lock().unwrap();
            if *reply == Reply::Taken {
                counted.count(request);
            }
            *reply
        });
        let reply = |reply| counted.lock().unwrap().1 = reply;
        let flags = deltas(&receiver, "100ms");
        let daemon = home.start(&flags);
        wait_until("a request", || receiver.see(<[Request]>::len) > 0);
        reply(Reply::Status(503, "", b""));
        import(&daemon, 5);
        wait_until("hits", || receiver.see(with_hits) > 0);
        if is_killed {
            daemon.kill()
        } else {
            daemon.stop()
        }
        reply(Reply::Status(status, "", b""));
        let before = receiver.see(<[Request]>::len);
        let daemon = home.start(&flags);
        wait_until("refusals", || receiver.see(<[Request]>::len) > before + 3);
        import(&daemon, 6);
        reply(Reply::Taken);
        wait_until("the total", || counted.lock().unwrap().0.hits == 6.0);
    }
}

#[test]
fn an_end_amid_refusals_keeps_the_requests_that_were_refused() {
    let home = Home::new();
    let counted = Arc::new(Mutex::new(Counted::default()));
    let is_well = Arc::new(AtomicBool::new(false));
    let (counts, well) = (Arc::clone(&counted), Arc::clone(&is_well));
    let receiver = Receiver::start(&home, move |before, request| {
        if well.load(Ordering::Relaxed) {
            counts.lock().unwrap().count(request);
            return Reply::Taken;
        }
        match before.len() {
            0 => Reply::Status(401, "", b""),
            _ => Reply::Status(503, "Retry-After: 3600\r\n", b""),
        }
    });
    // All deltas are sent when the daemon stops, in more than one request.
    let daemon = home.start(&deltas(&receiver, "1000h"));
    let lines = (0..2500).map(|n| format!("hits_total{{n=\"{n}\"}} 1\n"));
    text(&daemon, &format!("# TYPE hits_total counter\n{}", lines.collect::<String>()));
    daemon.stop();
    assert_eq!(receiver.see(with_hits), 2);
    is_well.store(true, Ordering::Relaxed);
    let _daemon = home.start(&deltas(&receiver, "100ms"));
    wait_until("the total", || counted.lock().unwrap().hits == 2500.0);
}

#[test]
fn a_request_that_may_have_arrived_is_repeated_unchanged_after_refusals() {
    let home = Home::new();
    let counted = Arc::new(Mutex::new(Counted::default()));
    let counts = Arc::clone(&counted);
    let receiver = Receiver::start(&home, move |before, request| {
        let at = if hits(request) > 0.0 { with_hits(before) } else { usize::MAX };
        if at == 1 {
            return Reply::Status(401, "", b"");
        }
        counts.lock().unwrap().count(request);
        // The receiver counts the request, but the daemon does not learn this.
        if at == 0 { Reply::Cut } else { Reply::Taken }
    });
    let daemon = home.start(&deltas(&receiver, "100ms"));
    import(&daemon, 5);
    wait_until("three requests", || receiver.see(with_hits) > 2);
    import(&daemon, 7);
    wait_until("the total", || counted.lock().unwrap().hits == 7.0);
}

#[test]
fn only_the_daemon_reads_the_deltas_that_are_left() {
    let home = Home::new();
    let receiver = Receiver::start(&home, |_, _| Reply::Taken);
    let flags = deltas(&receiver, "100ms");
    let daemon = home.start(&flags);
    wait_until("a request", || receiver.see(<[Request]>::len) > 0);
    daemon.stop();
    let file = owed(&home);
    let (number, other) = (file_number(&file), home.path("other"));
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o600);
    // A symbolic link in place of the next version is replaced, not followed.
    fs::write(&other, "precious").unwrap();
    symlink(&other, file.with_file_name(format!("{:016x}.new", number + 1))).unwrap();
    let daemon = home.start(&flags);
    import(&daemon, 5);
    wait_until("hits", || receiver.see(with_hits) > 0);
    assert_eq!(fs::read_to_string(&other).unwrap(), "precious");
    daemon.stop();
    // A symbolic link to a readable file is not followed either.
    let file = owed(&home);
    fs::rename(&file, &other).unwrap();
    symlink(&other, &file).unwrap();
    let daemon = home.start(&flags);
    daemon.wait_for("cannot read up to where a receiver has what was added");
    // A symbolic link to a folder is not followed either.
    let home = Home::new();
    fs::create_dir(home.path("elsewhere")).unwrap();
    symlink(home.path("elsewhere"), home.path("state.quipu.otlp")).unwrap();
    home.expect_refusal(&flags, 1, &["it is a symbolic link", "give another --state"]);
}

/// Returns the last file with the pending requests of a receiver.
pub(crate) fn owed(home: &Home) -> PathBuf {
    let folder = fs::read_dir(home.path("state.quipu.otlp")).unwrap().next().unwrap().unwrap();
    let files = fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().path());
    files.filter(|file| file.extension().is_some_and(|end| end == "queue")).max().unwrap()
}

fn file_number(file: &Path) -> u64 {
    u64::from_str_radix(file.file_stem().unwrap().to_str().unwrap(), 16).unwrap()
}
