//! Provides the outputs with all metrics on `/metrics`.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use quipu::snapshot::Sink;

use crate::state::State;
use quipu_agent::{AgentReadings, MergedFamilies, PageWalk, Reading};
use quipu_client::via::Via;
use quipu_intake::Shared;
use quipu_intake::gate::ScrapeGuard;
use quipu_outputs as outputs;

/// The metrics of watched sources, of inputs, and of the daemon.
pub struct Source {
    state: &'static State,
    shared: &'static Shared,
    watched: Option<AgentReadings>,
}

impl Source {
    /// Creates a source from a state with its collectors, and from watched sources.
    pub fn new(
        state: &'static State,
        shared: &'static Shared,
        watched: Option<AgentReadings>,
    ) -> Self {
        Self { state, shared, watched }
    }

    /// Merges the families of watched sources with the families of inputs, after waiting until no
    /// group is being replaced. If a family was created in the meantime, this merges again, because
    /// the outputs would otherwise end the family's missing series.
    fn merge(&self, watched: &AgentReadings) -> (Arc<MergedFamilies>, ScrapeGuard<'static>) {
        let mut merges = 0;
        loop {
            let reading = watched.fresh();
            let scraping = self.enter();
            let Reading::Families(merged) = reading else { return (Arc::default(), scraping) };
            merges += 1;
            if merges == MAX_MERGES || !merged.is_behind(self.state.intake.registry()) {
                return (merged, scraping);
            }
        }
    }

    /// Waits until no group is being replaced. Helps with the replacement, like a scrape.
    fn enter(&self) -> ScrapeGuard<'static> {
        let mut place = None;
        loop {
            if let Some(scraping) = self.shared.gate.scrape(&mut place) {
                return scraping;
            }
            if !self
                .shared
                .push
                .continue_parked(&mut self.state.intake.clone(), &self.shared.refusals)
            {
                thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

impl outputs::Source for Source {
    fn via(&self) -> &'static Via {
        &self.shared.via
    }

    fn visit(&self, mut sink: &mut dyn Sink) -> Result<(), quipu::Error> {
        let (merged, scraping) = match &self.watched {
            Some(watched) => self.merge(watched),
            None => (Arc::default(), self.enter()),
        };
        let mut all = PageWalk::over(self.state.intake.registry(), &merged, &[])?;
        while all.step_own(&mut sink, |_| false) {}
        drop(scraping);
        while all.step_rest(&mut sink, |_| false) {}
        Ok(())
    }
}

/// The maximum number of merges while new families keep appearing.
const MAX_MERGES: usize = 5;
