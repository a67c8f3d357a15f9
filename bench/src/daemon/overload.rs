//! Measures twice the load that a subject can process: its losses, whether it reports them, and its
//! health.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::exposition::sum;
use super::packets::{Form, Packets, Sender, kernel_drops};
use super::requests::{SAMPLES, write_requests};
use super::search::search;
use super::series::amount;
use super::statsd::{FILL_RATE, create, histograms};
use super::subject::{PATIENCE, Program, Running, Subject};
use super::{Bench, LOAD_CORE, Plan};
use crate::Result;
use crate::measure::{on_core, pin};
use crate::server::{self, Connection};
use crate::turns::{Figure, Outcome, Turn, take};

/// The connections of an overload of requests.
const CONNECTIONS: usize = 32;

/// The pause between two health checks.
const HEALTH: Duration = Duration::from_millis(20);

/// The number of loads in a search, which can be rough.
const PROBES: u32 = 5;

/// All cases.
pub(super) fn overload(bench: &Bench) -> Result<Outcome> {
    let series = bench.plan.series[0];
    let packets = Packets::random(series, 200_000, Form::Packed);
    let requests = write_requests(CONNECTIONS * SAMPLES, bench.plan.requests)?;
    let (packets, requests) = (&packets, &requests[..]);
    let mut turns = Vec::new();
    let programs = [Program::Quipu, Program::StatsdExporter];
    for program in programs.into_iter().filter(|program| bench.has(*program)) {
        let subject = histograms(program);
        turns.push(Turn {
            case: format!("overload/StatsD, packed, {} series", amount(series)),
            subject: subject.name.clone(),
            run: Box::new(move || statsd(bench, &subject, packets, series)),
        });
    }
    let programs = [Program::Quipu, Program::Vmagent];
    for program in programs.into_iter().filter(|program| bench.has(*program)) {
        let subject = Subject::new(program, &[]);
        turns.push(Turn {
            case: format!("overload/remote write, {CONNECTIONS} connections"),
            subject: subject.name.clone(),
            run: Box::new(move || remote_write(bench, &subject, requests)),
        });
    }
    Ok(take(&turns, bench.plan.runs))
}

fn statsd(
    bench: &Bench,
    subject: &Subject,
    packets: &Packets,
    series: usize,
) -> Result<Vec<Figure>> {
    let folder = bench.folder()?;
    let running = subject.start(bench, folder.path())?;
    create(&running, &Packets::each(series), FILL_RATE)?;
    let plan = Plan { probes: bench.plan.probes.min(PROBES), ..bench.plan };
    let rate = 2.0 * search(&running, packets, &plan)?.rate();

    let port = running.udp.port();
    let before = running.countable()?;
    let (kernel, own, told) = drops(&running, port)?;
    running.settle()?;
    let memory = running.process.memory()?;
    let mut sender = Sender::open(running.udp)?;
    let never = AtomicBool::new(false);
    let rate = rate / packets.lines_per_packet();
    let (health, sent) =
        with_health(&running, || sender.send_for(packets, rate, bench.plan.overload, &never));
    running.settle()?;
    let after = running.process.memory()?;
    let shown = running.countable()? - before;
    let (kernel_now, own_now, told_now) = drops(&running, port)?;
    let (kernel, own, told) = (kernel_now - kernel, own_now - own, told_now - told);

    let share = shown / running.expected(&sent).max(1) as f64;
    let seconds = sent.elapsed.as_secs_f64().max(1e-9);
    let exposed = if kernel + own > 0.0 { 100.0 * told / (kernel + own) } else { 100.0 };
    let mut figures = vec![
        Figure::new("offered lines/s", "1/s", sent.lines as f64 / seconds),
        Figure::new("counted lines/s", "1/s", share * sent.lines as f64 / seconds),
        Figure::new("datagrams dropped by the kernel", "datagrams", kernel),
        Figure::new("datagrams dropped by a queue", "datagrams", own),
        Figure::new("share of the drops that it exposes", "%", exposed),
    ];
    figures.extend(health.figures());
    figures.push(Figure::new("memory before", "B", memory as f64));
    figures.push(Figure::new("memory after", "B", after as f64));
    Ok(figures)
}

/// Returns the datagrams that the kernel dropped, the datagrams that the subject's own queue
/// dropped, and the number of both that the subject exposes.
fn drops(running: &Running, port: u16) -> Result<(f64, f64, f64)> {
    let metrics = running.metrics()?;
    let kernel = sum(&metrics, "quipu_statsd_kernel_drops_total{");
    let own = sum(&metrics, "statsd_exporter_udp_packet_drops_total ");
    Ok((kernel_drops(port) as f64, own, kernel + own))
}

fn remote_write(bench: &Bench, subject: &Subject, requests: &[Vec<u8>]) -> Result<Vec<Figure>> {
    let folder = bench.folder()?;
    let running = subject.start(bench, folder.path())?;
    let failed = |error: std::io::Error| running.process.failed(&format!("a request: {error}"));
    let sweep = CONNECTIONS.min(requests.len());
    on_core(LOAD_CORE, || flood(&running, &requests[..sweep], PATIENCE)).map_err(failed)?;
    running.settle()?;
    let memory = running.process.memory()?;
    let (health, flooded) =
        with_health(&running, || flood(&running, &requests[sweep..], bench.plan.overload));
    let flooded = flooded.map_err(failed)?;
    running.settle()?;
    let seconds = flooded.elapsed.as_secs_f64().max(1e-9);
    let taken = (flooded.taken * SAMPLES as u64) as f64;
    let mut figures = vec![
        Figure::new("samples taken/s", "1/s", taken / seconds),
        Figure::new("requests without success", "requests", flooded.refused as f64),
    ];
    figures.extend(health.figures());
    figures.push(Figure::new("memory before", "B", memory as f64));
    figures.push(Figure::new("memory after", "B", running.process.memory()? as f64));
    figures.push(Figure::new("greatest memory", "B", running.process.peak_memory()? as f64));
    Ok(figures)
}

/// The requests of a flood.
#[derive(Default)]
struct Flood {
    taken: u64,
    refused: u64,
    elapsed: Duration,
}

/// Sends the requests on all connections: one on each, and then the next, when all responses have
/// arrived. This sends the samples of a series in order.
fn flood(running: &Running, requests: &[Vec<u8>], time: Duration) -> std::io::Result<Flood> {
    let open = || Connection::open(running.http, PATIENCE);
    let mut connections = (0..CONNECTIONS).map(|_| open()).collect::<std::io::Result<Vec<_>>>()?;
    let mut flood = Flood::default();
    let started = Instant::now();
    for round in requests.chunks(CONNECTIONS) {
        let pairs = || round.iter().zip(0..CONNECTIONS);
        let mut is_sent = [false; CONNECTIONS];
        for (request, index) in pairs() {
            is_sent[index] = connections[index].send(request).is_ok();
        }
        for (_, index) in pairs() {
            let status = match is_sent[index] {
                true => connections[index].receive().map(|response| response.status).ok(),
                false => None,
            };
            match status {
                Some(200..300) => flood.taken += 1,
                _ => flood.refused += 1,
            }
            if status.is_none() {
                connections[index] = open()?;
            }
        }
        flood.elapsed = started.elapsed();
        if flood.elapsed >= time {
            break;
        }
    }
    Ok(flood)
}

/// The response times of the health check, in milliseconds.
struct Health {
    times: Vec<f64>,
    failures: u64,
}

impl Health {
    fn figures(mut self) -> Vec<Figure> {
        self.times.sort_by(f64::total_cmp);
        let middle = self.times.get(self.times.len() / 2).copied().unwrap_or_default();
        vec![
            Figure::new("health median", "ms", middle),
            Figure::new("health greatest", "ms", self.times.last().copied().unwrap_or_default()),
            Figure::new("health without success", "requests", self.failures as f64),
        ]
    }
}

/// Checks the health, on a new connection each time, while a load runs on the same core.
fn with_health<T: Send>(running: &Running, load: impl FnOnce() -> T + Send) -> (Health, T) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            pin(LOAD_CORE);
            let mut health = Health { times: Vec::new(), failures: 0 };
            while !stop.load(Ordering::Relaxed) {
                let started = Instant::now();
                let is_success = server::get(running.http, "/-/healthy", PATIENCE).is_ok();
                health.times.push(started.elapsed().as_secs_f64() * 1e3);
                health.failures += u64::from(!is_success);
                std::thread::sleep(HEALTH);
            }
            health
        });
        let result = on_core(LOAD_CORE, load);
        stop.store(true, Ordering::Relaxed);
        // The thread never panics, because a failure is a figure.
        (asking.join().expect("the thread that asks for the health panicked"), result)
    })
}
