//! The part of a queue that one shard of a receiver fills and sends.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{Id, Queue};
use crate::remote_write::snapshot::Body;

/// The requests of one shard.
#[derive(Debug)]
pub(crate) struct Lane {
    queue: Arc<Mutex<Queue>>,
    shard: u8,
}

impl Lane {
    /// The lanes of a queue, in the order of the shards.
    pub(crate) fn all(queue: Queue) -> Vec<Self> {
        let shards = 0..=queue.last_shard;
        let queue = Arc::new(Mutex::new(queue));
        shards.map(|shard| Self { queue: Arc::clone(&queue), shard }).collect()
    }

    /// [`Queue::push`]
    pub(in crate::remote_write) fn push(&self, timestamp_ms: i64, body: &Body) -> Option<Id> {
        self.lock().push(self.shard, timestamp_ms, body)
    }

    /// [`Queue::front`]
    pub(in crate::remote_write) fn front(&self) -> Option<(Id, Body)> {
        self.lock().front(self.shard)
    }

    /// [`Queue::finish`]
    pub(in crate::remote_write) fn finish(&self, id: Id) {
        self.lock().finish(id);
    }

    /// [`Queue::blame`]
    pub(in crate::remote_write) fn blame(&self, id: Id) {
        self.lock().blame(id);
    }

    /// [`Queue::count_refused`]
    pub(in crate::remote_write) fn count_refused(&self, samples: u64) {
        self.lock().count_refused(samples);
    }

    /// [`Queue::show_age`]
    pub(in crate::remote_write) fn show_age(&self, now_ms: i64) {
        self.lock().show_age(now_ms);
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
