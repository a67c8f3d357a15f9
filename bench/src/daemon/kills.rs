//! Kills the subject under load, and compares the requests with a response to the values after a
//! restart.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::exposition::Shown;
use super::packets::{Form, Packets, Sender};
use super::statsd::{FILL_RATE, summaries};
use super::subject::{PATIENCE, Program, Running, Subject};
use super::ways::{Requests, SERIES, Way};
use super::{Bench, LOAD_CORE};
use crate::measure::pin;
use crate::server::{Connection, time_to_kill};
use crate::turns::{Figure, Outcome, Turn, take};
use crate::{Error, Result};

/// Measures all inputs.
pub(super) fn kills(bench: &Bench) -> Result<Outcome> {
    let mut turns = Vec::new();
    for way in Way::ALL {
        let mut subjects = vec![Subject::new(Program::Quipu, &[])];
        match way {
            Way::RemoteWrite | Way::Import => {
                subjects.push(Subject::new(Program::VictoriaMetrics, &[]));
            }
            // By default, it writes its file after five minutes.
            Way::Push => subjects.push(Subject::new(
                Program::Pushgateway,
                &["--persistence.file={folder}/pushes", "--persistence.interval=1s"],
            )),
            Way::Ingest => {}
        }
        for subject in subjects.into_iter().filter(|subject| bench.has(subject.program)) {
            let name = subject.name.clone();
            let run = move || answered(bench, &subject, way);
            let case = format!("kill -9/{}", way.name());
            turns.push(Turn { case, subject: name, run: Box::new(run) });
        }
    }
    turns.push(Turn {
        case: "kill -9/StatsD over UDP".into(),
        subject: Program::Quipu.with_version().into(),
        run: Box::new(|| datagrams(bench)),
    });
    Ok(take(&turns, 1))
}

/// Returns the times from the start of a load to its kill.
fn times(bench: &Bench, program: Program) -> impl Iterator<Item = Duration> + use<> {
    let [ours, theirs] = bench.plan.kills;
    // The peers write their files only once in a second or more.
    let (kills, divisor) = if program == Program::Quipu { (ours, 5) } else { (theirs, 1) };
    (0..kills as usize).map(move |kill| time_to_kill(kill) / divisor)
}

/// The counts of all kills, in samples.
#[derive(Default)]
struct Tally {
    answered: u64,
    lost: f64,
    doubled: f64,
    restarts: Vec<f64>,
}

/// Kills a program that accepts requests, repeatedly, with one state.
fn answered(bench: &Bench, subject: &Subject, way: Way) -> Result<Vec<Figure>> {
    let folder = bench.folder()?;
    let requests = Requests::new(way, subject.program);
    let adds = way.adds(subject.program);
    let mut tally = Tally::default();
    let mut before = Values::new();
    // The numbers of the last request that was sent, and of the last one with a response.
    let (mut last, mut answered) = (0, 0);
    let mut running = subject.start(bench, folder.path())?;
    for time in times(bench, subject.program) {
        let load = until_killed(&running, &requests, last, time)?;
        drop(running);
        running = subject.start(bench, folder.path())?;
        let shown = requests.shown(&running)?;
        let fresh = load.answered.map_or(0, |number| number - last);
        let latest = load.answered.unwrap_or(answered);
        let bounds = |had: f64| match adds {
            true => (had + fresh as f64, had + (load.sent - last) as f64),
            // Losses of earlier kills are not counted again, nor a request that never got a
            // response.
            false => {
                let earlier = if had < answered as f64 { last as f64 - had } else { 0.0 };
                (latest as f64 - earlier, load.sent as f64)
            }
        };
        tally.add(&before, &shown, bounds);
        tally.answered += fresh * SERIES as u64;
        tally.restarts.push(running.started_in.as_secs_f64() * 1e3);
        (last, answered, before) = (load.sent, latest, shown);
    }
    Ok(tally.figures())
}

/// The values of the series.
type Values = BTreeMap<String, f64>;

impl Tally {
    /// Adds a kill. `bounds` returns the least and the greatest valid value of a series, for its
    /// value before the load.
    fn add(&mut self, before: &Values, shown: &Values, bounds: impl Fn(f64) -> (f64, f64)) {
        let had = |key: &String| before.get(key).copied().unwrap_or(0.0);
        for (key, value) in shown {
            let (least, greatest) = bounds(had(key));
            self.lost += (least - value).max(0.0);
            self.doubled += (value - greatest).max(0.0);
        }
        let gone: Vec<&String> = before.keys().filter(|key| !shown.contains_key(*key)).collect();
        self.lost += gone.iter().map(|key| bounds(had(key)).0).sum::<f64>();
        // The series that were never shown.
        let missing = SERIES.saturating_sub(shown.len() + gone.len());
        self.lost += missing as f64 * bounds(0.0).0;
    }

    fn figures(mut self) -> Vec<Figure> {
        self.restarts.sort_by(f64::total_cmp);
        let middle = self.restarts.get(self.restarts.len() / 2).copied().unwrap_or_default();
        vec![
            Figure::new("kills", "kills", self.restarts.len() as f64),
            Figure::new("answered samples", "samples", self.answered as f64),
            Figure::new("lost samples", "samples", self.lost),
            Figure::new("samples counted twice", "samples", self.doubled),
            Figure::new("restart median", "ms", middle),
            Figure::new("restart greatest", "ms", self.restarts.last().copied().unwrap_or(0.0)),
        ]
    }
}

/// The numbers of the last request that was sent, and of the last one with a response.
struct Sent {
    sent: u64,
    answered: Option<u64>,
}

/// Sends requests, from the one after `last`, until the process is killed.
fn until_killed(running: &Running, requests: &Requests, last: u64, time: Duration) -> Result<Sent> {
    std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            pin(LOAD_CORE);
            client(running.http, requests, last)
        });
        std::thread::sleep(time);
        running.process.kill();
        // The client never panics, because it treats every failure as the end of the process.
        client.join().expect("the client panicked")
    })
}

/// Sends requests, each after the response to the one before, until the connection fails.
fn client(address: SocketAddr, requests: &Requests, last: u64) -> Result<Sent> {
    let mut sent = Sent { sent: last, answered: None };
    let Ok(mut connection) = Connection::open(address, PATIENCE) else { return Ok(sent) };
    loop {
        let request = requests.get(sent.sent + 1)?;
        sent.sent += 1;
        if connection.send(&request).is_err() {
            return Ok(sent);
        }
        let Ok(response) = connection.receive() else { return Ok(sent) };
        if !(200..300).contains(&response.status) {
            let said = String::from_utf8_lossy(response.body).into_owned();
            let problem = format!("status {}: {said}", response.status);
            return Err(Error::command("a request before a kill", problem));
        }
        sent.answered = Some(sent.sent);
    }
}

/// Kills the daemon while it receives datagrams, which get no responses.
fn datagrams(bench: &Bench) -> Result<Vec<Figure>> {
    let folder = bench.folder()?;
    let subject = summaries(Program::Quipu);
    let packets = Packets::random(bench.plan.series[0], 20_000, Form::Packed);
    let rate = FILL_RATE / packets.lines_per_packet();
    let (mut kills, mut all) = (0, 0);
    let (mut lost, mut most, mut before) = (0.0, 0.0_f64, 0.0);
    let mut running = subject.start(bench, folder.path())?;
    for time in times(bench, Program::Quipu) {
        let mut sender = Sender::open(running.udp)?;
        let stop = AtomicBool::new(false);
        let sent = std::thread::scope(|scope| {
            let sending = scope.spawn(|| {
                pin(LOAD_CORE);
                sender.send_for(&packets, rate, PATIENCE, &stop)
            });
            std::thread::sleep(time);
            running.process.kill();
            stop.store(true, Ordering::Relaxed);
            // The sender never panics, because it ends at the first failure.
            sending.join().expect("the sender panicked")
        });
        drop(running);
        running = subject.start(bench, folder.path())?;
        let shown = Shown::of(&running.metrics()?).countable;
        let missing = sent.countable as f64 - (shown - before);
        (all, lost, most) = (all + sent.countable, lost + missing, most.max(missing));
        (kills, before) = (kills + 1, shown);
    }
    Ok(vec![
        Figure::new("kills", "kills", f64::from(kills)),
        Figure::new("sent lines", "lines", all as f64),
        Figure::new("lost lines", "lines", lost),
        Figure::new("greatest loss of a kill", "lines", most),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_below_the_least_value_is_lost() {
        let mut tally = Tally::default();
        let value = |number: usize| if number == 3 { 5.0 } else { 7.0 };
        let mut shown: Values =
            (0..SERIES).map(|number| (format!("{number}"), value(number))).collect();
        tally.add(&Values::new(), &shown, |_| (7.0, 8.0));
        assert_eq!((tally.lost, tally.doubled), (2.0, 0.0));
        let before = shown.clone();
        shown.remove("3");
        // The gone series loses its value and the increment, and each other series its increment.
        tally.add(&before, &shown, |had| (had + 1.0, had));
        assert_eq!((tally.lost, tally.doubled), (2.0 + 6.0 + (SERIES - 1) as f64, 0.0));
    }
}
