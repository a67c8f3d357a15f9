//! Tests of the additional header fields for outputs and scrapes. The servers here record the head
//! of each request.

use std::collections::HashMap;
use std::fs;
use std::io::{BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;

use crate::common::{Daemon, Home, Received, wait_until};
use crate::scraping::Exporter;

/// The header fields of a request, with names in lower case.
type Fields = HashMap<String, String>;

/// A server that accepts everything.
struct Receiver {
    url: String,
    requests: Arc<Mutex<Vec<Fields>>>,
}

impl Receiver {
    fn start(home: &Home) -> Receiver {
        let listener = TcpListener::bind((home.host(), 0)).unwrap();
        let url = format!("http://{}/v1/metrics", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&requests);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let kept = Arc::clone(&kept);
                thread::spawn(move || serve(stream.unwrap(), &kept));
            }
        });
        Receiver { url, requests }
    }

    /// Waits for a request whose fields have these values.
    #[track_caller]
    fn expect(&self, fields: &[(&str, &str)]) {
        let has = |request: &Fields| {
            fields.iter().all(|(name, value)| request.get(*name).is_some_and(|it| it == value))
        };
        wait_until(&format!("{fields:?}"), || self.requests.lock().unwrap().iter().any(has));
    }
}

/// Serves a connection until it ends.
fn serve(mut stream: TcpStream, kept: &Mutex<Vec<Fields>>) {
    let mut input = BufReader::new(stream.try_clone().unwrap());
    while let Some(request) = Received::read(&mut input) {
        kept.lock().unwrap().push(request.fields);
        // Ignore the error, because the daemon may be gone.
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    }
}

/// Replaces a file as a whole, because the daemon may read it at any time.
fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(new, path).unwrap();
}

/// Expects that the daemon neither shows nor logs this string.
#[track_caller]
fn expect_hidden(daemon: &Daemon, text: &str) {
    for page in ["/metrics", "/api/v1/status"] {
        let shown = daemon.get(page).text();
        assert!(!shown.contains(text), "{shown}");
    }
    let log = daemon.log();
    assert!(!log.iter().any(|line| line.contains(text)), "{log:#?}");
}

#[test]
fn requests_have_the_fields_of_flags_and_files() {
    let home = Home::new();
    let (writes, otlp) = (Receiver::start(&home), Receiver::start(&home));
    let path = home.path("fields");
    replace(&path, "Api-Key: swordfish-1\n\nAuthorization: Api-Token swordfish-2\n");
    let file = path.to_str().unwrap();
    let daemon = home.start(&[
        "--remote-write",
        &writes.url,
        "--remote-write-interval",
        "100ms",
        "--remote-write-header",
        "X-Scope-OrgID: swordfish|a, b",
        "--remote-write-header",
        "x-two:2",
        "--remote-write-header-file",
        file,
        "--otlp",
        &otlp.url,
        "--otlp-interval",
        "100ms",
        "--otlp-header",
        "X-Tenant: swordfish-3",
        "--otlp-header-file",
        file,
        "--log-level",
        "debug",
    ]);
    let both = [("api-key", "swordfish-1"), ("authorization", "Api-Token swordfish-2")];
    let more =
        [("x-scope-orgid", "swordfish|a, b"), ("x-two", "2"), ("content-encoding", "snappy")];
    writes.expect(&[&both[..], &more[..]].concat());
    otlp.expect(
        &[&both[..], &[("x-tenant", "swordfish-3"), ("content-encoding", "gzip")]].concat(),
    );
    // If the file is invalid, its name is logged. A valid replacement is used.
    replace(&path, "Api-Key: swordfish-4\nswordfish-5\n");
    for message in ["remote write fails", "OTLP export failed"] {
        let event = daemon.wait_for(message);
        let error = event["error"].as_str().unwrap();
        assert!(error.contains("line 2 of ") && error.contains("no colon"), "{error}");
    }
    replace(&path, "Api-Key: swordfish-6\n");
    for receiver in [&writes, &otlp] {
        receiver.expect(&[("api-key", "swordfish-6")]);
        let requests = receiver.requests.lock().unwrap();
        assert!(requests.iter().all(|fields| fields["api-key"] != "swordfish-4"));
    }
    expect_hidden(&daemon, "swordfish");
    assert!(daemon.get("/api/v1/status").text().contains("X-Scope-OrgID: <secret>"));
    daemon.stop();
}

#[test]
fn a_field_of_a_flag_goes_to_all_receivers() {
    let home = Home::new();
    let receivers = [Receiver::start(&home), Receiver::start(&home)];
    let mut command = home.command();
    let urls = receivers.each_ref().map(|one| one.url.as_str()).join("\n");
    command.args(["serve", "--listen", &format!("{}:0", home.host()), "--log-format", "json"]);
    command.env("QUIPU_OTLP", urls).env("QUIPU_OTLP_INTERVAL", "100ms");
    command.env("QUIPU_OTLP_HEADER", "X-Tenant: a, b\nX-Two: c");
    let daemon = home.spawn(command);
    for receiver in receivers {
        receiver.expect(&[("x-tenant", "a, b"), ("x-two", "c")]);
    }
    daemon.stop();
}

#[test]
fn fields_that_cannot_be_added_are_refused_without_their_values() {
    let home = Home::new();
    let write = ["--remote-write", "http://a/w", "--remote-write-header"];
    let otlp = ["--otlp", "http://a", "--otlp-header"];
    for (flags, value, parts) in [
        (write, "swordfish", ["cannot use --remote-write-header", "NAME: VALUE"]),
        (
            write,
            "Authorization: swordfish",
            ["--remote-write-bearer-file", "--remote-write-header-file"],
        ),
        (write, "X-Prometheus-Remote-Write-Version: swordfish", ["the daemon sets it", "proxy"]),
        (otlp, "Host: swordfish", ["cannot use --otlp-header", "a URL with that host"]),
        (otlp, "Authorization: swordfish", ["--otlp-basic-file", "--otlp-header-file"]),
    ] {
        let arguments = [&flags[..], &[value]].concat();
        home.expect_refusal(&arguments, 2, &parts);
        assert!(!home.run(&arguments).stderr.contains("swordfish"), "{value}");
    }
    // A password in a URL is not shown either.
    let passwords = ["swordfish", "s/wordfish", "s?wordfish", "s#wordfish", "1/wordfish"];
    let names = ["remote-write", "otlp", "scrape"];
    for (name, password) in names.iter().flat_map(|name| passwords.map(|one| (name, one))) {
        let (flag, remedy) = (format!("--{name}"), format!("--{name}-basic-file"));
        let url = format!("http://ada:{password}@a/");
        fs::write(home.path("url.toml"), format!("{name} = [{url:?}]")).unwrap();
        let mut check = home.command();
        check.args(["check", "config", "url.toml"]);
        for ended in [home.finish(check), home.run(&[&flag, &url])] {
            let is_refused = ended.status.code() == Some(2) && ended.stderr.contains(&remedy);
            assert!(is_refused && !ended.stderr.contains("wordfish"), "{}", ended.stderr);
        }
    }
    // An invalid URL is not shown either, nor is a URL from an environment variable in the help.
    for name in names {
        let (flag, text) = (format!("--{name}"), "ftp://ada:swordfish@a/");
        let variable = format!("QUIPU_{}", name.to_uppercase().replace('-', "_"));
        let serve = |arguments: &[&str]| {
            let mut command = home.command();
            command.arg("serve").args(arguments).env(&variable, text);
            home.finish(command)
        };
        for ended in [home.run(&[&flag, text]), serve(&[])] {
            let is_refused = ended.status.code() == Some(2) && ended.stderr.contains(&flag);
            assert!(is_refused && !ended.stderr.contains("fish"), "{}", ended.stderr);
        }
        let help = serve(&["--help"]).stdout;
        assert!(help.contains(&variable) && !help.contains("fish"), "{help}");
    }
    // The shown settings hide the values.
    let arguments = [&write[..], &["X-Scope-OrgID: swordfish", "--check-config"]].concat();
    let shown = home.run(&arguments).stdout;
    assert!(shown.contains("remote-write-header = [\"X-Scope-OrgID: <secret>\"]"), "{shown}");
    fs::write(home.path("shown.toml"), shown).unwrap();
    let mut check = home.command();
    check.args(["check", "config", "shown.toml"]);
    let ended = home.finish(check);
    assert_eq!(ended.status.code(), Some(2));
    assert!(ended.stderr.contains("x-scope-orgid has no value"), "{}", ended.stderr);
}

#[test]
fn credentials_go_only_to_their_target() {
    let home = Home::new();
    let file = |name: &str, text: &str| {
        replace(&home.path(name), text);
        home.path(name).to_str().unwrap().to_owned()
    };
    let (token, password) = (file("token", "swordfish\n"), file("password", "ada:swordfish\n"));
    let [protected, other, away] = [(); 3].map(|()| Exporter::start(&home, "x 1\n"));
    let own = |exporter: &Exporter, job: &str| {
        format!("{{job=\"{job}\",instance=\"{}\"}}", exporter.address())
    };
    let daemon = home.start(&[
        "--scrape",
        &format!("a={}", protected.url),
        "--scrape",
        &other.url,
        "--scrape-interval",
        "100ms",
        "--scrape-basic-file",
        &format!("a={password}"),
        "--scrape-bearer-file",
        &token,
        "--log-level",
        "debug",
    ]);
    let up = |exporter: &Exporter, job: &str, value: f64| {
        let series = format!("up{}", own(exporter, job));
        wait_until(&series, || {
            daemon.get("/metrics").text().contains(&format!("{series} {value}\n"))
        });
    };
    up(&protected, "a", 1.0);
    up(&other, "scrape", 1.0);
    let has = |exporter: &Exporter, value: &str| {
        let line = format!("authorization: {value}\r\n");
        exporter.heads().iter().all(|head| head.to_lowercase().contains(&line.to_lowercase()))
    };
    assert!(has(&protected, "Basic YWRhOnN3b3JkZmlzaA=="), "{:?}", protected.heads());
    assert!(has(&other, "Bearer swordfish"), "{:?}", other.heads());

    // A redirect target gets no secrets, even if it is on the same host.
    for to in [&away, &protected] {
        let before = to.heads().len();
        let location = format!("{}/elsewhere", to.url);
        protected.redirects(&location);
        wait_until("a redirect", || {
            to.heads()[before..].iter().any(|head| head.starts_with("GET /elsewhere "))
        });
    }
    for head in [&away, &protected].iter().flat_map(|one| one.heads()) {
        let is_redirected = head.starts_with("GET /elsewhere ");
        assert_ne!(is_redirected, head.to_lowercase().contains("authorization"), "{head}");
    }

    // The log distinguishes a target that refuses the secrets from a missing file.
    protected.responds("401 Unauthorized");
    up(&protected, "a", 0.0);
    let logged = |part: &str| {
        let log = || daemon.log().iter().any(|line| line.contains(part));
        wait_until(part, log);
    };
    logged("the response is 401 Unauthorized: check the credentials in the file of --scrape-");
    protected.exposes("x 1\n");
    up(&protected, "a", 1.0);
    fs::remove_file(home.path("password")).unwrap();
    logged("cannot read ");
    up(&protected, "a", 0.0);
    // A new file can contain another secret.
    file("password", "ada:haddock");
    up(&protected, "a", 1.0);
    assert!(protected.heads().last().unwrap().contains("YWRhOmhhZGRvY2s="));
    for secret in ["swordfish", "haddock", "YWRhOn", "YWRhOm"] {
        expect_hidden(&daemon, secret);
    }
    daemon.stop();
}

#[test]
fn files_that_block_are_refused_and_hold_up_nothing() {
    let home = Home::new();
    let (receiver, exporter) = (Receiver::start(&home), Exporter::start(&home, "x 1\n"));
    let path = home.path("pipe");
    assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    let file = path.to_str().unwrap();
    let daemon = home.start(&[
        "--remote-write",
        &receiver.url,
        "--remote-write-interval",
        "100ms",
        "--remote-write-header-file",
        file,
        "--scrape",
        &exporter.url,
        "--scrape-interval",
        "100ms",
        "--scrape-bearer-file",
        file,
    ]);
    for message in ["remote write fails", "a target cannot be scraped"] {
        let event = daemon.wait_for(message);
        let error = event["error"].as_str().unwrap();
        assert!(error.contains("pipe is not a regular file"), "{error}");
    }
    // A new file in its place is used.
    replace(&path, "Api-Key: swordfish\n");
    receiver.expect(&[("api-key", "swordfish")]);
    let up = format!("up{{job=\"scrape\",instance=\"{}\"}}", exporter.address());
    wait_until("a scrape", || daemon.get("/metrics").text().contains(&format!("{up} 1\n")));
    daemon.stop();
}
