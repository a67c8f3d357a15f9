//! The limits on clients: sizes, counts and times, and the number of connections that the process
//! can open.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustix::process::{Resource, getrlimit};

/// The limits for every connection. If a client exceeds a limit, it gets a
/// [`Refusal`](super::Refusal), or its connection is closed silently, as documented for each field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The maximum length of a request line and its header fields in bytes. A longer head gets 431,
    /// or 414 if the request line is too long. This also bounds chunked trailers.
    pub header_bytes: usize,
    /// The maximum number of header fields in a request; more get 431. A limit other than 100 costs
    /// an allocation per request.
    pub headers: usize,
    /// The maximum length of a request body in bytes, after chunked decoding; a longer body gets
    /// 413.
    pub body_bytes: usize,
    /// The maximum number of bytes of a body that the handler keeps; a larger body gets 413.
    pub kept_body_bytes: usize,
    /// The maximum total size of all request bodies that a thread keeps at a time, in bytes. A
    /// request whose body does not fit gets 503. A client gets at most half of the memory that
    /// others leave, unless it holds only one body.
    pub kept_bytes: usize,
    /// The maximum total size of all responses that a thread holds at a time, in bytes, shared like
    /// the memory for bodies. If this limit is exceeded, a client that was slow to read for
    /// [`Limits::give_way`] loses its connection. If no client was slow, the request gets 503.
    pub response_bytes: usize,
    /// The maximum number of open connections, over all threads. If there are more, a silent
    /// connection is closed, see [`Limits::give_way`]. If none is silent, requests get 503 unless
    /// they are [vital](super::Handler::is_vital). The process's limit on open files can lower this
    /// number further, see [`Server::connections`](super::Server::connections).
    pub connections: usize,
    /// The number of open files that other parts of the process need, for example listeners of
    /// other protocols.
    pub other_files: usize,
    /// The time without a request after which a connection can be closed in favour of a new one, if
    /// the server is full. A connection that never sent a byte can be closed at once. This is also
    /// the time that a client can take to read a response while others need its memory.
    pub give_way: Duration,
    /// How long an idle connection keeps its buffers.
    pub keep_buffers: Duration,
    /// The longest time from the first byte of a request to its last. A slower request gets 408,
    /// however steadily its bytes arrive.
    pub read_timeout: Duration,
    /// The longest time that a client can take to read a response that it did not read at once.
    /// Then the connection is closed.
    pub write_timeout: Duration,
    /// The longest pause between requests, and before the first one. Then the connection is closed
    /// silently.
    pub idle_timeout: Duration,
    /// The time from the shutdown signal until running requests are aborted.
    pub drain_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            header_bytes: 16 << 10,
            headers: DEFAULT_HEADERS,
            body_bytes: 1 << 20,
            kept_body_bytes: 32 << 20,
            kept_bytes: 256 << 20,
            response_bytes: 256 << 20,
            connections: 10_000,
            other_files: 0,
            give_way: Duration::from_secs(1),
            keep_buffers: Duration::from_secs(1),
            read_timeout: Duration::from_secs(10),
            write_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(60),
            drain_timeout: Duration::from_secs(10),
        }
    }
}

impl Limits {
    /// Returns the interval between two checks of the deadlines. A timeout is exceeded by at most
    /// this time.
    pub(super) fn sweep_period(&self) -> Duration {
        let shortest = self.read_timeout.min(self.write_timeout).min(self.idle_timeout);
        (shortest / 4).clamp(Duration::from_millis(5), Duration::from_millis(100))
    }
}

/// The number of connections that can be open, counted over all threads.
#[derive(Clone, Debug)]
pub(super) struct Places {
    limit: usize,
    taken: Arc<AtomicUsize>,
    /// The maximum number of lingering sockets per thread. If there are more, the oldest is closed.
    pub(super) lingering: usize,
    /// The maximum number of connections beyond the limit per thread, which are open only for vital
    /// requests. If there are more, the oldest is closed.
    pub(super) reserve: usize,
    /// The maximum number of connections per thread that are being closed. At this number, no
    /// connection is accepted, because a flood of connections could otherwise use up all files and
    /// memory before these are closed.
    pub(super) ending: usize,
}

impl Places {
    pub(super) fn new(limits: &Limits, threads: usize) -> Places {
        let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let files = usize::try_from(files).unwrap_or(usize::MAX);
        Places::among(files.saturating_sub(limits.other_files), limits.connections, threads)
    }

    /// Divides the open files of the process. If there are few, each part is smaller.
    fn among(files: usize, connections: usize, threads: usize) -> Places {
        let lingering = (files / (8 * threads)).clamp(1, MAX_LINGERING);
        let reserve = (files / (16 * threads)).clamp(1, MAX_RESERVE);
        let ending = (files / (16 * threads)).clamp(1, MAX_ENDING);
        let rest = RESERVED_FILES.min(files / 4);
        let kept = rest + threads * (RUNTIME_FILES + lingering + reserve + ending);
        let limit = connections.min(files.saturating_sub(kept).max(1));
        Places { limit, taken: Arc::default(), lingering, reserve, ending }
    }

    pub(super) fn limit(&self) -> usize {
        self.limit
    }

    /// Reserves a connection slot, if one is free.
    pub(super) fn take(&self) -> Option<Place> {
        let place = Place { taken: self.taken.clone() };
        // If this exceeds the limit, dropping the slot returns it.
        (self.taken.fetch_add(1, Ordering::Relaxed) < self.limit).then_some(place)
    }
}

/// The slot of one open connection. Dropping this value frees the slot.
#[derive(Debug)]
pub(super) struct Place {
    taken: Arc<AtomicUsize>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The maximum number of lingering sockets per thread.
const MAX_LINGERING: usize = 128;

/// The maximum number of connections beyond the limit per thread.
const MAX_RESERVE: usize = 16;

/// The maximum number of connections per thread that are being closed.
const MAX_ENDING: usize = 64;

/// The number of open files reserved for the rest of the daemon: listeners, logs, its data.
const RESERVED_FILES: usize = 64;

/// The number of open files that the runtime of a thread needs.
const RUNTIME_FILES: usize = 8;

/// The number of header fields that hyper parses without allocating.
pub(super) const DEFAULT_HEADERS: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sweep_is_coarse_but_finer_than_every_timeout() {
        assert_eq!(Limits::default().sweep_period(), Duration::from_millis(100));
        let short = Limits { idle_timeout: Duration::from_millis(80), ..Limits::default() };
        assert_eq!(short.sweep_period(), Duration::from_millis(20));
        let zero = Limits { idle_timeout: Duration::ZERO, ..Limits::default() };
        assert_eq!(zero.sweep_period(), Duration::from_millis(5));
    }

    #[test]
    fn a_place_is_free_again_when_dropped() {
        let places = Places::among(1000, 2, 1);
        let first = places.take().unwrap();
        let _second = places.take().unwrap();
        assert!(places.take().is_none());
        assert!(places.take().is_none());
        drop(first);
        assert!(places.take().is_some());
    }

    #[test]
    fn few_open_files_are_divided() {
        for (files, threads) in [(40, 1), (64, 1), (100, 2), (256, 4), (1024, 1), (20_000, 8)] {
            let places = Places::among(files, usize::MAX, threads);
            let others = places.lingering + places.reserve + places.ending;
            let sockets = places.limit() + threads * (others + RUNTIME_FILES);
            let rest = RESERVED_FILES.min(files / 4);
            assert!(sockets + rest <= files, "{files} files, {threads} threads: {places:?}");
            assert!(places.limit() >= files / 4, "{files} files, {threads} threads: {places:?}");
        }
        assert_eq!(Places::among(2, 10, 1).limit(), 1);
        assert_eq!(Places::among(20_000, 10_000, 1).limit(), 10_000);
    }
}
