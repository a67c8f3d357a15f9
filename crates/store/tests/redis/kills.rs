//! Processes that are killed, stopped, forked, or folded although they are alive.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use quipu::Registry;
use quipu_store::redis::{RedisOptions, RedisStore};
use quipu_store::{Kind, Spec, Store};

use crate::server::{Proxy, Server};
use crate::{eventually, flush, machine, options, total};

const FILE: &str = "QUIPU_TEST_FILE";
const URL: &str = "QUIPU_TEST_URL";
const WORK: &str = "QUIPU_TEST_WORK";

/// Starts a process that does this work on this file, and waits until it begins.
fn spawn(work: &str, file: &Path, url: &str) -> Child {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kills::process", "--ignored", "--nocapture"])
        .envs([(WORK, work), (URL, url)])
        .env(FILE, file)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let begun = lines.map_while(Result::ok).any(|line| line.ends_with("begun"));
    assert!(begun, "the process does not begin");
    child
}

/// The entry point of such a process.
#[test]
#[ignore = "a process that other tests start"]
fn process() {
    let Ok(work) = std::env::var(WORK) else { return };
    let (file, url) = (std::env::var(FILE).unwrap(), std::env::var(URL).unwrap());
    match work.as_str() {
        "count" => count_forever(&machine(options(&url), Path::new(&file))),
        "fork" => fork_children(&options(&url).open().unwrap()),
        _ => panic!("unknown work"),
    }
}

fn count_forever(store: &RedisStore) {
    let whole = store.metric(&Spec::new("jobs", Kind::Counter).labels(["n"])).unwrap();
    let half = store.metric(&Spec::new("halves", Kind::Counter)).unwrap();
    println!("begun");
    for i in 0_u64.. {
        whole.add(&[["a", "b", "c"][i as usize % 3]], 1.0);
        half.add(&[], 0.5);
        if i % 16 == 0 {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

/// Returns the sum of the metric in the segment.
fn local(path: &Path, name: &str) -> f64 {
    let text = Registry::open(path).unwrap().text();
    let lines = text.lines().filter(|line| line.starts_with(name));
    lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
}

fn kill(child: &mut Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn kills_of_workers_and_of_the_connection_lose_nothing() {
    let server = Server::start(&[]);
    let proxy = Proxy::to(server.port);
    let directory = tempfile::tempdir().unwrap();
    let files = [directory.path().join("one"), directory.path().join("two")];
    let urls = [server.url(), proxy.url()];
    let start = |i: usize| spawn("count", &files[i % 2], &urls[i % 2]);
    let mut workers: Vec<Child> = (0..6).map(start).collect();
    let mut seed = 0x2545_f491_4f6c_dd1d_u64;
    for kills in 1..=100 {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        std::thread::sleep(Duration::from_millis(seed % 20));
        let i = (seed >> 8) as usize % workers.len();
        kill(&mut workers[i]);
        workers[i] = start(i);
        if kills % 10 == 0 {
            server.run("CLIENT KILL TYPE normal").unwrap();
            proxy.cut_after.store(true, std::sync::atomic::Ordering::SeqCst);
        }
    }
    workers.iter_mut().for_each(kill);
    // A process that opens the file later continues as the same instance.
    let stores: Vec<RedisStore> =
        files.iter().map(|path| machine(options(&server.url()), path)).collect();
    stores.iter().for_each(flush);
    for name in ["jobs", "halves"] {
        let counted: f64 = files.iter().map(|path| local(path, name)).sum();
        assert!(counted > 1000.0);
        assert_eq!(total(&stores[0], name), counted);
    }
    let instances = server.run("SCARD {quipu:jobs}:instances").unwrap();
    assert_eq!(instances, redis::Value::Int(2), "the number of workers does not matter");
}

#[test]
fn a_flusher_that_is_killed_is_replaced() {
    let server = Server::start(&[]);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("one");
    let mut first = spawn("count", &path, &server.url());
    let one = machine(options(&server.url()), &path);
    // The other process leads, and does the flush that this one waits for.
    flush(&one);
    kill(&mut first);
    let begin = std::time::Instant::now();
    flush(&one);
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
    assert_eq!(total(&one, "jobs"), local(&path, "jobs"));
}

fn signal(child: &Child, signal: i32) {
    // SAFETY: the pid belongs to the child until it is waited for.
    unsafe { libc::kill(child.id().cast_signed(), signal) };
}

fn quick(url: &str) -> RedisOptions {
    options(url).dead_after(Duration::from_millis(150))
}

#[test]
fn a_process_that_was_only_stopped_comes_back() {
    let server = Server::start(&[]);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("one");
    let mut worker = spawn("count", &path, &server.url());
    eventually("it writes", || {
        server.run("EXISTS {quipu:jobs}:instances").unwrap() == redis::Value::Int(1)
    });
    // Four instances fold at once. The time is long enough not to fold an instance that a busy
    // machine merely delays.
    let quick = || options(&server.url()).dead_after(Duration::from_secs(1));
    let others: Vec<RedisStore> =
        (0..4).map(|i| machine(quick(), &directory.path().join(format!("other{i}")))).collect();
    for _ in 0..3 {
        let before = total(&others[0], "jobs");
        signal(&worker, libc::SIGSTOP);
        eventually("it is folded", || {
            server.run("SCARD {quipu:jobs}:instances").unwrap() == redis::Value::Int(0)
        });
        let folded = total(&others[0], "jobs");
        assert!(folded >= before);
        assert_eq!(total(&others[0], "halves") % 0.5, 0.0);
        signal(&worker, libc::SIGCONT);
        eventually("it comes back", || total(&others[0], "jobs") > folded);
    }
    kill(&mut worker);
    let one = machine(options(&server.url()), &path);
    flush(&one);
    for name in ["jobs", "halves"] {
        assert_eq!(total(&others[0], name), local(&path, name));
    }
}

/// An instance is delayed between its heartbeat and a write, and is folded in the meantime. Then it
/// writes, and dies.
#[test]
fn a_delayed_write_is_folded_too() {
    let server = Server::start(&[]);
    let directory = tempfile::tempdir().unwrap();
    let slow = || options(&server.url()).dead_after(Duration::from_secs(2));
    let one = machine(slow(), &directory.path().join("one"));
    let other = machine(slow(), &directory.path().join("other"));
    for store in [&one, &other] {
        store.metric(&Spec::new("jobs", Kind::Counter)).unwrap().add(&[], 5.0);
        flush(store);
    }
    drop(one);
    let instances = || server.run("SCARD {quipu:jobs}:instances").unwrap();
    eventually("it is folded", || instances() == redis::Value::Int(1));
    let folded: Vec<String> =
        redis::from_redis_value(server.run("KEYS {quipu:jobs}:folded:*").unwrap()).unwrap();
    let id = folded[0].rsplit(':').next().unwrap();
    server.run(&format!("RENAME {} {{quipu:jobs}}:{id}", folded[0])).unwrap();
    server.run(&format!("SADD {{quipu:jobs}}:instances {id}")).unwrap();
    eventually("it is folded again", || instances() == redis::Value::Int(1));
    let listed = || server.run("ZCARD {quipu}:instances").unwrap();
    eventually("it is forgotten", || listed() == redis::Value::Int(1));
}

#[test]
fn an_instance_that_comes_back_after_a_long_time_is_not_counted_twice() {
    let server = Server::start(&[]);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("one");
    let short = || quick(&server.url()).keep_folded(Duration::from_millis(100));
    let one = machine(short(), &path);
    let jobs = one.metric(&Spec::new("jobs", Kind::Counter)).unwrap();
    jobs.add(&[], 5.0);
    flush(&one);
    drop((jobs, one));
    let other = machine(short(), &directory.path().join("other"));
    other.metric(&Spec::new("jobs", Kind::Counter)).unwrap().add(&[], 2.0);
    eventually("it is folded, and forgotten", || {
        server.run("SCARD {quipu:jobs}:instances").unwrap() == redis::Value::Int(1)
            && server.run("HLEN {quipu:jobs}:archive").unwrap() == redis::Value::Int(1)
            && matches!(server.run("DBSIZE").unwrap(), redis::Value::Int(7))
    });
    flush(&other);
    assert_eq!(total(&other, "jobs"), 7.0);
    std::thread::sleep(Duration::from_millis(300));
    let one = machine(short(), &path);
    flush(&one);
    assert_eq!(total(&other, "jobs"), 7.0);
    let jobs = one.metric(&Spec::new("jobs", Kind::Counter)).unwrap();
    jobs.add(&[], 1.0);
    flush(&one);
    assert_eq!(total(&other, "jobs"), 8.0);
}

/// Forks children that count while the parent's thread flushes, and continue without the parent.
fn fork_children(store: &RedisStore) {
    let jobs = store.metric(&Spec::new("jobs", Kind::Counter)).unwrap();
    jobs.add(&[], 1.0);
    println!("begun");
    let parent = std::process::id();
    for child in 0..20 {
        // SAFETY: the child only uses memory and a new thread, which are safe after a fork.
        if unsafe { libc::fork() } == 0 {
            (0..100).for_each(|_| jobs.add(&[], 1.0));
            if child == 0 {
                // This child outlives its parent, and flushes the counts of all in its parent's
                // place.
                eventually("the others have ended", || {
                    std::os::unix::process::parent_id() != parent && jobs.get(&[]) == Some(2001.0)
                });
                jobs.add(&[], 1.0);
                let result = store.flush(crate::PATIENCE);
                std::process::exit(i32::from(result.is_err()));
            }
            // SAFETY: ends like a worker that is killed.
            unsafe { libc::_exit(0) };
        }
    }
    std::thread::sleep(Duration::from_millis(500));
    // SAFETY: as above.
    unsafe { libc::_exit(0) };
}

#[test]
fn children_count_as_one_instance_and_outlive_the_parent() {
    let server = Server::start(&[]);
    let directory = tempfile::tempdir().unwrap();
    let mut parent = spawn("fork", directory.path(), &server.url());
    let reader = machine(options(&server.url()), &directory.path().join("reader"));
    parent.wait().unwrap();
    eventually("all is written", || total(&reader, "jobs") == 2002.0);
    let instances = server.run("SCARD {quipu:jobs}:instances").unwrap();
    assert_eq!(instances, redis::Value::Int(1));
}
