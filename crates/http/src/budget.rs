//! A memory budget that the clients of a thread share. There is one for the bodies of requests, and
//! one for responses.
//!
//! A client that holds several bodies or responses gets at most half of the memory that the other
//! clients leave. No client, even with many connections, can therefore prevent all others from
//! being served. A client with a single body or response can use all of the rest. If there is only
//! one body or response in total, this budget does not limit its size, because other settings do.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;

use quipu_segment::hash::SeededState;

/// A budget in bytes.
#[derive(Debug)]
pub(super) struct MemoryBudget {
    limit: usize,
    taken: Cell<usize>,
    /// The number of bytes that each client holds.
    clients: RefCell<HashMap<Option<IpAddr>, usize, SeededState>>,
}

/// The reason why a share cannot grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Full {
    /// This client holds the maximum.
    Client,
    /// All clients together hold the maximum.
    All,
}

impl MemoryBudget {
    pub(super) fn new(limit: usize) -> Rc<MemoryBudget> {
        Rc::new(MemoryBudget { limit, taken: Cell::new(0), clients: RefCell::default() })
    }

    /// Returns the number of bytes that a client holds.
    pub(super) fn held(&self, client: Option<IpAddr>) -> usize {
        self.clients.borrow().get(&client).copied().unwrap_or_default()
    }

    /// Reserves more bytes for a share that already holds `own` bytes.
    fn take(&self, client: Option<IpAddr>, own: usize, more: usize) -> Result<(), Full> {
        let (taken, held) = (self.taken.get(), self.held(client));
        let (all, whole) = (taken.saturating_add(more), held.saturating_add(more));
        let is_alone = taken == own;
        if !is_alone && all > self.limit {
            return Err(Full::All);
        }
        if held != own && whole > (self.limit - (taken - held)) / 2 {
            return Err(Full::Client);
        }
        self.taken.set(all);
        self.clients.borrow_mut().insert(client, whole);
        Ok(())
    }

    fn give_back(&self, client: Option<IpAddr>, bytes: usize) {
        self.taken.set(self.taken.get().saturating_sub(bytes));
        let mut clients = self.clients.borrow_mut();
        let rest = clients.get(&client).copied().unwrap_or_default().saturating_sub(bytes);
        if rest > 0 {
            clients.insert(client, rest);
        } else {
            clients.remove(&client);
        }
    }
}

/// The memory of one body or response. Dropping this value returns the memory to the budget.
#[derive(Debug)]
pub(super) struct Share {
    budget: Rc<MemoryBudget>,
    client: Option<IpAddr>,
    bytes: usize,
}

impl Share {
    /// Creates an empty share.
    pub(super) fn new(budget: &Rc<MemoryBudget>, client: Option<IpAddr>) -> Share {
        Share { budget: budget.clone(), client, bytes: 0 }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Grows or shrinks the share. Fails, and changes nothing, if there is not enough memory.
    pub(super) fn resize(&mut self, bytes: usize) -> Result<(), Full> {
        match bytes.checked_sub(self.bytes) {
            Some(0) => {}
            Some(more) => self.budget.take(self.client, self.bytes, more)?,
            None => self.budget.give_back(self.client, self.bytes - bytes),
        }
        self.bytes = bytes;
        Ok(())
    }

    /// Moves the bytes to a new share, which this function returns. This share is then empty.
    pub(super) fn hand_over(&mut self) -> Share {
        let budget = self.budget.clone();
        Share { budget, client: self.client, bytes: std::mem::take(&mut self.bytes) }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.budget.give_back(self.client, self.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(number: u8) -> Option<IpAddr> {
        Some(IpAddr::from([127, 0, 0, number]))
    }

    fn share(budget: &Rc<MemoryBudget>, number: u8, bytes: usize) -> Result<Share, Full> {
        let mut share = Share::new(budget, client(number));
        share.resize(bytes).map(|()| share)
    }

    #[test]
    fn a_client_leaves_room_for_others() {
        let budget = MemoryBudget::new(100);
        let greedy: Vec<_> = (0..10).map_while(|_| share(&budget, 1, 10).ok()).collect();
        assert_eq!((greedy.len(), budget.held(client(1))), (5, 50));
        assert_eq!(share(&budget, 1, 1).unwrap_err(), Full::Client);
        let second: Vec<_> = (0..10).map_while(|_| share(&budget, 2, 5).ok()).collect();
        assert_eq!(budget.held(client(2)), 25);
        // A single piece can take the rest.
        let third = share(&budget, 3, 25).unwrap();
        assert_eq!(share(&budget, 4, 1).unwrap_err(), Full::All);
        drop((greedy, second, third));
        assert!(budget.clients.borrow().is_empty() && budget.taken.get() == 0);
    }

    #[test]
    fn a_piece_that_is_alone_has_no_limit() {
        let budget = MemoryBudget::new(100);
        let mut alone = share(&budget, 1, 90).unwrap();
        alone.resize(1000).unwrap();
        assert_eq!(share(&budget, 2, 1).unwrap_err(), Full::All);
        alone.resize(99).unwrap();
        let other = share(&budget, 2, 1).unwrap();
        assert_eq!(alone.resize(100).unwrap_err(), Full::All);
        assert_eq!(alone.bytes(), 99);
        drop(alone);
        assert_eq!((budget.taken.get(), other.bytes()), (1, 1));
    }

    #[test]
    fn a_share_that_moves_is_returned_once() {
        let budget = MemoryBudget::new(100);
        let mut first = share(&budget, 1, 60).unwrap();
        let second = first.hand_over();
        drop(first);
        assert_eq!(budget.held(client(1)), 60);
        drop(second);
        assert_eq!(budget.taken.get(), 0);
    }
}
