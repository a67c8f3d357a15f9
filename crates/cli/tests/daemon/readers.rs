//! Tests of clients that request large responses and do not read them.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::common::{DEADLINE, Daemon, Home};

/// Connects with a receive buffer that the kernel does not enlarge.
fn connect(daemon: &Daemon) -> TcpStream {
    use rustix::net::{AddressFamily, SocketType, connect, socket, sockopt};
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    sockopt::set_socket_recv_buffer_size(&socket, 32 << 10).unwrap();
    connect(&socket, &daemon.address()).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream
}

/// Returns the value of a counter, through a page that needs little memory.
fn counter(daemon: &Daemon, name: &str, labels: &str) -> f64 {
    let response = daemon.get(&format!("/metrics?name[]={name}"));
    let text = response.text();
    let start = format!("{name}{labels} ");
    let line = text.lines().find_map(|line| line.strip_prefix(&start));
    line.unwrap_or_else(|| panic!("{response:?}")).parse().unwrap()
}

#[test]
fn responses_that_are_not_read_take_bounded_memory() {
    const READERS: usize = 20;
    let home = Home::new();
    let daemon = home.start(&["--response-bytes", "33554432"]);
    // A response exceeds the buffers of sockets, and takes more than a ninth of the memory.
    let long = "x".repeat(300);
    let body: String = (0..20_000).map(|n| format!("m{{n=\"{n}\",l=\"{long}\"}} 1\n")).collect();
    assert_eq!(daemon.post_body("/metrics/job/a", &[], body.as_bytes()).status, 200);
    let unread = "{code=\"503\",reason=\"unread\"}";
    for target in ["/metrics", "/api/v1/metrics"] {
        assert!(daemon.get(target).body.len() > 33_554_432 / 9, "{target}");
        let lost = || {
            counter(&daemon, "quipu_http_refused_total", unread)
                + counter(&daemon, "quipu_http_connections_gave_way_total", "")
        };
        let before = lost();
        let mut readers = Vec::new();
        for _ in 0..READERS {
            let mut stream = connect(&daemon);
            let head = format!("GET {target} HTTP/1.1\r\nHost: quipu\r\n\r\n");
            stream.write_all(head.as_bytes()).unwrap();
            let mut line = [0; 12];
            stream.read_exact(&mut line).unwrap();
            assert!(line == *b"HTTP/1.1 200" || line == *b"HTTP/1.1 503", "{line:?}");
            readers.push(stream);
        }
        // A response takes more than a ninth of the memory, and a single client can use only half
        // of this memory, so at most four responses fit.
        let lost = lost() - before;
        assert!(lost as usize >= READERS - 4, "{target}: {lost}");
        // These clients do not block others for long.
        drop(readers.pop());
        while daemon.get(target).status != 200 {
            assert_eq!(daemon.get(target).fields.get("retry-after").map_or("1", |text| text), "1");
        }
    }
}
