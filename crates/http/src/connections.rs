//! The connections of one server thread: tracks them, enforces their deadlines, and selects the
//! connection to close when the server is full.
//!
//! The clock is read once per sweep instead of for each request, so timeouts are exact to one sweep
//! period. A thread without connections does not sweep.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use quipu_process::memory;

use super::access::Access;
use super::budget::{Full, MemoryBudget};
use super::limits::{Limits, Place, Places};
use super::silent::Silent;
use super::wire::Wire;

/// The state that the connections of a thread share.
pub(super) struct Connections {
    pub(super) limits: Limits,
    pub(super) access: Access,
    pub(super) deadlines: Deadlines,
    /// The receive buffer. It is shared, because a buffer of this size for each connection would
    /// take too much memory.
    pub(super) scratch: RefCell<Box<[u8]>>,
    /// The memory budget for request bodies.
    pub(super) kept: Rc<MemoryBudget>,
    /// The memory budget for responses.
    pub(super) responses: Rc<MemoryBudget>,
    epoch: Instant,
    now: Cell<u64>,
    draining: Cell<bool>,
    open: RefCell<Vec<Rc<Wire>>>,
    lingering: RefCell<VecDeque<(u64, Rc<Wire>)>>,
    accepted: Cell<u64>,
    max_lingering: usize,
    /// The connections beyond the limit, oldest first.
    reserve: RefCell<VecDeque<Rc<Wire>>>,
    max_reserve: usize,
    silent: RefCell<Silent<Option<IpAddr>, Rc<Wire>>>,
    candidates: RefCell<Candidates>,
    /// The number of connections that were closed by the server but whose tasks still run.
    ending: Cell<usize>,
    /// The number of connections whose memory was freed since the heap was last trimmed.
    released: Cell<usize>,
    trimmed: Cell<u64>,
    occupied: Notify,
    emptied: Notify,
}

/// Timeouts in milliseconds.
pub(super) struct Deadlines {
    pub(super) read: u64,
    pub(super) write: u64,
    pub(super) idle: u64,
    pub(super) give_way: u64,
    pub(super) keep_buffers: u64,
}

/// The next connections to close when the server is full and no connection is silent. A search
/// among 10,000 connections takes a millisecond, so each kind of search runs once per sweep, and
/// finds all candidates. Otherwise one client could use up the candidates that the search would
/// find for others.
#[derive(Default)]
struct Candidates {
    sweep: u64,
    /// Idle connections in reverse order: the last is closed first.
    idle: Option<Vec<Rc<Wire>>>,
    /// The connections of a client that occupies more than half of all slots, in reverse order.
    /// These connections are closed in favour of other clients.
    greedy: Option<(Option<IpAddr>, Vec<Rc<Wire>>)>,
}

impl Connections {
    pub(super) fn new(limits: Limits, access: Access, places: &Places) -> Connections {
        let millis = |timeout: Duration| u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        Connections {
            deadlines: Deadlines {
                read: millis(limits.read_timeout),
                write: millis(limits.write_timeout),
                idle: millis(limits.idle_timeout),
                give_way: millis(limits.give_way),
                keep_buffers: millis(limits.keep_buffers),
            },
            kept: MemoryBudget::new(limits.kept_bytes),
            responses: MemoryBudget::new(limits.response_bytes),
            limits,
            access,
            scratch: RefCell::new(vec![0; SCRATCH_BYTES].into_boxed_slice()),
            epoch: Instant::now(),
            now: Cell::new(0),
            draining: Cell::new(false),
            open: RefCell::default(),
            lingering: RefCell::default(),
            accepted: Cell::new(0),
            max_lingering: places.lingering,
            reserve: RefCell::default(),
            max_reserve: places.reserve,
            silent: RefCell::new(Silent::new()),
            candidates: RefCell::default(),
            ending: Cell::new(0),
            released: Cell::new(0),
            trimmed: Cell::new(0),
            occupied: Notify::new(),
            emptied: Notify::new(),
        }
    }

    /// Returns the time of the last sweep, in milliseconds since the start.
    pub(super) fn now(&self) -> u64 {
        self.now.get()
    }

    /// Returns a new number, greater than all earlier ones.
    pub(super) fn number(&self) -> u64 {
        self.accepted.replace(self.accepted.get() + 1)
    }

    /// Returns whether the server is stopping. Each response then closes its connection.
    pub(super) fn draining(&self) -> bool {
        self.draining.get()
    }

    /// Adds a connection and watches its deadlines until [`remove`](Connections::remove).
    pub(super) fn insert(&self, wire: Rc<Wire>) {
        self.begin_sweeping();
        wire.restart_clock();
        if wire.is_silent() && !wire.is_over_limit.get() {
            let mut silent = self.silent.borrow_mut();
            silent.insert(wire.client(), wire.number(), wire.clone());
        }
        let mut open = self.open.borrow_mut();
        wire.slot.set(open.len());
        open.push(wire);
    }

    /// Records that a connection has received its first byte, so it is no longer silent.
    pub(super) fn has_spoken(&self, wire: &Wire) {
        self.silent.borrow_mut().remove(wire.client(), wire.number());
    }

    pub(super) fn remove(&self, wire: &Wire) {
        let slot = wire.slot.replace(usize::MAX);
        if slot == usize::MAX {
            return;
        }
        self.released();
        self.silent.borrow_mut().remove(wire.client(), wire.number());
        if wire.dismissed.get() {
            self.ending.set(self.ending.get() - 1);
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

    /// Discards received bytes for a while after the last response, if the client may still be
    /// sending. Closing the socket at once would reset the connection, and this reset can overtake
    /// the response.
    pub(super) fn linger(&self, wire: Rc<Wire>) {
        wire.finish_sending();
        if wire.discard() {
            return;
        }
        self.begin_sweeping();
        let mut lingering = self.lingering.borrow_mut();
        if lingering.len() == self.max_lingering {
            lingering.pop_front();
        }
        lingering.push_back((self.now() + LINGER_MILLIS, wire));
    }

    /// Adds a connection beyond the limit. If there are too many, returns the oldest, which the
    /// caller must close.
    pub(super) fn insert_over_limit(&self, wire: Rc<Wire>) -> Option<Rc<Wire>> {
        self.insert(wire.clone());
        let mut reserve = self.reserve.borrow_mut();
        reserve.push_back(wire);
        if reserve.len() > self.max_reserve { reserve.pop_front() } else { None }
    }

    /// Removes a connection beyond the limit.
    pub(super) fn remove_over_limit(&self, wire: &Rc<Wire>) {
        self.reserve.borrow_mut().retain(|other| !Rc::ptr_eq(other, wire));
    }

    /// Closes a connection in favour of `newcomer`. Returns its slot, if there is such a
    /// connection.
    ///
    /// Silent connections are closed first: those that never sent a byte, then those idle for
    /// [`Limits::give_way`]. Among these, the client with the most loses its oldest. After that, a
    /// client with more than half of all connections loses a connection, unless the client is the
    /// newcomer's or the connection is being served.
    pub(super) fn make_room(&self, newcomer: &Wire) -> Option<Place> {
        let silent = self.silent.borrow_mut().pop();
        let gives_way = silent.or_else(|| {
            let mut candidates = self.candidates.borrow_mut();
            if candidates.sweep != self.now() {
                *candidates = Candidates { sweep: self.now(), ..Candidates::default() };
            }
            let idle = candidates.idle.get_or_insert_with(|| self.find_idle());
            if let Some(wire) = pop(idle, false) {
                return Some(wire);
            }
            let (client, wires) = candidates.greedy.get_or_insert_with(|| self.find_greedy());
            if *client == newcomer.client() { None } else { pop(wires, true) }
        });
        gives_way.and_then(|wire| wire.give_way())
    }

    /// Closes a connection whose client was slow to read a response for [`Limits::give_way`],
    /// because another response needs its memory. This affects the client that holds the most
    /// memory, and its connection that was slow for the longest time. Returns false if there is
    /// none.
    pub(super) fn give_up_unread(&self, newcomer: &Wire, full: Full) -> bool {
        let open = self.open.borrow();
        let helps = |wire: &&Rc<Wire>| full == Full::All || wire.client() == newcomer.client();
        let slow = open.iter().filter(helps).filter_map(|wire| Some((wire.slow_for()?, wire)));
        let slow = slow.filter(|(time, _)| *time >= self.deadlines.give_way);
        let Some((_, wire)) =
            slow.max_by_key(|(time, wire)| (self.responses.held(wire.client()), *time))
        else {
            return false;
        };
        wire.release();
        wire.dismiss();
        true
    }

    /// Returns the idle connections: first the newest of each client, then its second newest, and
    /// so on.
    fn find_idle(&self) -> Vec<Rc<Wire>> {
        let mut idle = ranked(self.open.borrow().iter(), false);
        let mut counts: HashMap<Option<IpAddr>, usize> = HashMap::new();
        idle.sort_by_cached_key(|wire| {
            let count = counts.entry(wire.client()).or_default();
            *count += 1;
            *count
        });
        idle
    }

    /// Returns the client with more than half of the connections, and its connections that can be
    /// closed.
    fn find_greedy(&self) -> (Option<IpAddr>, Vec<Rc<Wire>>) {
        let open = self.open.borrow();
        let mut clients: HashMap<Option<IpAddr>, Vec<&Rc<Wire>>> = HashMap::new();
        for wire in open.iter() {
            clients.entry(wire.client()).or_default().push(wire);
        }
        let greedy = clients.into_iter().find(|(_, wires)| wires.len() > open.len() / 2);
        greedy.map_or_else(Default::default, |(client, wires)| {
            (client, ranked(wires.into_iter(), true))
        })
    }

    /// Counts an open connection that the server closes.
    pub(super) fn dismissed(&self) {
        self.ending.set(self.ending.get() + 1);
    }

    /// Returns the number of connections that the server closes and whose tasks still run.
    pub(super) fn ending(&self) -> usize {
        self.ending.get()
    }

    /// Counts a connection whose memory was freed.
    pub(super) fn released(&self) {
        self.released.set(self.released.get() + 1);
    }

    /// Returns the free memory of the heap to the system.
    fn trim(&self) {
        self.released.set(0);
        self.trimmed.set(self.now());
        memory::trim();
    }

    /// Wakes overdue connections once per `period`, forever.
    pub(super) async fn sweep_forever(&self, period: Duration) {
        loop {
            if self.is_unoccupied() {
                self.wait_until_occupied().await;
            }
            tokio::time::sleep(period).await;
            self.read_clock();
            let due = |wire: &&Rc<Wire>| wire.overdue().is_some() || wire.is_tired();
            for wire in self.open.borrow().iter().filter(due) {
                wire.wake();
            }
            if self.released.get() >= MANY_RELEASED && self.now() - self.trimmed.get() > TRIM_MILLIS
            {
                self.trim();
            }
            let now = self.now();
            self.lingering.borrow_mut().retain(|(until, wire)| now < *until && !wire.discard());
        }
    }

    async fn wait_until_occupied(&self) {
        let mut occupied = std::pin::pin!(self.occupied.notified());
        if self.released.get() >= MANY_RELEASED {
            // Wait a moment, because trimming at every pause of a busy client would be wasteful.
            let pause = tokio::time::sleep(Duration::from_millis(LINGER_MILLIS));
            tokio::select! {
                () = &mut occupied => return,
                () = pause => self.trim(),
            }
        }
        occupied.await;
    }

    /// Makes every connection close after its current response. Idle connections close at once.
    pub(super) fn drain(&self) {
        self.draining.set(true);
        for wire in self.open.borrow().iter() {
            wire.wake();
        }
    }

    /// Waits until no connection is open, for at most `time`. Returns the number of remaining
    /// connections.
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

/// Removes and returns the last candidate that can still be closed.
fn pop(candidates: &mut Vec<Rc<Wire>>, greedy: bool) -> Option<Rc<Wire>> {
    while let Some(wire) = candidates.pop() {
        if wire.gives_way(greedy).is_some() {
            return Some(wire);
        }
    }
    None
}

/// Returns the connections that can be closed, in reverse order.
fn ranked<'a>(wires: impl Iterator<Item = &'a Rc<Wire>>, greedy: bool) -> Vec<Rc<Wire>> {
    let wires = wires.filter(|wire| !wire.is_over_limit.get());
    let mut ranked: Vec<_> =
        wires.filter_map(|wire| wire.gives_way(greedy).map(|rank| (rank, wire.clone()))).collect();
    ranked.sort_unstable_by_key(|(rank, _)| Reverse(*rank));
    ranked.into_iter().map(|(_, wire)| wire).collect()
}

/// The maximum number of bytes of one `recv`.
const SCRATCH_BYTES: usize = 64 << 10;

/// The time for which a socket lingers.
const LINGER_MILLIS: u64 = 1000;

/// The number of closed or resting connections after which trimming the heap is worthwhile.
const MANY_RELEASED: usize = 128;

/// The minimum time between two trims under load.
const TRIM_MILLIS: u64 = 2000;
