//! quipu's store in Redis: the time of an increment compared to the segment, and the rate at which
//! increments arrive in a real server. Their sum in the server must be exact.

use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quipu::Registry;
use quipu_store::redis::{RedisOptions, RedisStore};
use quipu_store::{Metric, Store};

use super::children::{self, pipe};
use super::increments::TOGETHER;
use super::ours::{self, SERIES, TWO, VALUES};
use super::{Places, Plan};
use crate::Result;
use crate::measure::{Case, black_box};
use crate::record::{Label, Record};

/// The interval at which changes are written.
const INTERVAL: Duration = Duration::from_millis(200);
/// The longest wait for counts to arrive in the server.
const PATIENCE: Duration = Duration::from_secs(30);
/// The number of increments between two readings of the clock.
const BATCH: usize = 10 * SERIES;

/// The sustained rate for several numbers of workers, and then the increment in this process.
pub(super) fn redis_store(plan: Plan, places: &Places) -> Result<Vec<Record>> {
    let mut records = Vec::new();
    for count in TOGETHER {
        records.extend(sustained(plan, places, count)?);
    }
    records.extend(beside_the_segment(plan, places));
    Ok(records)
}

/// A store on a segment in the folder. Each folder is a separate application.
pub(super) fn open(places: &Places, folder: &Path) -> RedisStore {
    open_as(places, folder, folder)
}

/// A store on a segment in the folder, for the application that is named after another folder.
fn open_as(places: &Places, folder: &Path, application: &Path) -> RedisStore {
    let registry = Registry::open(folder.join("redis.quipu")).expect("the folder takes a file");
    let url = format!("unix://{}", places.redis.display());
    let namespace = application.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let options = RedisOptions::new(url).namespace(namespace).interval(INTERVAL);
    options.open_with_registry(registry).expect("the segment is new")
}

/// Workers that share a segment count in a thousand series for a while and flush. The time ends
/// when the last count arrives.
fn sustained(plan: Plan, places: &Places, count: usize) -> Result<[Record; 2]> {
    let folder = places.fresh(&places.tmpfs);
    let paths = ours::paths();
    let (mut counts, count_to) = pipe()?;
    let start = Instant::now();
    let mut workers = Vec::new();
    for _ in 0..count {
        workers.push(children::fork(|| {
            let store = open(places, folder.path());
            let counter = ours::counter(&store, "sustained", &TWO);
            let (started, mut counted) = (Instant::now(), 0_u64);
            while started.elapsed() < 20 * plan.run_time {
                for number in 0..BATCH {
                    counter.add(&["200", &paths[number % SERIES]], 1.0);
                }
                counted += BATCH as u64;
            }
            store.flush(PATIENCE).expect("the counts arrive");
            let _ = (&count_to).write_all(&counted.to_le_bytes());
        })?);
    }
    for worker in workers {
        worker.wait()?;
    }
    let elapsed = start.elapsed();
    // The store uses threads, so it must be in a child, because this process forks again.
    let (mut sum, sum_to) = pipe()?;
    let elsewhere = places.fresh(&places.tmpfs);
    children::fork(|| {
        // Another instance of the application sees only the counts in the server.
        let store = open_as(places, elsewhere.path(), folder.path());
        let counter = ours::counter(&store, "sustained", &TWO);
        let mut arrived = 0.0;
        let read = counter.for_each(&mut |_, value| arrived += value);
        read.expect("the server replies");
        let _ = (&sum_to).write_all(&f64::to_le_bytes(arrived));
    })?
    .wait()?;
    drop((count_to, sum_to));

    let (mut counted, mut bytes) = (0, [0; 8]);
    while counts.read_exact(&mut bytes).is_ok() {
        counted += u64::from_le_bytes(bytes);
    }
    sum.read_exact(&mut bytes).map_err(|_| children::failed("cannot read the server"))?;
    let wrong = (f64::from_le_bytes(bytes) - counted as f64).abs();
    let label =
        |metric, unit| Label::new("redis/sustained", "quipu", metric, unit).threads(count as u32);
    Ok([
        label("increments/s", "1/s").of(&[counted as f64 / elapsed.as_secs_f64()]),
        label("wrong increments", "increments").of(&[wrong]),
    ])
}

/// An increment with two labels in the store and in a plain segment, through the same interface,
/// and the ratio of their medians.
fn beside_the_segment(plan: Plan, places: &Places) -> Vec<Record> {
    let folders = [(); 2].map(|()| places.fresh(&places.tmpfs));
    let redis: Arc<dyn Store> = Arc::new(open(places, folders[0].path()));
    let segment: Arc<dyn Store> = ours::segment(folders[1].path());
    let mut case = Case::new("redis/increment, 2 labels");
    for (subject, store) in [("quipu (Redis)", &redis), ("quipu (SegmentStore)", &segment)] {
        let counter: Arc<dyn Metric> = ours::counter(&**store, "beside", &TWO);
        case = case.each(subject, move || counter.add(&black_box(VALUES), 1.0));
    }
    let options = crate::measure::Options { runs: 5, ..plan.options() };
    let mut records = case.run(&options);
    let ratio = records[0].median / records[1].median;
    let label = Label::new("redis/by the segment's increment", "quipu", "ratio", "times");
    records.push(label.of(&[ratio]));
    records
}
