//! The connections that have not sent a byte yet. When the server is full, it closes the oldest
//! silent connection of the client with the most silent connections. A client with any number of
//! silent connections therefore never displaces a client with fewer.
//!
//! Each operation takes logarithmic time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;

/// A set of connections, each with its client and a number. Later connections use greater numbers.
pub(super) struct Silent<C, T> {
    members: BTreeMap<(C, u64), T>,
    ranks: HashMap<C, Rank>,
    /// The clients, sorted by rank. The last client has the most connections; if several clients
    /// have the same number, it has the oldest connection.
    order: BTreeSet<(Rank, C)>,
}

/// The number of a client's connections, and the number that identifies the oldest one.
type Rank = (usize, Reverse<u64>);

impl<C: Copy + Ord + Hash, T> Silent<C, T> {
    pub(super) fn new() -> Silent<C, T> {
        Silent { members: BTreeMap::new(), ranks: HashMap::new(), order: BTreeSet::new() }
    }

    /// Adds a connection. Its number must not be in use.
    pub(super) fn insert(&mut self, client: C, number: u64, member: T) {
        self.members.insert((client, number), member);
        self.rank(client, |count| count + 1);
    }

    /// Removes a connection, if it is in the set.
    pub(super) fn remove(&mut self, client: C, number: u64) {
        if self.members.remove(&(client, number)).is_some() {
            self.rank(client, |count| count - 1);
        }
    }

    /// Removes and returns the oldest connection of the client with the most connections.
    pub(super) fn pop(&mut self) -> Option<T> {
        let &((count, Reverse(number)), client) = self.order.last()?;
        let member = self.members.remove(&(client, number));
        self.rank(client, |_| count - 1);
        member
    }

    /// Updates the rank of a client after a change of its connections.
    fn rank(&mut self, client: C, change: impl Fn(usize) -> usize) {
        let before = self.ranks.remove(&client);
        if let Some(rank) = before {
            self.order.remove(&(rank, client));
        }
        let mut members = self.members.range((client, 0)..=(client, u64::MAX));
        if let Some((&(_, oldest), _)) = members.next() {
            let rank = (change(before.map_or(0, |(count, _)| count)), Reverse(oldest));
            self.ranks.insert(client, rank);
            self.order.insert((rank, client));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_client_with_the_most_loses_its_oldest() {
        let mut silent = Silent::new();
        for (number, client) in (0..).zip("abcbbcab".chars()) {
            silent.insert(client, number, (client, number));
        }
        let popped: Vec<_> = std::iter::from_fn(|| silent.pop()).collect();
        let expected =
            [('b', 1), ('b', 3), ('a', 0), ('c', 2), ('b', 4), ('c', 5), ('a', 6), ('b', 7)];
        assert_eq!(popped, expected);
        assert!(silent.ranks.is_empty() && silent.order.is_empty() && silent.members.is_empty());
    }

    #[test]
    fn members_that_left_are_not_counted() {
        let mut silent = Silent::new();
        for (number, client) in (0..).zip("aaabb".chars()) {
            silent.insert(client, number, number);
        }
        silent.remove('a', 0);
        silent.remove('a', 0);
        silent.remove('a', 2);
        silent.remove('c', 4);
        assert_eq!(silent.pop(), Some(3));
        assert_eq!(silent.pop(), Some(1));
        silent.remove('b', 4);
        assert_eq!(silent.pop(), None);
        assert!(silent.ranks.is_empty() && silent.order.is_empty());
    }
}
