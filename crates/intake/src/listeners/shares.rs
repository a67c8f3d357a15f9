//! Chooses the connection to close when a listener is full and a new client connects.
//!
//! The client with the most connections loses one: preferably a connection that never sent a byte,
//! or else the connection that was idle longest. A client can therefore open any number of
//! connections without closing the connections of a client with fewer. A new connection never
//! closes an active connection of the same client, because a client with more senders than the
//! limit would otherwise close its connections all the time, and lose lines of all senders.

use std::cell::Cell;
use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

/// The sender at the other end of a connection. All senders of a client share its number of
/// connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Peer {
    pub(super) client: Client,
    /// The process ID of a local sender, otherwise 0.
    pub(super) process: i32,
}

/// The identity of a client: an IP address or, for a unix socket, a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Client {
    /// An IP address; `None` if the system does not report it.
    Address(Option<IpAddr>),
    User(u32),
}

/// The number of open connections of each client, and of each process of a client.
#[derive(Debug, Default)]
pub(super) struct Shares {
    clients: HashMap<Client, Count>,
    processes: HashMap<Peer, Count>,
}

type Count = Rc<Cell<usize>>;

/// The counts that one connection is part of.
#[derive(Debug)]
pub(super) struct Share {
    peer: Peer,
    client: Count,
    process: Count,
}

/// The activity of a connection so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Usage {
    pub(super) has_sent_nothing: bool,
    /// The time since the last read, or since the connection was accepted.
    pub(super) idle: Duration,
}

impl Shares {
    /// Counts a new connection.
    pub(super) fn enter(&mut self, peer: Peer) -> Share {
        let (client, process) =
            (increase(&mut self.clients, peer.client), increase(&mut self.processes, peer));
        Share { peer, client, process }
    }

    /// Counts a closed connection.
    pub(super) fn leave(&mut self, share: &Share) {
        decrease(&mut self.clients, share.peer.client);
        decrease(&mut self.processes, share.peer);
    }

    /// Returns the connection to close for a new connection of this peer, if any.
    pub(super) fn choose_victim<'a>(
        &self,
        peer: Peer,
        connections: impl Iterator<Item = (usize, &'a Share, Usage)>,
    ) -> Option<usize> {
        let rank = |share: &Share, usage: &Usage| (share.client.get(), share.process.get(), *usage);
        let gives_way = |share: &Share, usage: &Usage| {
            // Even with the new connection, the peer uses no more connections than the other one.
            let has_fewer = if share.peer.client == peer.client {
                share.process.get() > count(&self.processes, &peer) + 1
            } else {
                share.client.get() > count(&self.clients, &peer.client) + 1
            };
            has_fewer || usage.has_sent_nothing || usage.idle >= GIVES_WAY
        };
        let candidates = connections.filter(|(_, share, usage)| gives_way(share, usage));
        let first = candidates.max_by_key(|(_, share, usage)| rank(share, usage));
        first.map(|(place, ..)| place)
    }
}

fn increase<K: Eq + Hash>(counts: &mut HashMap<K, Count>, key: K) -> Count {
    let count = counts.entry(key).or_default();
    count.set(count.get() + 1);
    Rc::clone(count)
}

fn decrease<K: Eq + Hash>(counts: &mut HashMap<K, Count>, key: K) {
    if let Some(count) = counts.get(&key) {
        count.set(count.get() - 1);
        if count.get() == 0 {
            counts.remove(&key);
        }
    }
}

fn count<K: Eq + Hash>(counts: &HashMap<K, Count>, key: &K) -> usize {
    counts.get(key).map_or(0, |count| count.get())
}

/// The idle time after which a connection can be closed in favour of any other. This is long
/// because many Graphite senders send only once a minute.
const GIVES_WAY: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests {
    use super::*;

    /// Connections for the tests: their peers, whether they sent a byte, and their idle times.
    #[derive(Default)]
    struct Model {
        shares: Shares,
        connections: Vec<(Share, Usage)>,
    }

    impl Model {
        fn open(&mut self, peer: Peer, sent: bool, idle: u64) {
            let usage = Usage { has_sent_nothing: !sent, idle: Duration::from_secs(idle) };
            self.connections.push((self.shares.enter(peer), usage));
        }

        fn gives_way(&self, peer: Peer) -> Option<usize> {
            let connections = self.connections.iter().enumerate();
            let connections = connections.map(|(place, (share, usage))| (place, share, *usage));
            self.shares.choose_victim(peer, connections)
        }
    }

    fn address(last: u8) -> Peer {
        let address = IpAddr::from([192, 0, 2, last]);
        Peer { client: Client::Address(Some(address)), process: 0 }
    }

    fn local(user: u32, process: i32) -> Peer {
        Peer { client: Client::User(user), process }
    }

    #[test]
    fn the_client_with_the_most_connections_loses_its_longest_idle_one() {
        let mut model = Model::default();
        model.open(address(1), true, 500);
        for idle in [3, 9, 5] {
            model.open(address(2), true, idle);
        }
        model.open(address(1), true, 500);
        assert_eq!(model.gives_way(address(3)), Some(2));
        // A connection that never sent a byte gives way before these, however new it is.
        model.open(address(2), false, 0);
        assert_eq!(model.gives_way(address(3)), Some(5));
        assert_eq!(model.gives_way(address(1)), Some(5));
    }

    #[test]
    fn a_client_loses_no_connection_in_use_to_its_own() {
        let mut model = Model::default();
        for idle in [0, 60, 119] {
            model.open(address(1), true, idle);
        }
        assert_eq!(model.gives_way(address(1)), None);
        // No connection gives way to a client that would then use more connections.
        model.open(address(2), true, 0);
        model.open(address(2), true, 0);
        assert_eq!(model.gives_way(address(2)), None);
        assert_eq!(model.gives_way(address(3)), Some(2));
        model.open(address(1), true, 120);
        assert_eq!(model.gives_way(address(1)), Some(5));
    }

    #[test]
    fn an_idle_connection_gives_way_if_no_client_has_too_many() {
        let mut model = Model::default();
        model.open(address(1), true, 0);
        model.open(address(1), true, 0);
        model.open(address(2), true, 600);
        model.open(address(3), true, 0);
        assert_eq!(model.gives_way(address(3)), Some(2));
    }

    #[test]
    fn the_process_with_the_most_connections_of_a_user_loses_one() {
        let mut model = Model::default();
        model.open(local(1000, 7), true, 9);
        for idle in [1, 2] {
            model.open(local(1000, 8), true, idle);
        }
        model.open(local(0, 9), true, 9);
        assert_eq!(model.gives_way(local(1000, 10)), Some(2));
        assert_eq!(model.gives_way(local(1000, 7)), None);
        assert_eq!(model.gives_way(local(0, 9)), Some(2));
        assert_eq!(model.gives_way(local(33, 11)), Some(2));
    }

    #[test]
    fn connections_that_ended_are_not_counted() {
        let mut model = Model::default();
        for peer in [address(1), address(1), address(1), address(2), address(2)] {
            model.open(peer, true, 0);
        }
        for _ in 0..2 {
            let (share, _) = model.connections.remove(0);
            model.shares.leave(&share);
        }
        assert_eq!(model.gives_way(address(3)), Some(2));
        for (share, _) in model.connections.drain(..) {
            model.shares.leave(&share);
        }
        assert!(model.shares.clients.is_empty() && model.shares.processes.is_empty());
        assert_eq!(model.gives_way(address(3)), None);
    }
}
