//! Serving metrics over HTTP, and pushing them to a real Pushgateway.
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]
#![cfg(all(feature = "serve", feature = "gzip", feature = "push"))]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use quipu::http::{Push, serve};
use quipu::{CounterFamily, Description, Registry};

/// Sends a request, and returns the head and the body of the response, with its chunks joined.
fn ask(address: SocketAddr, head: &str) -> (String, Vec<u8>) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    write!(stream, "{head}\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
    let head = String::from_utf8(answer[..end].to_vec()).unwrap().to_lowercase();
    let mut rest = &answer[end + 4..];
    if !head.contains("transfer-encoding: chunked") {
        return (head, rest.to_vec());
    }
    let mut body = Vec::new();
    loop {
        let line = rest.windows(2).position(|window| window == b"\r\n").unwrap();
        let length = std::str::from_utf8(&rest[..line]).unwrap();
        let length = usize::from_str_radix(length, 16).unwrap();
        body.extend_from_slice(&rest[line + 2..line + 2 + length]);
        rest = &rest[line + 4 + length..];
        if length == 0 {
            return (head, body);
        }
    }
}

fn registry() -> Registry {
    let registry = Registry::new();
    let description = Description::new("c", "A help.").labels(["k"]);
    let family: CounterFamily<[&str; 1]> = registry.register(description).unwrap();
    for i in 0..20_000 {
        family.inc(&[i.to_string()]);
    }
    registry
}

#[test]
fn responses_follow_the_headers() {
    let registry = registry();
    let server = serve("127.0.0.1:0", &registry).unwrap();
    let address = server.local_addr();
    let (head, body) = ask(address, "GET /metrics HTTP/1.1");
    assert!(head.contains("content-type: text/plain; version=0.0.4"), "{head}");
    assert_eq!(String::from_utf8(body).unwrap(), registry.text());
    let accept = "GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text;version=1.0.0";
    let (head, plain) = ask(address, accept);
    assert!(head.contains("application/openmetrics-text; version=1.0.0"), "{head}");
    assert!(plain.ends_with(b"# EOF\n"));
    let (head, packed) = ask(address, &format!("{accept}\r\nAccept-Encoding: gzip"));
    assert!(head.contains("content-encoding: gzip"), "{head}");
    assert!(packed.len() < plain.len() / 3);
    let mut unpacked = Vec::new();
    flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut unpacked).unwrap();
    assert_eq!(unpacked, plain);
    let (head, body) = ask(address, "HEAD /metrics HTTP/1.1");
    assert!(head.starts_with("http/1.1 200") && body.is_empty(), "{head}");
    assert!(ask(address, "POST /metrics HTTP/1.1").0.starts_with("http/1.1 405"));
    assert!(ask(address, "GET / HTTP/1.1").0.starts_with("http/1.1 404"));
    drop(server);
    assert!(TcpStream::connect(address).is_err(), "it stops when it is dropped");
}

#[test]
fn a_reader_that_never_reads_keeps_no_thread_waiting() {
    let registry = registry();
    let server = serve("127.0.0.1:0", &registry).unwrap();
    let mut lazy = TcpStream::connect(server.local_addr()).unwrap();
    lazy.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let counter = registry.counter("other", "A help.").unwrap();
    counter.inc();
    let (_, body) = ask(server.local_addr(), "GET /metrics HTTP/1.1");
    assert!(String::from_utf8(body).unwrap().contains("other_total 1\n"));
}

struct Gateway(Child);

impl Gateway {
    fn start() -> (Self, SocketAddr) {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
            let child = Command::new("prometheus-pushgateway")
                .arg(format!("--web.listen-address={address}"))
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("prometheus-pushgateway; `make test` installs it");
            let mut gateway = Self(child);
            // The gateway exits if another process takes the port first.
            while gateway.0.try_wait().unwrap().is_none() {
                if TcpStream::connect(address).is_ok() {
                    return (gateway, address);
                }
                assert!(Instant::now() < deadline);
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn silent_connections_keep_no_client_out() {
    let registry = registry();
    let server = serve("127.0.0.1:0", &registry).unwrap();
    // A keep-alive connection that sends requests stays; silent ones give way, the oldest first.
    let mut kept = TcpStream::connect(server.local_addr()).unwrap();
    let mut ask_kept = || {
        let mut answer = [0; 4096];
        write!(kept, "GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let n = kept.read(&mut answer).unwrap();
        assert!(answer[..n].starts_with(b"HTTP/1.1 404"), "{n}");
    };
    ask_kept();
    let begun = Instant::now();
    let silent: Vec<_> =
        (0..200).map(|_| TcpStream::connect(server.local_addr()).unwrap()).collect();
    let (head, _) = ask(server.local_addr(), "GET /metrics HTTP/1.1");
    assert!(head.starts_with("http/1.1 200"), "{head}");
    ask_kept();
    assert!(begun.elapsed() < Duration::from_secs(8), "it waited for the silent ones");
    assert_eq!((&silent[0]).read(&mut [0; 1]).unwrap(), 0);
}

#[test]
fn others_have_their_turn_between_pieces() {
    use http_body::Body;
    let registry = registry();
    let response = quipu::http::respond(&registry, &http::Method::GET, &http::HeaderMap::new());
    let mut body = std::pin::pin!(response.into_body());
    let mut context = Context::from_waker(Waker::noop());
    let (mut turns, mut text) = (0, Vec::new());
    loop {
        match body.as_mut().poll_frame(&mut context) {
            Poll::Pending => turns += 1,
            Poll::Ready(Some(frame)) => text.extend(frame.unwrap().into_data().unwrap()),
            Poll::Ready(None) => break,
        }
    }
    assert_eq!(String::from_utf8(text).unwrap(), registry.text());
    assert!(turns >= registry.text().len() / (128 << 10), "{turns}");
}

#[test]
fn a_real_pushgateway_accepts_pushes() {
    let (_gateway, address) = Gateway::start();
    let registry = Registry::new();
    registry.counter("jobs", "A help.").unwrap().inc_by(3);
    let url = format!("http://{address}/");
    let push = Push::new(&url, "a/b").group("instance", "db 1").group("empty", "");
    push.replace(&registry).unwrap();
    let shown = || String::from_utf8(ask(address, "GET /metrics HTTP/1.1").1).unwrap();
    let line = "jobs_total{empty=\"\",instance=\"db 1\",job=\"a/b\"} 3\n";
    assert!(shown().contains(line), "{}", shown());
    registry.counter("more", "A help.").unwrap();
    push.add(&registry).unwrap();
    assert!(shown().contains("more_total{"));
    push.delete().unwrap();
    // A Pushgateway accepts a deletion before it carries it out.
    let deadline = Instant::now() + Duration::from_secs(60);
    while shown().contains("jobs_total") {
        assert!(Instant::now() < deadline, "the group is still there after a minute");
        std::thread::sleep(Duration::from_millis(10));
    }
    let refused = Push::new(&format!("http://{address}/nothing"), "j").replace(&registry);
    let message = refused.unwrap_err().to_string();
    assert!(message.contains("/nothing/metrics/job/j") && message.contains("404"), "{message}");
    let gone = Push::new("http://127.0.0.1:1", "j").replace(&registry).unwrap_err().to_string();
    assert!(gone.contains("127.0.0.1:1"), "{gone}");
}
