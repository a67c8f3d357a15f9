//! The settings of what the daemon scrapes.

use std::time::Duration;

use super::{Error, Flags, Time, at_least, number, set};
use crate::agent::targets::Options;

/// The settings of the targets.
pub(super) fn resolve(flags: &mut Flags) -> Result<Options, Error> {
    let targets = flags.scrape.clone().unwrap_or_default();
    for (at, target) in targets.iter().enumerate() {
        let is_same = |other: &&crate::agent::targets::Target| {
            (other.job(), other.instance()) == (target.job(), target.instance())
        };
        if let Some(other) = targets[..at].iter().find(is_same) {
            let (job, instance) = (target.job(), target.instance());
            let what = format!(
                "{target} and {other} have the job {job} and the instance {instance}, so that their \
                 series could not be told apart; give one of them another job: JOB=URL"
            );
            return Err(Error::Value("scrape", what));
        }
    }
    if targets.len() > MOST {
        let count = targets.len();
        let what = format!(
            "there are {count} targets, and each has a thread; give at most {MOST}, and others to \
             another daemon"
        );
        return Err(Error::Value("scrape", what));
    }
    let interval = at_least("scrape-interval", flags.scrape_interval, MIN_INTERVAL)?;
    flags.scrape_timeout.get_or_insert(Time(TIMEOUT.min(interval)));
    let timeout = at_least("scrape-timeout", flags.scrape_timeout, MIN_TIMEOUT)?;
    if timeout > interval {
        let what = format!(
            "{} is longer than the interval; give at most {}",
            Time(timeout),
            Time(interval)
        );
        return Err(Error::Value("scrape-timeout", what));
    }
    Ok(Options {
        targets,
        interval,
        timeout,
        body_bytes: set(flags.scrape_body_bytes).clamp(1, 1 << 31),
        samples: number("scrape-samples", flags.scrape_samples, 1, 1 << 26)?,
    })
}

/// The most targets.
const MOST: usize = 250;
/// The default time limit.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The shortest interval and time limit; a shorter one is most likely a mistake.
const MIN_INTERVAL: Duration = Duration::from_millis(100);
const MIN_TIMEOUT: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(toml: &str) -> Result<Options, Error> {
        let flags: Flags = toml::from_str(toml).unwrap();
        resolve(&mut flags.or(Flags::defaults()))
    }

    #[test]
    fn a_scrape_is_over_before_the_next_one() {
        let timeout = |toml| resolved(toml).unwrap().timeout.as_secs();
        assert_eq!(timeout(""), 10);
        assert_eq!(timeout("scrape-interval = \"4s\""), 4);
        assert_eq!(timeout("scrape-timeout = \"15s\""), 15);
        let many: Vec<String> = (0..251).map(|n| format!("\"http://a:{n}\"")).collect();
        for (toml, part) in [
            ("scrape-timeout = \"16s\"".to_owned(), "give at most 15s"),
            ("scrape-interval = \"1ms\"".to_owned(), "give at least 100ms"),
            ("scrape-samples = 0".to_owned(), "give 1 to"),
            ("scrape = [\"http://a/x\", \"http://a:80/y\"]".to_owned(), "another job"),
            (format!("scrape = [{}]", many.join(",")), "give at most 250"),
        ] {
            let error = resolved(&toml).unwrap_err().to_string();
            assert!(error.contains(part), "{toml}: {error}");
        }
        let both = "scrape = [\"x=http://a/x\", \"http://a:80/y\"]";
        assert_eq!(resolved(both).unwrap().targets.len(), 2);
    }
}
