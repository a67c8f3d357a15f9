//! Clients on several threads that count their requests and responses.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use super::{Client, wait_until};

/// Clients that repeat one request until the daemon is gone.
pub(crate) struct Load {
    tally: Arc<[AtomicU64; 2]>,
    threads: Vec<JoinHandle<Vec<u64>>>,
}

/// The result of a load.
pub(crate) struct Tally {
    /// The number of requests whose sending began. The daemon may or may not count these.
    pub(crate) sent: u64,
    /// The number of requests with a response. The daemon must count these.
    pub(crate) answered: u64,
    /// The counts in the responses, in no particular order.
    pub(crate) numbers: Vec<u64>,
}

const SENT: usize = 0;
const ANSWERED: usize = 1;

impl Load {
    /// Starts two clients with a persistent connection, and a third that opens a connection for
    /// each request.
    pub(crate) fn start(address: SocketAddr, method: &'static str, target: &'static str) -> Load {
        let tally: Arc<[AtomicU64; 2]> = Arc::default();
        let client = |kept: bool| {
            let tally = tally.clone();
            thread::spawn(move || {
                let mut numbers = Vec::new();
                let mut connection = None;
                loop {
                    let client = match connection.take() {
                        Some(client) => client,
                        None => match Client::connect(address) {
                            Ok(client) => client,
                            Err(_) => return numbers,
                        },
                    };
                    let mut client: Client = client;
                    tally[SENT].fetch_add(1, Ordering::SeqCst);
                    let Ok(response) = client.request(method, target) else {
                        return numbers;
                    };
                    tally[ANSWERED].fetch_add(1, Ordering::SeqCst);
                    numbers.push(response.count());
                    // While draining, the daemon marks its last response on a connection.
                    let last = response.fields.get("connection").is_some_and(|c| c == "close");
                    connection = (kept && !last).then_some(client);
                }
            })
        };
        let threads = [true, true, false].map(client).into();
        Load { tally, threads }
    }

    /// Waits until at least this many requests have been answered.
    pub(crate) fn wait_for(&self, answered: u64) {
        wait_until("responses under load", || {
            self.tally[ANSWERED].load(Ordering::SeqCst) >= answered
        });
    }

    /// Waits for the clients, which end together with the daemon.
    pub(crate) fn end(self) -> Tally {
        let numbers = self.threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        let [sent, answered] = [SENT, ANSWERED].map(|at| self.tally[at].load(Ordering::SeqCst));
        Tally { sent, answered, numbers }
    }
}

impl Tally {
    /// Checks that `count`, which was `base` before this load, includes every answered request and
    /// counts none twice.
    #[track_caller]
    pub(crate) fn expect(&self, base: u64, count: u64) {
        let Tally { sent, answered, .. } = self;
        assert!(
            (base + answered..=base + sent).contains(&count),
            "{count} after {base} and {answered} responses to {sent} requests"
        );
    }
}
