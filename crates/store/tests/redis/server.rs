//! Real servers on free ports, which end with the test, and a proxy that loses data.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// A `redis-server` without persistence.
pub(crate) struct Server {
    child: Option<Child>,
    pub(crate) port: u16,
    arguments: Vec<String>,
    directory: TempDir,
}

impl Server {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(|&text| text.to_owned()).collect();
        let directory = tempfile::tempdir().unwrap();
        let mut server = Self { child: None, port: free_port(), arguments, directory };
        // Another process can take the port before the server does.
        while !server.try_start() {
            server.port = free_port();
        }
        server
    }

    /// A server that is not running until [`Server::restart`].
    pub(crate) fn later(arguments: &[&str]) -> Self {
        let mut server = Self::start(arguments);
        server.kill();
        server
    }

    pub(crate) fn restart(&mut self) {
        assert!(self.try_start(), "redis-server does not start");
    }

    /// Starts the server. Returns false if it exits before it accepts connections.
    fn try_start(&mut self) -> bool {
        self.kill();
        let mut command = Command::new("redis-server");
        command
            .args(["--port", &self.port.to_string(), "--bind", "127.0.0.1", "--save", ""])
            .args(["--appendonly", "no", "--dir"])
            .arg(self.directory.path())
            .args(&self.arguments)
            .stdout(Stdio::null());
        let child = self.child.insert(command.spawn().expect("redis-server is installed"));
        let end = Instant::now() + crate::PATIENCE;
        while child.try_wait().unwrap().is_none() {
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
                return true;
            }
            assert!(Instant::now() < end, "redis-server does not start");
            std::thread::sleep(Duration::from_millis(5));
        }
        false
    }

    pub(crate) fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    pub(crate) fn connection(&self) -> redis::Connection {
        redis::Client::open(self.url()).unwrap().get_connection().unwrap()
    }

    /// Runs a command, given as words.
    pub(crate) fn run(&self, words: &str) -> redis::RedisResult<redis::Value> {
        let mut command = redis::Cmd::new();
        words.split_whitespace().for_each(|word| {
            command.arg(word);
        });
        command.query(&mut self.connection())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Three masters that share all slots.
pub(crate) fn cluster() -> Vec<Server> {
    let start = |_| Server::start(&["--cluster-enabled", "yes", "--cluster-node-timeout", "5000"]);
    let servers: Vec<Server> = (0..3).map(start).collect();
    let bounds = [0, 5461, 10923, 16384];
    for (i, server) in servers.iter().enumerate() {
        let range = format!("CLUSTER ADDSLOTSRANGE {} {}", bounds[i], bounds[i + 1] - 1);
        server.run(&range).unwrap();
        server.run(&format!("CLUSTER SET-CONFIG-EPOCH {}", i + 1)).unwrap();
    }
    for server in &servers[1..] {
        server.run(&format!("CLUSTER MEET 127.0.0.1 {}", servers[0].port)).unwrap();
    }
    let end = Instant::now() + 2 * crate::PATIENCE;
    let is_ok = |server: &Server| {
        let info: String = redis::from_redis_value(server.run("CLUSTER INFO").unwrap()).unwrap();
        info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:3")
    };
    while !servers.iter().all(is_ok) {
        assert!(Instant::now() < end, "the cluster does not form");
        std::thread::sleep(Duration::from_millis(20));
    }
    servers
}

/// A free port whose cluster port (10,000 higher) is valid and free as well.
pub(crate) fn free_port() -> u16 {
    loop {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let bus = port.checked_add(10_000);
        if bus.is_some_and(|bus| TcpListener::bind(("127.0.0.1", bus)).is_ok()) {
            return port;
        }
    }
}

/// The messages that the network loses.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lost {
    Requests,
    Answer,
}

/// A proxy between client and server.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    /// When set, the next response of the server is lost and its connection cut. The server
    /// processed the request by then.
    pub(crate) cut_after: Arc<AtomicBool>,
    /// When set, requests that contain the string are affected: with [`Lost::Requests`], all of
    /// them are lost; with [`Lost::Answer`], the response to the next one is lost, like with
    /// `cut_after`.
    pub(crate) lost: Arc<Mutex<Option<(Lost, String)>>>,
    /// When set, requests do not get through.
    pub(crate) is_stuck: Arc<AtomicBool>,
    pub(crate) cuts: Arc<AtomicU64>,
}

impl Proxy {
    pub(crate) fn to(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = Self {
            port: listener.local_addr().unwrap().port(),
            cut_after: Arc::default(),
            lost: Arc::default(),
            is_stuck: Arc::default(),
            cuts: Arc::default(),
        };
        let (cut, stuck, cuts) =
            (proxy.cut_after.clone(), proxy.is_stuck.clone(), proxy.cuts.clone());
        let lost = proxy.lost.clone();
        // The thread ends with the process.
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let Ok(client) = client else { return };
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else { continue };
                let (c, s) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                let (is_stuck, lost) = (stuck.clone(), lost.clone());
                let (cut_next, cut_now) = (cut.clone(), cuts.clone());
                std::thread::spawn(move || {
                    pass(c, s, |bytes| {
                        let (mut lost, sent) =
                            (lost.lock().unwrap(), String::from_utf8_lossy(bytes));
                        match &*lost {
                            Some((loss, text)) if sent.contains(text) => match loss {
                                Lost::Requests => {
                                    cut_now.fetch_add(1, Ordering::SeqCst);
                                    return false;
                                }
                                Lost::Answer => {
                                    *lost = None;
                                    cut_next.store(true, Ordering::SeqCst);
                                }
                            },
                            _ => {}
                        }
                        drop(lost);
                        while is_stuck.load(Ordering::SeqCst) {
                            std::thread::sleep(Duration::from_millis(1));
                        }
                        true
                    });
                });
                let (cut, cuts) = (cut.clone(), cuts.clone());
                std::thread::spawn(move || {
                    pass(server, client, |_| {
                        let is_cut = cut.swap(false, Ordering::SeqCst);
                        cuts.fetch_add(u64::from(is_cut), Ordering::SeqCst);
                        !is_cut
                    });
                });
            }
        });
        proxy
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }
}

/// Forwards bytes as long as `is_passed` returns true, then closes both connections.
fn pass(mut from: TcpStream, mut to: TcpStream, mut is_passed: impl FnMut(&[u8]) -> bool) {
    let mut buffer = [0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if !is_passed(&buffer[..count]) || to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}
