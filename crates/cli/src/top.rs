//! Ranks the keys by their events, for `GET /top`.
//!
//! A ranking reads every key. A large table is therefore ranked in steps, and other requests are
//! served in between. Requests that arrive during a ranking share it: each one runs a step in its
//! turn, and all get the same page. Requests shortly afterwards get this page as well.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hyper::body::Bytes;
use quipu_window::{KeyedWindows, Ranking};

use crate::routes::digits;

/// The ranking of one table, shared by all threads.
#[derive(Debug, Default)]
pub struct Top(Mutex<RankingState>);

/// The ranking in progress, and the last page.
#[derive(Debug, Default)]
struct RankingState {
    running: Option<Ranking>,
    page: Option<(Instant, Arc<Page>)>,
    /// The number of pages completed so far.
    finished: u64,
}

/// The page of a complete ranking.
#[derive(Debug)]
pub struct Page {
    text: Bytes,
    /// The end of each line.
    ends: Vec<usize>,
}

/// A request that waits for a page.
#[derive(Debug)]
pub struct PendingRequest {
    finished: u64,
}

impl Top {
    /// Returns a page immediately, if possible: a new page with the first `most` keys of a small
    /// table, or the last page of a large table if it is recent. Otherwise, continue with
    /// [`Top::step`].
    pub fn ask(&self, keys: &KeyedWindows, most: usize) -> Result<Arc<Page>, PendingRequest> {
        if keys.len() <= FEW_KEYS {
            return Ok(Arc::new(Page::new(keys.top(most))));
        }
        let state = self.state();
        state
            .page
            .as_ref()
            .filter(|(finished, _)| finished.elapsed() < FRESH)
            .map_or(Err(PendingRequest { finished: state.finished }), |(_, page)| Ok(page.clone()))
    }

    /// Runs one step of the ranking. Returns the first page that is completed after the request
    /// began, by this step or by a step of another request.
    pub fn step(&self, keys: &KeyedWindows, request: &PendingRequest) -> Option<Arc<Page>> {
        let mut state = self.state();
        if state.finished == request.finished {
            let ranking = state.running.get_or_insert_with(|| Ranking::new(MAX_KEYS));
            if !keys.rank(ranking, KEYS_PER_STEP) {
                return None;
            }
            let page = Page::new(state.running.take().map(Ranking::finish).unwrap_or_default());
            state.page = Some((Instant::now(), Arc::new(page)));
            state.finished += 1;
        }
        state.page.as_ref().map(|(_, page)| page.clone())
    }

    fn state(&self) -> MutexGuard<'_, RankingState> {
        // A poisoned mutex is fine, because a panic loses at most the running ranking.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Page {
    fn new(ranked: Vec<(Vec<u8>, u64)>) -> Page {
        let (mut text, mut ends) = (Vec::new(), Vec::new());
        for (key, count) in ranked {
            text.extend_from_slice(&digits(count));
            text.push(b' ');
            // Escape the key, because it can contain line feeds, which must not break the lines of
            // the page.
            text.extend(key.escape_ascii());
            text.push(b'\n');
            ends.push(text.len());
        }
        Page { text: text.into(), ends }
    }

    /// Returns the lines of the first `most` keys.
    pub fn first(&self, most: usize) -> Bytes {
        let last = most.min(self.ends.len()).checked_sub(1);
        self.text.slice(..last.map_or(0, |last| self.ends[last]))
    }
}

/// The maximum number of keys in a response, which then takes about 300 KB.
pub const MAX_KEYS: usize = 1000;

/// The maximum number of keys in a table that is ranked for each request.
const FEW_KEYS: usize = 1000;

/// The number of slots of a large table that one step reads. This takes about 100 us with a cold
/// cache.
const KEYS_PER_STEP: usize = 128;

/// The time for which the page of a large table is reused.
const FRESH: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    fn table(keys: usize) -> KeyedWindows {
        let second = Duration::from_secs(1);
        let table = KeyedWindows::options(second * 3600, second * 3600, keys).build().unwrap();
        (1..=keys).for_each(|n| {
            table.add_and_count(format!("k{n}").as_bytes(), n as u64).unwrap();
        });
        table
    }

    #[test]
    fn a_small_table_is_ranked_at_once() {
        let page = Top::default().ask(&table(3), 2).unwrap();
        assert_eq!(page.first(2), "00000000000000000003 k3\n00000000000000000002 k2\n");
        assert_eq!(page.first(1), "00000000000000000003 k3\n");
        assert_eq!(page.first(0), "");
    }

    #[test]
    fn a_large_table_is_ranked_once_for_all_requests() {
        let (table, top) = (table(FEW_KEYS + 1), Top::default());
        let requests: Vec<PendingRequest> =
            (0..3).map(|_| top.ask(&table, 10).unwrap_err()).collect();
        let mut steps = 0;
        let page = loop {
            steps += 1;
            if let Some(page) =
                requests.iter().cycle().nth(steps).and_then(|request| top.step(&table, request))
            {
                break page;
            }
        };
        assert_eq!(steps, (FEW_KEYS + 1).div_ceil(KEYS_PER_STEP));
        assert_eq!(page.first(1), "00000000000000001001 k1001\n");
        assert_eq!(page.first(usize::MAX).iter().filter(|&&byte| byte == b'\n').count(), MAX_KEYS);
        for request in &requests {
            assert!(Arc::ptr_eq(&page, &top.step(&table, request).unwrap()));
        }
    }
}
