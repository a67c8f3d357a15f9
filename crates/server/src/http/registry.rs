//! The connections of one server thread: who is open, what time it is, who is overdue.
//!
//! The clock is read once a sweep and not for each request: timeouts are exact to a sweep period.
//! An idle thread does not sweep.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::limits::{Limits, MAX_LINGERING};
use super::wire::Wire;

/// What the connections of a thread share.
pub(super) struct Registry {
    pub(super) limits: Limits,
    pub(super) deadlines: Deadlines,
    /// Where bytes are received, so that no connection keeps a buffer of this size.
    pub(super) scratch: RefCell<Box<[u8]>>,
    epoch: Instant,
    now: Cell<u64>,
    draining: Cell<bool>,
    open: RefCell<Vec<Rc<Wire>>>,
    lingering: RefCell<VecDeque<(u64, Rc<Wire>)>>,
    occupied: Notify,
    emptied: Notify,
}

/// Timeouts in milliseconds.
pub(super) struct Deadlines {
    pub(super) read: u64,
    pub(super) write: u64,
    pub(super) idle: u64,
}

impl Registry {
    pub(super) fn new(limits: Limits) -> Registry {
        let millis = |timeout: Duration| u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        Registry {
            deadlines: Deadlines {
                read: millis(limits.read_timeout),
                write: millis(limits.write_timeout),
                idle: millis(limits.idle_timeout),
            },
            limits,
            scratch: RefCell::new(vec![0; SCRATCH_BYTES].into_boxed_slice()),
            epoch: Instant::now(),
            now: Cell::new(0),
            draining: Cell::new(false),
            open: RefCell::default(),
            lingering: RefCell::default(),
            occupied: Notify::new(),
            emptied: Notify::new(),
        }
    }

    /// Milliseconds since the start, as of the last sweep.
    pub(super) fn now(&self) -> u64 {
        self.now.get()
    }

    /// Whether the server is stopping: answers close their connections.
    pub(super) fn draining(&self) -> bool {
        self.draining.get()
    }

    /// Watches the deadlines of a connection until [`remove`](Registry::remove).
    pub(super) fn insert(&self, wire: Rc<Wire>) {
        self.begin_sweeping();
        wire.restart_clock();
        let mut open = self.open.borrow_mut();
        wire.slot.set(open.len());
        open.push(wire);
    }

    pub(super) fn remove(&self, wire: &Wire) {
        let slot = wire.slot.replace(usize::MAX);
        if slot == usize::MAX {
            return;
        }
        let mut open = self.open.borrow_mut();
        open.swap_remove(slot);
        if let Some(moved) = open.get(slot) {
            moved.slot.set(slot);
        }
        if open.is_empty() {
            self.emptied.notify_waiters();
        }
    }

    /// Keeps a socket whose last answer was sent while its client may still be sending, and throws
    /// away what comes. Closing it right away would reset the connection, and the reset may
    /// overtake the answer.
    pub(super) fn linger(&self, wire: Rc<Wire>) {
        wire.finish_sending();
        if wire.discard() {
            return;
        }
        self.begin_sweeping();
        let mut lingering = self.lingering.borrow_mut();
        if lingering.len() == MAX_LINGERING {
            lingering.pop_front();
        }
        lingering.push_back((self.now() + LINGER_MILLIS, wire));
    }

    /// Wakes the connections that are overdue, every `period`, for ever.
    pub(super) async fn sweep_forever(&self, period: Duration) {
        loop {
            if self.is_unoccupied() {
                self.occupied.notified().await;
            }
            tokio::time::sleep(period).await;
            self.read_clock();
            for wire in self.open.borrow().iter().filter(|wire| wire.overdue().is_some()) {
                wire.wake();
            }
            let now = self.now();
            self.lingering.borrow_mut().retain(|(until, wire)| now < *until && !wire.discard());
        }
    }

    /// Has every connection close after the answer that it is at, and idle ones at once.
    pub(super) fn drain(&self) {
        self.draining.set(true);
        for wire in self.open.borrow().iter() {
            wire.wake();
        }
    }

    /// Returns when no connection is open, or after the time with the number of those left.
    pub(super) async fn emptied_within(&self, time: Duration) -> usize {
        let emptied = async {
            loop {
                let notified = self.emptied.notified();
                if self.open.borrow().is_empty() {
                    return;
                }
                notified.await;
            }
        };
        let _ = tokio::time::timeout(time, emptied).await;
        for (_, wire) in self.lingering.take() {
            wire.discard();
        }
        self.open.borrow().len()
    }

    fn begin_sweeping(&self) {
        if self.is_unoccupied() {
            self.read_clock();
            self.occupied.notify_one();
        }
    }

    fn is_unoccupied(&self) -> bool {
        self.open.borrow().is_empty() && self.lingering.borrow().is_empty()
    }

    fn read_clock(&self) {
        let millis = self.epoch.elapsed().as_millis();
        self.now.set(u64::try_from(millis).unwrap_or(u64::MAX));
    }
}

/// The most that one `recv` takes.
const SCRATCH_BYTES: usize = 64 << 10;

/// How long a socket lingers.
const LINGER_MILLIS: u64 = 1000;
