//! Keeps scrapes and replacements apart: a scrape sees a group of series before it is replaced, or
//! after that, but never a part of both.
//!
//! Nothing waits here. A handler that cannot enter returns to its thread and tries again.

use std::sync::atomic::{AtomicI64, Ordering};

/// The number of scrapes under way; -1 while a group is being replaced.
#[derive(Debug, Default)]
pub struct Gate(AtomicI64);

/// A scrape under way.
#[derive(Debug)]
pub struct Scraping<'g>(&'g Gate);

/// A replacement under way.
#[derive(Debug)]
pub struct Replacing<'g>(&'g Gate);

impl Gate {
    /// Begins a scrape, unless a group is being replaced.
    pub fn scrape(&self) -> Option<Scraping<'_>> {
        let next = |scrapes: i64| (scrapes >= 0).then_some(scrapes + 1);
        // Acquire and release, here and below: what one side did is seen by the other.
        let entered = self.0.fetch_update(Ordering::Acquire, Ordering::Relaxed, next);
        entered.is_ok().then(|| Scraping(self))
    }

    /// Begins to replace a group, unless a scrape or another replacement is under way.
    pub fn replace(&self) -> Option<Replacing<'_>> {
        let entered = self.0.compare_exchange(0, -1, Ordering::Acquire, Ordering::Relaxed);
        entered.is_ok().then(|| Replacing(self))
    }
}

impl Drop for Scraping<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Release);
    }
}

impl Drop for Replacing<'_> {
    fn drop(&mut self) {
        self.0.0.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scrapes_share_and_replacements_are_alone() {
        let gate = Gate::default();
        let (one, two) = (gate.scrape().unwrap(), gate.scrape().unwrap());
        assert!(gate.replace().is_none());
        drop(one);
        assert!(gate.replace().is_none());
        drop(two);
        let alone = gate.replace().unwrap();
        assert!(gate.scrape().is_none() && gate.replace().is_none());
        drop(alone);
        assert!(gate.scrape().is_some());
    }
}
