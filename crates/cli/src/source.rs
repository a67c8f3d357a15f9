//! What is sent: all that `/metrics` shows.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use quipu::snapshot::Sink;

use crate::state::State;
use quipu_agent::{All, Merged, Reading, Watched};
use quipu_client::via::Via;
use quipu_intake::Shared;
use quipu_intake::gate::Scraping;
use quipu_outputs as outputs;

/// What is watched, what came in, and the daemon's own metrics.
pub struct Source {
    state: &'static State,
    shared: &'static Shared,
    watched: Option<Watched>,
}

impl Source {
    /// What this state has, what the collectors of its registry show, and what is watched.
    pub fn new(state: &'static State, shared: &'static Shared, watched: Option<Watched>) -> Self {
        Self { state, shared, watched }
    }

    /// Merges the families of sources with those that came in, and waits until no group is being
    /// replaced. Merges again if a family came in meanwhile: series that are missing once would be
    /// sent as ended.
    fn merge(&self, watched: &Watched) -> (Arc<Merged>, Scraping<'static>) {
        let mut merges = 0;
        loop {
            let reading = watched.fresh();
            let scraping = self.enter();
            let Reading::Of(merged) = reading else { return (Arc::default(), scraping) };
            merges += 1;
            if merges == MAX_MERGES || !merged.is_behind(self.state.intake.registry()) {
                return (merged, scraping);
            }
        }
    }

    /// Waits until no group is being replaced, and helps with that as scrapes do.
    fn enter(&self) -> Scraping<'static> {
        let mut place = None;
        loop {
            if let Some(scraping) = self.shared.gate.scrape(&mut place) {
                return scraping;
            }
            if !self.shared.push.go_on(&mut self.state.intake.clone(), &self.shared.refusals) {
                thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

impl outputs::Source for Source {
    fn via(&self) -> &'static Via {
        &self.shared.via
    }

    fn visit(&self, sink: &mut dyn Sink) -> Result<(), quipu::Error> {
        let (merged, scraping) = match &self.watched {
            Some(watched) => self.merge(watched),
            None => (Arc::default(), self.enter()),
        };
        let mut all = All::over(self.state.intake.registry(), &merged, &[])?;
        while all.step_own(sink, |_| false) {}
        drop(scraping);
        while all.step_rest(sink, |_| false) {}
        Ok(())
    }
}

/// The most merges for one visit, while families keep coming in.
const MAX_MERGES: usize = 5;
