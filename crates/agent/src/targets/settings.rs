//! Declares the settings of scraping, checks them, and converts them to `Options`.
//! Each setting is a flag, an environment variable and a key of the settings file.

use std::path::PathBuf;
use std::time::Duration;

use quipu_client::credentials::Credentials;
use quipu_client::header_text::check_credentials;
use quipu_client::url_text::{self, UrlText};
use quipu_process::flags;
use quipu_process::settings::{Unusable, at_least, in_range, set};
use quipu_process::size::Size;
use quipu_process::time::Time;
use quipu_segment::printable;

use super::{Options, Target, TargetFile};

flags! {
    /// The flags of scraping.
    #[command(next_help_heading = "Scraping")]
    pub struct TargetFlags {
        /// Target whose metrics are scraped and shown: [JOB=]URL, where URL is
        /// http://HOST:PORT/PATH, the same with https, or unix:SOCKET:/PATH; may be given up to 250
        /// times [default: none]
        #[arg(
            long,
            env = "QUIPU_SCRAPE",
            value_name = "[JOB=]URL",
            value_delimiter = '\n',
            hide_env_values = true
        )]
        #[serde(deserialize_with = "quipu_process::settings::list")]
        scrape: Vec<UrlText>,

        /// How often each target is scraped, at least 100ms [default: 15s]
        #[arg(long, env = "QUIPU_SCRAPE_INTERVAL", value_name = "TIME")]
        scrape_interval: Time = Time(Duration::from_secs(15)),

        /// Time limit of a scrape [default: 10s, or the interval if that is shorter]
        #[arg(long, env = "QUIPU_SCRAPE_TIMEOUT", value_name = "TIME")]
        scrape_timeout: Time,

        /// Maximum bytes of a target's exposition, expanded; the scrape of a larger one fails
        /// [default: 67108864]
        #[arg(long, env = "QUIPU_SCRAPE_BODY_BYTES", value_name = "BYTES")]
        scrape_body_bytes: Size<u64> = Size(64 << 20),

        /// Maximum number of samples of a target's exposition; the scrape of a larger one fails
        /// [default: 500000]
        #[arg(long, env = "QUIPU_SCRAPE_SAMPLES", value_name = "COUNT")]
        scrape_samples: Size<usize> = Size(500_000),

        /// File with the token for the header Authorization: Bearer, for the targets of the job, or
        /// for all targets without a more specific file; may be given several times [default: none]
        #[arg(
            long,
            env = "QUIPU_SCRAPE_BEARER_FILE",
            value_name = "[JOB=]FILE",
            value_delimiter = '\n'
        )]
        #[serde(deserialize_with = "quipu_process::settings::list")]
        scrape_bearer_file: Vec<TargetFile>,

        /// File with USER:PASSWORD, for the header Authorization: Basic, with the same choice of
        /// targets as --scrape-bearer-file; may be given several times [default: none]
        #[arg(
            long,
            env = "QUIPU_SCRAPE_BASIC_FILE",
            value_name = "[JOB=]FILE",
            value_delimiter = '\n'
        )]
        #[serde(deserialize_with = "quipu_process::settings::list")]
        scrape_basic_file: Vec<TargetFile>,
    }
}

impl TargetFlags {
    /// Checks the flags and returns the options of the targets.
    ///
    /// # Errors
    /// Fails for an invalid URL or a URL with a password, for two targets with the same series, for
    /// times that contradict each other, for a number out of its bounds, and for a credentials file
    /// without a target.
    pub fn resolve(&mut self) -> Result<Options, Unusable> {
        let of = str::parse::<Target>;
        let targets = url_text::read("scrape", self.scrape.as_ref(), of, Target::url)?;
        for (at, target) in targets.iter().enumerate() {
            let is_same = |other: &&Target| {
                (other.job(), other.instance()) == (target.job(), target.instance())
            };
            if let Some(other) = targets[..at].iter().find(is_same) {
                let (job, instance) = (target.job(), target.instance());
                let reason = format!(
                    "{target} and {other} have the job {job} and the instance {instance}, so that \
                     their series could not be told apart; give one of them another job: JOB=URL"
                );
                return Err(Unusable::new("scrape", reason));
            }
        }
        if targets.len() > MOST {
            let count = targets.len();
            let reason = format!(
                "there are {count} targets, and each has a thread; give at most {MOST}, and others \
                 to another daemon"
            );
            return Err(Unusable::new("scrape", reason));
        }
        let interval = at_least("scrape-interval", self.scrape_interval, MIN_INTERVAL)?;
        self.scrape_timeout.get_or_insert(Time(TIMEOUT.min(interval)));
        let timeout = at_least("scrape-timeout", self.scrape_timeout, MIN_TIMEOUT)?;
        if timeout > interval {
            let reason = format!(
                "{} is longer than the interval; give at most {}",
                Time(timeout),
                Time(interval)
            );
            return Err(Unusable::new("scrape-timeout", reason));
        }
        Ok(Options {
            credentials: credentials(self, &targets)?,
            targets,
            interval,
            timeout,
            body_bytes: set(self.scrape_body_bytes).0.clamp(1, 1 << 31),
            samples: in_range("scrape-samples", self.scrape_samples, 1, 1 << 26)?,
        })
    }
}

/// Returns the credentials for each target: from the file for its job, or else from the file for
/// all jobs.
fn credentials(
    flags: &TargetFlags,
    targets: &[Target],
) -> Result<Vec<Option<Credentials>>, Unusable> {
    let mut all: Vec<(Option<&str>, Credentials)> = Vec::new();
    let kinds: [fn(PathBuf) -> Credentials; 2] = [Credentials::Bearer, Credentials::Basic];
    let given = [(BEARER, &flags.scrape_bearer_file), (BASIC, &flags.scrape_basic_file)];
    for ((flag, files), of) in given.into_iter().zip(kinds) {
        for TargetFile { job, path } in files.iter().flatten() {
            let job = job.as_deref();
            let name = job.map_or("all targets".to_owned(), |job| format!("the job {job}"));
            let shown = printable(path);
            let reason = if !targets.iter().any(|target| job.is_none_or(|job| target.job() == job))
            {
                format!("{shown} is for {name}, and there is no such target; give it by --scrape")
            } else if all.iter().any(|(other, _)| *other == job) {
                format!(
                    "{shown} is the second file for {name}, with those of --{BEARER} and \
                     --{BASIC}; give one of them, or the job of its targets: JOB=FILE"
                )
            } else {
                all.push((job, of(path.clone())));
                continue;
            };
            return Err(Unusable::new(flag, reason));
        }
    }
    let of = |job| all.iter().find(|(other, _)| *other == job).map(|(_, found)| found.clone());
    Ok(targets.iter().map(|target| of(Some(target.job())).or_else(|| of(None))).collect())
}

impl Options {
    /// Reads the credentials files of the targets.
    ///
    /// # Errors
    /// Fails for a file that cannot be read or used.
    pub fn check_secrets(&self) -> Result<(), Unusable> {
        let mut files = self.credentials.iter().flatten();
        files.try_for_each(|credentials| check_credentials(credentials, BEARER, BASIC))
    }
}

const BEARER: &str = "scrape-bearer-file";
const BASIC: &str = "scrape-basic-file";

/// The maximum number of targets.
const MOST: usize = 250;
/// The default time limit of a scrape.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The minimum interval, because a shorter one is most likely a mistake.
const MIN_INTERVAL: Duration = Duration::from_millis(100);
/// The minimum time limit, for the same reason.
const MIN_TIMEOUT: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(toml: &str) -> Result<Options, Unusable> {
        let flags: TargetFlags = toml::from_str(toml).unwrap();
        flags.or(TargetFlags::defaults()).resolve()
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
            ("scrape = [\"http://u:p@a/\"]".to_owned(), "value 1: the URL has a password"),
            ("scrape = [\"http://a/x\", \"http://a:80/y\"]".to_owned(), "another job"),
            (format!("scrape = [{}]", many.join(",")), "give at most 250"),
        ] {
            let error = resolved(&toml).unwrap_err().to_string();
            assert!(error.contains(part), "{toml}: {error}");
        }
        let file = |toml: &str| format!("scrape = [\"x=http://a\", \"y=http://b\"]\n{toml}");
        for (toml, part) in [
            (
                "scrape-basic-file = [\"f\"]".to_owned(),
                "f is for all targets, and there is no such target",
            ),
            (file("scrape-basic-file = [\"z=f\"]"), "--scrape-basic-file: f is for the job z"),
            (file("scrape-bearer-file = [\"x=f\", \"x=g\"]"), "g is the second file for the job x"),
            (file("scrape-bearer-file = [\"f\"]\nscrape-basic-file = [\"g\"]"), "JOB=FILE"),
        ] {
            let error = resolved(&toml).unwrap_err().to_string();
            assert!(error.contains(part), "{toml}: {error}");
        }
        let both = "scrape = [\"x=http://a/x\", \"http://a:80/y\"]";
        assert_eq!(resolved(both).unwrap().targets.len(), 2);
    }

    #[test]
    fn a_file_is_for_its_job_or_for_the_others() {
        let of = |toml: &str| {
            let targets = "scrape = [\"x=http://a\", \"y=http://b\", \"http://c\", \"x=http://d\"]";
            resolved(&format!("{targets}\n{toml}")).unwrap().credentials
        };
        let bearer = |path: &str| Some(Credentials::Bearer(path.into()));
        let basic = |path: &str| Some(Credentials::Basic(path.into()));
        assert_eq!(of(""), [None, None, None, None]);
        let files = "scrape-bearer-file = [\"f\", \"scrape=g\"]\nscrape-basic-file = [\"x=h\"]";
        assert_eq!(of(files), [basic("h"), bearer("f"), bearer("g"), basic("h")]);
        assert_eq!(of("scrape-bearer-file = [\"y=f\"]"), [None, bearer("f"), None, None]);
    }
}
