//! Reads the ticks of the flight recorder from a file that may be in use.

use std::ops::{ControlFlow, RangeInclusive};

use super::Inspection;
use super::source::Source;
use crate::history::{HISTORY, Load, RecordingInfo, Tick, replay_words};
use crate::layout::RECORD_BYTES;
use crate::sync::{Ordering, fence};

impl Inspection {
    /// Calls `visit` with each recorded tick in this range of segment time. The first ticks may be
    /// from before the range. Returns `None` if the file contains no flight recorder.
    ///
    /// You can match a series of a tick with [`SeriesSeen::id`](super::SeriesSeen::id), and its
    /// family with [`FamilySeen::at`](super::FamilySeen::at), as long as both still exist.
    pub fn history(
        &self,
        times: RangeInclusive<u64>,
        mut visit: impl FnMut(&Tick<'_>),
    ) -> Option<RecordingInfo> {
        self.history_while(times, |tick| {
            visit(tick);
            ControlFlow::Continue(())
        })
    }

    /// Like [`Inspection::history`], but stops when `visit` breaks.
    pub fn history_while(
        &self,
        times: RangeInclusive<u64>,
        mut visit: impl FnMut(&Tick<'_>) -> ControlFlow<()>,
    ) -> Option<RecordingInfo> {
        let is_recorder = |record: &&super::RecordSeen| record.kind.tag() == HISTORY.tag();
        let record = self.report.records.iter().rfind(is_recorder)?;
        if record.kind != HISTORY {
            let reason = format!(
                "the flight recorder is of version {}, and this program reads version {}",
                record.kind.version(),
                HISTORY.version()
            );
            return Some(RecordingInfo {
                damage: vec![(record.at, reason)],
                ..RecordingInfo::default()
            });
        }
        let first = (record.at + RECORD_BYTES) / 8;
        let words = record.bytes.saturating_sub(RECORD_BYTES) / 8;
        let there = (self.source.length() / 8).saturating_sub(first);
        let words = usize::try_from(words.min(there)).unwrap_or(usize::MAX);
        let words = FileWords { source: &self.source, first, words };
        let mut replayed = replay_words(&words, times, &mut visit);
        replayed.damage.iter_mut().for_each(|(at, _)| *at += first * 8);
        Some(replayed)
    }
}

/// The words of a record, loaded from a file.
struct FileWords<'s> {
    source: &'s Source,
    first: u64,
    words: usize,
}

impl Load for FileWords<'_> {
    fn load(&self, at: usize) -> u64 {
        let mut word = [0];
        self.copy(at, &mut word);
        // Acquire, because the trait demands it. The system copies from the same pages that the
        // writer maps.
        fence(Ordering::Acquire);
        word[0]
    }

    fn copy(&self, from: usize, into: &mut [u64]) {
        let count = self.words.saturating_sub(from).min(into.len());
        let (there, rest) = into.split_at_mut(count);
        rest.fill(0);
        if count > 0 {
            self.source.fresh(self.first.saturating_add(from as u64), there);
        }
    }

    fn words(&self) -> usize {
        self.words
    }
}
