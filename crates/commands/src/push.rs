//! `quipu push`: counts in a running daemon from a shell, through the daemon's routes for pushes.
//!
//! Each push carries an identifier. The daemon counts a push with the same identifier only once, so
//! the command can repeat a push whose response was lost.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use hyper::header::{CONTENT_TYPE, HeaderName, LOCATION};
use quipu_client::ReceiverUrl;
use quipu_client::headers::Headers;
use quipu_client::sender::{Answer, Client, NoResponse};
use quipu_client::url_text::{check_port, without_password};
use quipu_process::address::with_host;
use quipu_process::signals::not_ignored;
use quipu_process::time::{Time, now_ns};
use quipu_segment::printable;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::count::{SeriesName, number};
use crate::inspect::names::append_label;
use crate::look::series_name;
use crate::output::{Error, warn};

/// Arguments of `quipu push`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "\
Examples:
  quipu push 'jobs_total{queue=\"mail\"}'
  quipu push --job backup --group host=db1 bytes_total 4096
  quipu push --set backup_age_seconds 30
  quipu push --to https://metrics.example.com --for 1m jobs_total

The command repeats a push that gets no response, and the daemon counts it once. If the command \
gives up or is interrupted, it prints the identifier, so that you can repeat the push later with \
--id.")]
pub struct Push {
    /// URL, HOST:PORT or PORT of the daemon
    #[arg(long, value_name = "URL", default_value = "127.0.0.1:8081")]
    to: String,

    /// Job of the group that the push changes
    #[arg(long, value_name = "NAME", default_value = "shell")]
    job: String,

    /// Further label of the group; can be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = group)]
    group: Vec<(String, String)>,

    /// Sets a gauge to the number, instead of adding the number to a counter
    #[arg(long, requires = "n")]
    set: bool,

    /// Time for which the command repeats a push that gets no response
    #[arg(long = "for", value_name = "TIME", default_value = "10s")]
    time: Time,

    /// Identifier of a push that is repeated; the default is a new one
    #[arg(long, value_name = "ID", value_parser = id)]
    id: Option<String>,

    /// Counter, or gauge with --set, such as 'jobs_total{queue="mail"}'
    #[arg(value_name = "SERIES")]
    series: SeriesName,

    /// Number to add or to set
    #[arg(value_name = "N", default_value = "1", value_parser = number, allow_hyphen_values = true)]
    n: f64,
}

/// Pushes a number.
///
/// # Errors
/// Fails if the daemon refuses the push, or if there is no response in time.
pub fn run(arguments: &Push) -> Result<(), Error> {
    let Push { to, series, set, n, time, .. } = arguments;
    let is_growth = *n >= 0.0 && n.is_finite();
    if !set && !is_growth {
        return Err(Error::usage(&format!(
            "{n} cannot be added to {}: a counter only grows; give a positive number, or use --set \
             for a gauge",
            series.name
        )));
    }
    let shown = printable(&without_password(to)).to_string();
    let failed = |message: &str| Error::new(format_args!("{shown}: {message}"));
    let url = base_url(to).map_err(|error| failed(&error))?;
    let url = group_url(&url, &arguments.job, &arguments.group);
    let receiver = url.parse::<ReceiverUrl>();
    let receiver =
        receiver.map_err(|_| failed(&format!("it is not an address of a daemon: {TO_FORMS}")))?;
    let client = Client::new(&receiver, time.0, &Headers::default());
    let client = client.map_err(|error| failed(&error))?;
    let id = arguments.id.clone().unwrap_or_else(new_id);
    let fields = [
        (CONTENT_TYPE, "text/plain; version=0.0.4"),
        (HeaderName::from_static("quipu-push-id"), &*id),
    ];
    let body = body(series, *n, *set);
    print_id_at_interruption(&shown, &id).map_err(|error| failed(&format!("signals: {error}")))?;
    // An earlier command may have sent this push, if the user gives its identifier.
    let is_repeated = arguments.id.is_some();
    let send = |timeout| client.post(&fields, body.as_bytes(), Some(timeout));
    push(time.0, is_repeated, send).map_err(|fault| match fault {
        Fault::Refused(message) => failed(&format!("{message}; nothing was counted")),
        Fault::Unreached(message) => {
            failed(&format!("{message}; gave up after {time}: nothing was counted"))
        }
        Fault::Lost(message) => failed(&format!("{message}; {}", may_be_counted(&id))),
    })
}

/// Explains how to repeat a push whose result is unknown.
fn may_be_counted(id: &str) -> String {
    format!(
        "the push may have been counted, so repeat it with --id {id} now: until it restarts, the \
         daemon remembers the last 64 pushes of a group, and counts it once"
    )
}

/// Makes a signal that ends the command print the identifier first.
fn print_id_at_interruption(shown: &str, id: &str) -> io::Result<()> {
    let mut signals = Signals::new(not_ignored(&[SIGINT, SIGTERM, SIGHUP]))?;
    let message = format!("{shown}: interrupted: {}", may_be_counted(id));
    let wait = move || {
        let Some(number) = signals.forever().next() else { return };
        warn(&message);
        std::process::exit(128 + number);
    };
    thread::Builder::new().name("signals".into()).spawn(wait).map(drop)
}

/// The reason why a push failed.
#[derive(Debug, PartialEq)]
enum Fault {
    /// The daemon refused each attempt that reached it, so the push was not counted.
    Refused(String),
    /// No attempt reached a server, so the push was not counted.
    Unreached(String),
    /// An attempt got no usable response, so it is unknown whether it was counted.
    Lost(String),
}

/// The pause after the first attempt. It doubles with each attempt.
const PAUSE: Duration = Duration::from_millis(50);
/// The maximum pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// The minimum time for a response, even if there is less time left.
const LEAST_TIMEOUT: Duration = Duration::from_secs(1);

/// The maximum number of bytes that are shown of a refusal. This is large, because a refusal can
/// quote a long name before its reason.
const MOST_SHOWN: usize = 2048;

/// Sends a push until it is counted or refused, for at most this time. If the push repeats an
/// earlier one, only a response that counts it makes the result known.
fn push(
    time: Duration,
    is_repeated: bool,
    send: impl Fn(Duration) -> Result<Answer, NoResponse>,
) -> Result<(), Fault> {
    let begun = Instant::now();
    let mut pause = PAUSE;
    // Whether an earlier attempt may have been counted.
    let mut is_lost = is_repeated;
    loop {
        let rest = time.saturating_sub(begun.elapsed());
        let (fault, wanted) = match send(rest.max(LEAST_TIMEOUT)) {
            Ok(response) if is_counted(&response) => return Ok(()),
            Ok(response) => {
                let message = refusal(&response);
                // A rate limit states when it ends. Other statuses do not change if the push is
                // repeated.
                let is_limited = response.status == 429 && response.retry_after.is_some();
                if !is_limited && !matches!(response.status, 408 | 500 | 502..=504) {
                    return Err(if is_lost {
                        Fault::Lost(message)
                    } else {
                        Fault::Refused(message)
                    });
                }
                is_lost |= !is_limited;
                (Fault::Refused(message), response.retry_after)
            }
            Err(NoResponse { message, is_sent }) => {
                is_lost |= is_sent;
                (Fault::Unreached(message), None)
            }
        };
        let rest = time.saturating_sub(begun.elapsed());
        if rest.is_zero() {
            return Err(match fault {
                Fault::Refused(message) | Fault::Unreached(message) if is_lost => {
                    Fault::Lost(message)
                }
                fault => fault,
            });
        }
        // A server may want no pause at all.
        thread::sleep(wanted.unwrap_or_default().max(pause).min(rest));
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Returns whether a daemon or a Pushgateway counted the push. Both return one of two statuses
/// without a body, unlike most other servers.
fn is_counted(response: &Answer) -> bool {
    matches!(response.status, 200 | 202) && response.body.is_empty()
}

/// Describes a response to a push that was not counted.
fn refusal(response: &Answer) -> String {
    let status = response.status;
    match status {
        200..300 => format!(
            "status {status}, but not from a quipu daemon: give the address of the daemon by --to"
        ),
        300..400 => match redirect_base(response) {
            Some(base) => format!("status {status}: the server redirects: give --to {base}"),
            None => format!("status {status}: the server redirects: give the daemon's URL by --to"),
        },
        _ => format!("status {status}: {}", response.text_up_to(MOST_SHOWN)),
    }
}

/// Returns the URL of the server that a redirect leads to, without the path of the group.
fn redirect_base(response: &Answer) -> Option<String> {
    let location = response.headers.get(LOCATION)?.to_str().ok()?;
    let (base, _) = location.split_once("/metrics/")?;
    // A query can contain a secret.
    let is_url = base.contains("://") && !base.contains(['?', '#']);
    is_url.then(|| printable(&without_password(base)).to_string())
}

/// The forms of `--to`, for errors.
const TO_FORMS: &str = "give HOST:PORT, such as localhost:8081, or an http or https URL";

/// Returns the URL of the daemon. The scheme and the host may be missing.
fn base_url(to: &str) -> Result<String, String> {
    if to.starts_with("unix:") {
        return Err(format!("a unix socket receives no pushes: {TO_FORMS}"));
    }
    let is_port = !to.is_empty() && to.bytes().all(|byte| byte.is_ascii_digit());
    let address = with_host(to);
    if is_port && address == to {
        return Err(format!("the port is not a number up to 65535: {TO_FORMS}"));
    }
    check_port(&address)?;
    Ok(if address.contains("://") { address } else { format!("http://{address}") })
}

/// Returns the URL of a group, with the mode of the push.
fn group_url(base: &str, job: &str, labels: &[(String, String)]) -> String {
    let group = labels
        .iter()
        .fold(quipu::http::Push::new(base, job), |push, (name, value)| push.group(name, value));
    format!("{}?mode=add&gauges=set", group.url())
}

/// Returns the exposition of one sample.
fn body(series: &SeriesName, n: f64, is_gauge: bool) -> String {
    let mut labels = String::new();
    for (name, value) in &series.labels {
        if !labels.is_empty() {
            labels.push(',');
        }
        append_label(&mut labels, name, value);
    }
    let kind = if is_gauge { "gauge" } else { "counter" };
    let name = series_name(&series.name, "");
    // A name with other characters is in quotes, here without braces.
    let name = name.trim_start_matches('{').trim_end_matches('}');
    let number = match n {
        n if n.is_infinite() => if n > 0.0 { "+Inf" } else { "-Inf" }.to_owned(),
        n => n.to_string(),
    };
    format!("# TYPE {name} {kind}\n{} {number}\n", series_name(&series.name, &labels))
}

/// Parses a label of the group.
fn group(text: &str) -> Result<(String, String), String> {
    const EXAMPLE: &str = "write NAME=VALUE, such as host=db1";
    let (name, value) = text.split_once('=').ok_or_else(|| format!("it has no =; {EXAMPLE}"))?;
    let is_first = |c: char| c.is_ascii_alphabetic() || c == '_';
    let is_name = name.starts_with(is_first)
        && name.chars().all(|c| is_first(c) || c.is_ascii_digit())
        && name != "job";
    if is_name {
        Ok((name.to_owned(), value.to_owned()))
    } else if name == "job" {
        Err("give the job with --job NAME".to_owned())
    } else {
        Err(format!("{name:?} cannot name a label; {EXAMPLE}"))
    }
}

/// Parses an identifier.
fn id(text: &str) -> Result<String, String> {
    let is_id = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
    if is_id {
        Ok(text.to_owned())
    } else {
        Err("give the identifier that a failed push printed".to_owned())
    }
}

/// Returns a random identifier.
fn new_id() -> String {
    // The system seeds each state with random keys.
    let random = || RandomState::new().hash_one((std::process::id(), now_ns()));
    format!("{:016x}{:016x}", random(), random())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::cell::Cell;

    use hyper::HeaderMap;

    use super::*;

    fn answer(status: u16) -> Answer {
        // The status of a limit that does not end has no such field.
        let retry_after = (status != 428).then_some(Duration::ZERO);
        let status = if status == 428 { 429 } else { status };
        let body = if status < 300 { Vec::new() } else { b"why\n".to_vec() };
        Answer { status, headers: HeaderMap::new(), retry_after, body }
    }

    /// Returns the error of a request. Only requests without a connection were never sent.
    fn no_response(message: &str) -> NoResponse {
        NoResponse { message: message.to_owned(), is_sent: message != "no connection" }
    }

    #[test]
    fn a_push_is_repeated_until_it_is_counted_or_refused() {
        let push_with = |answers: &[Result<u16, &str>]| {
            let sent = Cell::new(0);
            let pushed = push(Duration::from_secs(600), false, |_| {
                let sent = sent.replace(sent.get() + 1);
                answers[sent].map(answer).map_err(no_response)
            });
            (pushed, sent.get())
        };
        let refused = |status: u16| Err(Fault::Refused(format!("status {status}: why")));
        assert_eq!(push_with(&[Ok(200)]), (Ok(()), 1));
        assert_eq!(push_with(&[Err("no connection"), Ok(503), Ok(500), Ok(202)]), (Ok(()), 4));
        assert_eq!(push_with(&[Ok(400)]), (refused(400), 1));
        assert_eq!(push_with(&[Ok(428)]), (refused(429), 1));
        assert_eq!(push_with(&[Ok(429), Ok(200)]), (Ok(()), 2));
        let lost = |status: u16| Err(Fault::Lost(format!("status {status}: why")));
        assert_eq!(push_with(&[Err("no response"), Ok(400)]), (lost(400), 2));
        assert_eq!(push_with(&[Err("no connection"), Ok(400)]), (refused(400), 2));
        let once = |text: &str| push(Duration::ZERO, false, |_| Err(no_response(text)));
        assert_eq!(once("no connection"), Err(Fault::Unreached("no connection".to_owned())));
        assert_eq!(once("no response"), Err(Fault::Lost("no response".to_owned())));
        // The push that is repeated may have been counted.
        let repeated = push(Duration::ZERO, true, |_| Err(no_response("no connection")));
        assert_eq!(repeated, Err(Fault::Lost("no connection".to_owned())));
    }

    #[test]
    fn a_response_of_another_server_is_no_success() {
        let respond = |status: u16, body: &str, location: &str| {
            let mut response = Answer { body: body.into(), ..answer(status) };
            response.headers.insert(LOCATION, location.parse().unwrap());
            response
        };
        let group = "https://u:p@a/x/metrics/job/shell?mode=add";
        for (response, part) in [
            (respond(200, "<html>", ""), "not from a quipu daemon"),
            (respond(204, "", ""), "not from a quipu daemon"),
            (respond(301, "", group), "the server redirects: give --to https://...@a/x"),
            (respond(301, "", "/login"), "give the daemon's URL by --to"),
            (respond(301, "", "https://a/?ticket=s&next=/metrics/job/x"), "the daemon's URL by"),
            (respond(400, &"x".repeat(1000), ""), &"x".repeat(1000)),
        ] {
            assert!(!is_counted(&response), "{response:?}");
            let message = refusal(&response);
            assert!(message.contains(part), "{message}");
        }
    }

    #[test]
    fn groups_and_samples_are_written_as_the_daemon_reads_them() {
        let group = |text: &str| group(text).unwrap();
        let labels = [group("host=db1"), group("path=/a b"), group("empty="), group("up=..")];
        assert_eq!(
            group_url("http://localhost:9/", "shell", &labels),
            "http://localhost:9/metrics/job/shell/host/db1/path@base64/L2EgYg/empty@base64/=\
             /up@base64/Li4?mode=add&gauges=set"
        );
        for (to, url) in [
            ("localhost:9", "http://localhost:9"),
            ("8081", "http://127.0.0.1:8081"),
            ("https://a", "https://a"),
        ] {
            assert_eq!(base_url(to).unwrap(), url);
        }
        for (to, part) in [
            ("unix:/run/quipu.sock", "a unix socket receives no pushes: give HOST:PORT"),
            ("99999", "the port is not a number up to 65535: give HOST:PORT"),
            ("a:99999", "the port is not a number up to 65535: write HOST:PORT"),
        ] {
            let error = base_url(to).unwrap_err();
            assert!(error.starts_with(part), "{error}");
        }
        for (series, n, is_gauge, text) in [
            ("jobs_total", 1.0, false, "# TYPE jobs_total counter\njobs_total 1\n"),
            ("a{b=\"\\\"\"}", 0.5, true, "# TYPE a gauge\na{b=\"\\\"\"} 0.5\n"),
            ("{\"a.b\",c=\"d\"}", 2.0, false, "# TYPE \"a.b\" counter\n{\"a.b\",c=\"d\"} 2\n"),
            ("a", f64::NEG_INFINITY, true, "# TYPE a gauge\na -Inf\n"),
        ] {
            assert_eq!(body(&series.parse().unwrap(), n, is_gauge), text);
        }
        for text in ["host", "1a=b", "a-b=c", "=x", "job=a"] {
            assert!(super::group(text).is_err(), "{text}");
        }
        assert!(id("").is_err() && id("a b").is_err() && id(&new_id()).is_ok());
        assert_ne!(new_id(), new_id());
    }
}
