//! The keys with the most events, as `/top` shows them.
//!
//! Ranking looks at every key. A large table is ranked in steps, so that other requests have their
//! turn, and once for all who ask meanwhile or shortly after: each of them does a step when it is
//! its turn, and all get the same page.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hyper::body::Bytes;
use quipu_window::{Keyed, Ranking};

use crate::routes::digits;

/// The page of a table, shared by all threads.
#[derive(Debug, Default)]
pub struct Top(Mutex<Shared>);

#[derive(Debug, Default)]
struct Shared {
    running: Option<Ranking>,
    page: Option<(Instant, Arc<Page>)>,
    /// The pages that were finished.
    finished: u64,
}

/// A ranking as text.
#[derive(Debug)]
pub struct Page {
    text: Bytes,
    /// Where each line ends.
    ends: Vec<usize>,
}

/// A request that waits for a page.
#[derive(Debug)]
pub struct Asked {
    finished: u64,
}

impl Top {
    /// A page with the first keys of a small table, or one of a large table that is not old.
    /// Otherwise [`Top::step`] goes on.
    pub fn ask(&self, keys: &Keyed, most: usize) -> Result<Arc<Page>, Asked> {
        if keys.len() <= FEW_KEYS {
            return Ok(Arc::new(Page::new(keys.top(most))));
        }
        let shared = self.shared();
        shared
            .page
            .as_ref()
            .filter(|(finished, _)| finished.elapsed() < FRESH)
            .map_or(Err(Asked { finished: shared.finished }), |(_, page)| Ok(page.clone()))
    }

    /// Does a part of the ranking. Returns the page that was finished since the request asked, by
    /// this step or another one.
    pub fn step(&self, keys: &Keyed, asked: &Asked) -> Option<Arc<Page>> {
        let mut shared = self.shared();
        if shared.finished == asked.finished {
            let ranking = shared.running.get_or_insert_with(|| Ranking::new(MOST_KEYS));
            if !keys.rank(ranking, KEYS_A_STEP) {
                return None;
            }
            let page = Page::new(shared.running.take().map(Ranking::finish).unwrap_or_default());
            shared.page = Some((Instant::now(), Arc::new(page)));
            shared.finished += 1;
        }
        shared.page.as_ref().map(|(_, page)| page.clone())
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        // A ranking that panicked is as good as one that has not begun.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Page {
    fn new(ranked: Vec<(Vec<u8>, u64)>) -> Page {
        let (mut text, mut ends) = (Vec::new(), Vec::new());
        for (key, count) in ranked {
            text.extend_from_slice(&digits(count));
            text.push(b' ');
            // A key may hold line ends; a reader of lines must not be led astray.
            text.extend(key.escape_ascii());
            text.push(b'\n');
            ends.push(text.len());
        }
        Page { text: text.into(), ends }
    }

    /// The lines of the `most` first keys.
    pub fn first(&self, most: usize) -> Bytes {
        let last = most.min(self.ends.len()).checked_sub(1);
        self.text.slice(..last.map_or(0, |last| self.ends[last]))
    }
}

/// The most keys of one answer: some 300 KB of it.
pub const MOST_KEYS: usize = 1000;

/// The keys of a table that is ranked for each request.
const FEW_KEYS: usize = 1000;

/// The places of a large table that one step looks at, some 100 us with a cold cache.
const KEYS_A_STEP: usize = 128;

/// How old the page of a large table may be.
const FRESH: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    fn table(keys: usize) -> Keyed {
        let second = Duration::from_secs(1);
        let table = Keyed::options(second * 3600, second * 3600, keys).private().unwrap();
        (1..=keys).for_each(|n| {
            table.hit(format!("k{n}").as_bytes(), n as u64).unwrap();
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
    fn a_large_table_is_ranked_once_for_all_who_ask() {
        let (table, top) = (table(FEW_KEYS + 1), Top::default());
        let asked: Vec<Asked> = (0..3).map(|_| top.ask(&table, 10).unwrap_err()).collect();
        let mut steps = 0;
        let page = loop {
            steps += 1;
            if let Some(page) = asked.iter().cycle().nth(steps).and_then(|it| top.step(&table, it))
            {
                break page;
            }
        };
        assert_eq!(steps, (FEW_KEYS + 1).div_ceil(KEYS_A_STEP));
        assert_eq!(page.first(1), "00000000000000001001 k1001\n");
        assert_eq!(page.first(usize::MAX).iter().filter(|&&byte| byte == b'\n').count(), MOST_KEYS);
        for asked in &asked {
            assert!(Arc::ptr_eq(&page, &top.step(&table, asked).unwrap()));
        }
    }
}
