//! Tests of commands that read the metrics of a server.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;

use crate::common::Home;

#[test]
fn a_value_of_a_daemon_is_printed() {
    let home = Home::new();
    let daemon = home.start(&[]);
    daemon.push("PUT", "/metrics/job/a", "x 7\n");
    for url in [format!("http://{}/metrics", daemon.address()), daemon.address().to_string()] {
        let mut command = home.command();
        command.args(["get", "-f", &url, "x{job=\"a\"}"]);
        let ended = home.finish(command);
        assert!(ended.status.success() && ended.stderr.is_empty(), "{url}: {}", ended.stderr);
        assert_eq!(ended.stdout, "7\n", "{url}");
    }
}

/// The second server does not use TLS, so that this test needs no certificate.
#[test]
fn a_redirect_to_tls_is_named() {
    let home = Home::new();
    let servers = [(); 2].map(|()| TcpListener::bind((home.host(), 0)).unwrap());
    let [first, second] = [0, 1].map(|at: usize| servers[at].local_addr().unwrap());
    let [plain, tls] = servers;
    let responses = [
        (plain, format!("301 Moved\r\nLocation: https://{second}/metrics")),
        (tls, "400 Bad Request".to_owned()),
    ];
    for (server, response) in responses {
        thread::spawn(move || {
            let (mut client, _) = server.accept().unwrap();
            let _ = client.read(&mut [0; 4096]).unwrap();
            let response = format!("HTTP/1.1 {response}\r\nContent-Length: 0\r\n\r\n");
            client.write_all(response.as_bytes()).unwrap();
            // The client reads the response before the connection ends.
            let _ = client.read(&mut [0; 4096]);
        });
    }
    let mut command = home.command();
    command.args(["get", "-f", &format!("http://{first}"), "x"]);
    let ended = home.finish(command);
    assert_eq!(ended.status.code(), Some(1));
    assert!(ended.stderr.contains("redirects to an https URL"), "{}", ended.stderr);
}
