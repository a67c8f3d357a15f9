//! The library's server at unix sockets: which process may take a path, and which one removes it.

#![cfg(all(target_os = "linux", feature = "serve", not(miri)))]
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

mod common;

use std::cell::RefCell;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;

use common::{Child, alone};
use quipu::Registry;
use quipu::http::{serve, serve_unix};

fn registry() -> Registry {
    let registry = Registry::new();
    registry.counter("jobs", "Completed jobs.").unwrap().inc_by(7);
    registry
}

fn asks(mut stream: impl Read + Write) -> bool {
    stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.ends_with("jobs_total 7\n")
}

fn asks_at(path: &Path) -> bool {
    asks(UnixStream::connect(path).unwrap())
}

#[test]
fn a_real_client_gets_what_it_would_get_over_tcp() {
    let registry = registry();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("app.sock");
    let server = serve_unix(&path, &registry).unwrap();
    assert_eq!(server.path(), path);
    let curl = |extra: &[&str]| {
        let output = Command::new("curl")
            .args(["--silent", "--show-error", "--max-time", "60", "--unix-socket"])
            .arg(&path)
            .args(extra)
            .arg("http://app/metrics")
            .output()
            .expect("curl; `make test` installs it");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(curl(&[]), registry.text());
    assert_eq!(curl(&["--compressed"]), registry.text());
    let head = curl(&["--head", "--header", "Accept: application/openmetrics-text"]);
    assert!(head.contains("application/openmetrics-text"), "{head}");
    // Silent clients give way to others.
    let _silent: Vec<_> = (0..100).map(|_| UnixStream::connect(&path).unwrap()).collect();
    assert!(asks_at(&path));
    drop(server);
    assert!(!path.exists());
}

#[test]
fn a_path_is_taken_over_only_from_a_process_that_has_ended() {
    let registry = registry();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("app.sock");
    let refused = |path: &Path, part: &str| {
        let error = serve_unix(path, &registry).err().unwrap().to_string();
        let name = format!("cannot listen on unix:{}: ", path.display());
        assert!(error.contains(&name) && error.contains(part), "{error}");
    };
    let server = serve_unix(&path, &registry).unwrap();
    refused(&path, "another process listens on it");
    assert!(asks_at(&path));
    drop(server);
    // Leaves the path like a process that was killed.
    drop(UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let server = serve_unix(&path, &registry).unwrap();
    assert!(asks_at(&path));
    // Another file takes the path.
    fs::remove_file(&path).unwrap();
    fs::write(&path, "precious").unwrap();
    drop(server);
    refused(&path, "not a socket");
    assert_eq!(fs::read(&path).unwrap(), b"precious");
    refused(&directory.path().join("none/app.sock"), "create its directory");
    refused(&directory.path().join("a".repeat(200)), "at most 107 bytes");
}

#[test]
fn a_child_of_a_fork_leaves_its_parents_servers_alone() {
    alone("a_child_of_a_fork_leaves_its_parents_servers_alone", || {
        let registry = registry();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("app.sock");
        let local = RefCell::new(Some(serve_unix(&path, &registry).unwrap()));
        let other = RefCell::new(Some(serve("127.0.0.1:0", &registry).unwrap()));
        let address = other.borrow().as_ref().unwrap().local_addr();
        let child = Child::start(|| {
            drop(local.take());
            drop(other.take());
            path.exists()
        });
        assert!(child.wait());
        assert!(asks_at(&path));
        assert!(asks(TcpStream::connect(address).unwrap()));
        // A worker can start a separate server.
        let own = directory.path().join("worker.sock");
        let child = Child::start(|| {
            let server = serve_unix(&own, &registry).unwrap();
            let is_served = asks_at(&own);
            drop(server);
            is_served && !own.exists()
        });
        assert!(child.wait());
        drop(local.take());
        assert!(!path.exists());
    });
}
