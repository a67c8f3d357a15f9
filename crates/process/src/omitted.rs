//! Logs the families that are omitted from a page, because a scraper would otherwise reject the
//! whole page.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use quipu::exposition::{Omissions, Rule};
use quipu_segment::printable;
use tracing::warn;

/// The families that were already logged. Each family is logged once.
#[derive(Debug, Default)]
pub struct OmittedFamilies(Mutex<HashSet<(String, Rule)>>);

/// The maximum number of families to remember. Later ones are only counted in
/// `quipu_series_omitted`.
const MAX_REMEMBERED: usize = 1000;

impl OmittedFamilies {
    /// Logs the omitted families of a page that were not logged before.
    pub fn log(&self, omissions: &Omissions) {
        if omissions.is_empty() {
            return;
        }
        let mut logged = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (family, rule) in omissions.families() {
            if logged.len() >= MAX_REMEMBERED {
                return;
            }
            if logged.insert((family.to_owned(), rule)) {
                warn!(
                    name = %printable(family),
                    reason = rule.as_str(),
                    way_out = way_out(rule),
                    "/metrics omits a family, because a scraper would refuse the page with it"
                );
            }
        }
    }
}

fn way_out(rule: Rule) -> &'static str {
    match rule {
        Rule::Name => "give the metric a name",
        Rule::UniqueNames => "rename it: another metric has this name, or a sample with this name",
        Rule::LabelNames => {
            "rename its labels: two are equal once they are escaped, or one is reserved"
        }
        Rule::Buckets => "send bounds that ascend to +Inf, and buckets that add up to the count",
        Rule::Quantiles => "send quantiles that ascend from 0 to 1",
        _ => "see \"Omitted series\" in docs/daemon/in/index.md",
    }
}

#[cfg(test)]
mod tests {
    use quipu::exposition::{Encoder, Escaping, Format};
    use quipu::snapshot::Sink;

    use super::*;

    #[test]
    fn a_family_is_remembered_once_for_each_rule() {
        let omitted = OmittedFamilies::default();
        for _ in 0..3 {
            let mut encoder = Encoder::new(Format::Text, Escaping::default());
            for name in ["x", "x_", "x.", "x", ""] {
                let sink: &mut dyn Sink = &mut encoder;
                sink.gauge(name, "", []).sample([], 1);
            }
            omitted.log(encoder.omissions());
        }
        let mut logged: Vec<_> = omitted.0.lock().unwrap().iter().cloned().collect();
        logged.sort_by_key(|(name, _)| name.clone());
        let of = |name: &str, rule| (name.to_owned(), rule);
        let taken = Rule::UniqueNames;
        assert_eq!(logged, [of("", Rule::Name), of("x", taken), of("x.", taken)]);
    }
}
