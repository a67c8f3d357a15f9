//! The instance: all processes that count in one segment, and the state that they share in a record
//! of the segment.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use quipu_segment::{Cells, Kind, LeaderLease, Segment};

use crate::error::Error;

/// The kind of the record in the segment.
const INSTANCE: Kind = Kind::new(*b"RDIS", 2);

/// The cells of the record, which `docs/formats.md` 5.8 describes. All are initially zero.
mod at {
    pub(super) const ID: usize = 0;
    pub(super) const LEAD: usize = 2;
    pub(super) const SEQUENCE: usize = 3;
    pub(super) const ACKED: usize = 4;
    pub(super) const ACKED_SERVER_TIME: usize = 5;
    /// Written for other readers.
    pub(super) const HEARTBEAT: usize = 6;
    pub(super) const PENDING: usize = 7;
    pub(super) const REQUESTED: usize = 8;
    pub(super) const DONE: usize = 9;
    pub(super) const CREATED: usize = 10;
    pub(super) const ACKED_HEARTBEAT: usize = 11;
    pub(super) const NEXT_HEARTBEAT: usize = 12;
    pub(super) const END: usize = 16;
}

/// An instance: all processes that count in one segment.
pub(super) struct Instance {
    segment: Segment,
    cells: Cells,
    id: String,
}

impl Instance {
    /// Finds the instance of a namespace in the segment, or creates it.
    pub(super) fn find_or_create(segment: &Segment, namespace: &str) -> Result<Self, Error> {
        let fail = |error| Error::because("redis", "the instance's record in the segment", error);
        let name = record_name(namespace);
        // If the lock cannot be taken, continue without it, because `oldest` settles the race.
        let _registration = segment.lock_registration();
        let mut cells = oldest(segment, &name).map_err(fail)?;
        if cells.is_none() {
            let draft = segment.reserve(INSTANCE, &name, at::END).map_err(fail)?;
            let id: [u8; 16] = random()?;
            for (i, half) in id.chunks_exact(8).enumerate() {
                let half = half.try_into().map_or(0, u64::from_le_bytes);
                draft.cells()[at::ID + i].store(half, Ordering::Relaxed);
            }
            draft.cells()[at::CREATED].store(now(), Ordering::Relaxed);
            draft.publish().map_err(fail)?;
            // Without the lock, another process can create one too: the record that was published
            // first is used.
            cells = oldest(segment, &name).map_err(fail)?;
        }
        let Some(cells) = cells.filter(|cells| cells.len() >= at::END) else {
            let reason = "the instance's record in the segment is too short: restore the file, or \
                        move it away to start afresh";
            return Err(Error::new("redis", reason));
        };
        let half = |at: usize| cells[at].load(Ordering::Relaxed);
        let id = format!("{:016x}{:016x}", half(at::ID), half(at::ID + 1));
        Ok(Self { segment: segment.clone(), cells, id })
    }

    /// Returns the name of the instance, unique among all.
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Makes this process the leader, which flushes. Returns `None` if there is a leader already.
    pub(super) fn lead(&self) -> Option<LeaderLease> {
        // If a process cannot be marked as alive, it does not lead; another one can.
        self.segment.lead(&self.cells, at::LEAD).ok().flatten()
    }

    /// Returns the number for the next write, greater than all earlier numbers.
    pub(super) fn next_write(&self) -> u64 {
        self.cell(at::SEQUENCE).fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Makes the numbers of later writes greater than `last`. This is needed if a power loss took
    /// the segment back to an older state.
    pub(super) fn skip_writes(&self, last: u64) {
        self.cell(at::SEQUENCE).fetch_max(last, Ordering::Relaxed);
    }

    /// Returns the ID of the last heartbeat that the server acknowledged, and the ID of the next
    /// heartbeat to send.
    ///
    /// The ID of a heartbeat consists of a number that increases by one, and random bits. This ID
    /// is stored in the segment before it is sent. So the segment knows every ID that the server
    /// can hold, unless another segment writes as this instance, for example a copy of the file.
    pub(super) fn heartbeat_ids(&self) -> Result<(u64, u64), Error> {
        let acked = self.cell(at::ACKED_HEARTBEAT).load(Ordering::Relaxed);
        let mut next = self.cell(at::NEXT_HEARTBEAT).load(Ordering::Relaxed);
        if next == acked {
            let random = u64::from(u32::from_le_bytes(random()?)) & ((1 << RANDOM_BITS) - 1);
            next = ((acked >> RANDOM_BITS) + 1) << RANDOM_BITS | random;
            self.cell(at::NEXT_HEARTBEAT).store(next, Ordering::Relaxed);
        }
        Ok((acked, next))
    }

    /// Records that the server acknowledged the heartbeat with this ID.
    pub(super) fn acknowledge_heartbeat(&self, id: u64) {
        self.cell(at::ACKED_HEARTBEAT).store(id, Ordering::Relaxed);
    }

    /// Requests a flush. Returns the number of the request; it is done when [`Instance::done`]
    /// reaches this number.
    pub(super) fn request_flush(&self) -> u64 {
        // AcqRel: the flush sees everything that was counted before the request.
        self.cell(at::REQUESTED).fetch_add(1, Ordering::AcqRel) + 1
    }

    pub(super) fn requested(&self) -> u64 {
        self.cell(at::REQUESTED).load(Ordering::Acquire)
    }

    pub(super) fn done(&self) -> u64 {
        self.cell(at::DONE).load(Ordering::Acquire)
    }

    /// Records that the server holds all that was counted before the request with this number,
    /// as of `heartbeat`, the time of the last heartbeat by the server's clock.
    pub(super) fn acknowledge(&self, requested: u64, heartbeat: u64) {
        self.cell(at::ACKED).store(now(), Ordering::Relaxed);
        self.cell(at::ACKED_SERVER_TIME).store(heartbeat, Ordering::Relaxed);
        self.cell(at::HEARTBEAT).store(heartbeat, Ordering::Relaxed);
        self.cell(at::PENDING).store(0, Ordering::Relaxed);
        self.cell(at::DONE).fetch_max(requested, Ordering::Release);
    }

    /// Returns the time when the last flush was acknowledged, by the server's clock in
    /// milliseconds; 0 if no flush was acknowledged.
    pub(super) fn acknowledged_server_time(&self) -> u64 {
        self.cell(at::ACKED_SERVER_TIME).load(Ordering::Relaxed)
    }

    pub(super) fn set_pending(&self, series: u64) {
        self.cell(at::PENDING).store(series, Ordering::Relaxed);
    }

    pub(super) fn pending(&self) -> u64 {
        self.cell(at::PENDING).load(Ordering::Relaxed)
    }

    /// Returns the time since the last acknowledged flush, or since the instance was created.
    pub(super) fn lag(&self) -> Duration {
        let acked = self.cell(at::ACKED).load(Ordering::Relaxed);
        let since = if acked == 0 { self.cell(at::CREATED).load(Ordering::Relaxed) } else { acked };
        Duration::from_millis(now().saturating_sub(since))
    }

    fn cell(&self, at: usize) -> &AtomicU64 {
        &self.cells[at]
    }
}

/// The number of random bits in the ID of a heartbeat; its number is in the bits above them.
const RANDOM_BITS: u32 = 24;

/// Returns the ID of a heartbeat in the form that is sent to the server.
pub(super) fn heartbeat_id_text(id: u64) -> String {
    format!("{}-{:06x}", id >> RANDOM_BITS, id & ((1 << RANDOM_BITS) - 1))
}

fn random<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    let result = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    // A call returns up to 256 bytes in one piece.
    result.map_err(|_| Error::new("redis", "the system provides no random numbers"))?;
    Ok(bytes)
}

/// Returns the record that was published first; `records` yields the newest first.
fn oldest(segment: &Segment, name: &str) -> Result<Option<Cells>, quipu_segment::Error> {
    // Returns an error if the record is of another version.
    segment.find(INSTANCE, name)?;
    let mut found = None;
    for record in segment.records() {
        let record = record?;
        if record.kind() == INSTANCE && record.name() == name {
            found = Some(record.cells().clone());
        }
    }
    Ok(found)
}

/// Reads the wall clock in milliseconds since 1970.
pub(super) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// Returns a record name of fixed length, from a hash (FNV-1a) of the namespace.
fn record_name(namespace: &str) -> String {
    let hash = quipu_segment::hash::fnv1a(namespace.as_bytes());
    format!("redis {hash:016x}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_record_of_another_version_is_refused() {
        let segment = Segment::private(1 << 20).unwrap();
        let later = Kind::new(*b"RDIS", 3);
        segment.reserve(later, &record_name("shop"), at::END).unwrap().publish().unwrap();
        assert!(Instance::find_or_create(&segment, "shop").is_err());
        assert!(Instance::find_or_create(&segment, "other").is_ok());
        assert_eq!(segment.records().count(), 2);
    }
}
