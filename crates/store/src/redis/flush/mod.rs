//! Flushes the values that changed to the server, and folds dead instances.
//!
//! `diff.rs` finds the changes since the last flush, `calls.rs` writes them, and `fold.rs` moves
//! ended series and instances to the archive.
//!
//! All values are absolute, so a write whose response was lost can be repeated. After any error, we
//! write everything again, because we cannot know which of the last writes the server applied, and
//! it may have lost earlier ones as well.

mod calls;
mod diff;
mod fold;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::redis::Value;
use quipu::Registry;

use self::calls::Calls;
use self::diff::{SentState, Walk};
use super::instance::{Instance, heartbeat_id_text};
use super::key::NamespaceKeys;
use super::link::{Call, Failure, Link, items, text};
use super::meta::OWN;
use super::options::RedisOptions;
use super::script::HEARTBEAT;

/// The maximum number of pairs of field and value in one call, which the server runs as a unit.
const MAX_PAIRS: usize = 500;
/// The maximum number of calls in one pipeline. This limits the memory for calls.
const MAX_CALLS: usize = 32;
/// The maximum number of dead instances that one flush folds.
const MAX_FOLDED: usize = 8;

/// The state of the flushing process, including its knowledge of the values in the server.
pub(super) struct Flusher {
    options: RedisOptions,
    instance: Arc<Instance>,
    global: NamespaceKeys,
    link: Option<Link>,
    state: SentState,
    /// The time of this instance's last heartbeat, by the server's clock.
    heartbeat: u64,
    refreshed: Instant,
    /// [`quipu_segment::Segment::newest`] at the last flush.
    newest: u64,
}

/// The result of a flush.
#[derive(Debug, Default)]
pub(super) struct Done {
    pub(super) series: u64,
    pub(super) folded: u64,
    /// The error that prevented folding a dead instance.
    pub(super) unfolded: Option<Failure>,
}

impl Flusher {
    pub(super) fn new(options: RedisOptions, instance: Arc<Instance>) -> Self {
        let global = NamespaceKeys::new(&options.namespace);
        let (link, state, heartbeat, refreshed) = (None, SentState::default(), 0, Instant::now());
        Self { options, instance, global, link, state, heartbeat, refreshed, newest: 0 }
    }

    /// Writes the values that changed since the last flush.
    pub(super) fn flush(&mut self, registry: &Registry) -> Result<Done, Failure> {
        let result = self.try_flush(registry);
        if result.is_err() {
            self.link = None;
            self.newest = 0;
            self.state.distrust();
            self.instance.set_pending(self.pending(registry));
        }
        result
    }

    fn try_flush(&mut self, registry: &Registry) -> Result<Done, Failure> {
        // We read this before the walk over the registry, because the walk must see everything that
        // was counted before the request.
        let requested = self.instance.requested();
        let mut link = match self.link.take() {
            Some(link) => link,
            None => Link::connect(&self.options)?,
        };
        let dead = self.heartbeat(&mut link)?;
        let series = self.write(&mut link, registry)?;
        self.state.trust();
        self.retire(&mut link)?;
        self.instance.acknowledge(requested, self.heartbeat);
        // A failure to fold is retried later, so it does not delay this or other instances.
        let (folded, unfolded) = self.fold(&mut link, &dead);
        if unfolded.is_none() {
            self.link = Some(link);
        }
        Ok(Done { series, folded, unfolded })
    }

    /// Sends a heartbeat. Returns the dead instances that this instance should fold.
    fn heartbeat(&mut self, link: &mut Link) -> Result<Vec<String>, Failure> {
        let (acked, next) =
            self.instance.heartbeat_ids().map_err(|error| Failure::other(&error.to_string()))?;
        let mut heartbeat = Call::new(&HEARTBEAT, &self.global.of_instances());
        heartbeat.arg(self.instance.id());
        heartbeat.arg(&millis(self.options.dead_after).to_string()).arg(&MAX_FOLDED.to_string());
        heartbeat.arg(&heartbeat_id_text(acked)).arg(&heartbeat_id_text(next));
        let replies = link.run(&[heartbeat])?;
        if replies.first() == Some(&Value::Int(-1)) {
            return Err(Failure::copied());
        }
        self.instance.acknowledge_heartbeat(next);
        let reply = replies.first().map(items).unwrap_or_default();
        let time = |at: usize| reply.get(at).and_then(text)?.parse::<u64>().ok();
        // If this is not the time of the last heartbeat, the server lost its data, or returned to
        // an older state.
        let is_lost = time(0).unwrap_or(0) != self.heartbeat;
        if is_lost || self.refreshed.elapsed() >= self.options.refresh {
            self.state.distrust();
            self.refreshed = Instant::now();
        }
        self.heartbeat = time(1).unwrap_or(0);
        Ok(reply.iter().skip(2).filter_map(text).map(str::to_owned).collect())
    }

    /// Writes the values that changed. Returns their number.
    fn write(&mut self, link: &mut Link, registry: &Registry) -> Result<u64, Failure> {
        let hiding = self.hiding(registry)?;
        let is_adopting = self.is_forgotten();
        let calls = Calls::new(link, &self.global, &self.instance, is_adopting);
        let namespace = &self.options.namespace;
        let mut walk = Walk::new(&mut self.state, calls, namespace, hiding, self.heartbeat);
        if let Err(error) = registry.visit_segment(&mut walk) {
            return Err(Failure::other(&error.to_string()));
        }
        walk.finish()
    }

    /// Returns the families that hide idle series; none if there is no new family since the last
    /// flush.
    fn hiding(&mut self, registry: &Registry) -> Result<HashSet<String>, Failure> {
        let newest = registry.segment().newest();
        if newest == self.newest {
            return Ok(HashSet::new());
        }
        self.newest = newest;
        let families = registry.segment().families();
        let families = families.map_err(|error| Failure::other(&error.to_string()))?;
        let schemas = families.iter().map(|family| family.schema());
        Ok(schemas.filter(|schema| schema.idle.is_some()).map(|s| s.name.clone()).collect())
    }

    /// Returns whether this instance was silent for so long that the server may have dropped the
    /// copy of its folded values.
    fn is_forgotten(&self) -> bool {
        let acked = self.instance.acknowledged_server_time();
        let is_remembered = millis(self.options.dead_after.saturating_add(self.options.keep));
        acked != 0 && self.heartbeat.saturating_sub(acked) > is_remembered
    }

    /// Returns the number of values to write after an error: all values.
    fn pending(&self, registry: &Registry) -> u64 {
        match self.state.series() {
            // Before the first walk over the registry, count all of its series.
            0 => registry.segment().families().map_or(0, |families| {
                let counted = families.iter().filter(|f| !f.schema().name.starts_with(OWN));
                counted.map(|family| family.len()).sum()
            }),
            known => known,
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
