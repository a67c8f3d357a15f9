//! Failing servers and networks: no increment waits, no count is lost, and no count is added twice.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use quipu_store::redis::RedisStore;
use quipu_store::{Kind, Spec, Store};

use crate::server::{Lost, Proxy, Server, free_port};
use crate::{PATIENCE, eventually, flush, machine, options, total};

fn count(store: &RedisStore, by: f64) {
    store.metric(&Spec::new("jobs", Kind::Counter)).unwrap().add(&[], by);
}

fn errors(store: &RedisStore, cause: &str) -> u64 {
    let text = store.registry().text();
    let begin = format!("quipu_redis_errors_total{{cause=\"{cause}\"}} ");
    text.lines().find_map(|line| line.strip_prefix(&begin)).unwrap().parse().unwrap()
}

#[test]
fn a_server_that_starts_late_and_loses_everything_gets_all_counts() {
    let mut server = Server::later(&[]);
    let directory = tempfile::tempdir().unwrap();
    let one = machine(options(&server.url()), &directory.path().join("one"));
    let quiet = one.metric(&Spec::new("quiet", Kind::Counter)).unwrap();
    quiet.add(&[], 7.0);
    count(&one, 1.0);
    assert!(one.flush(Duration::from_millis(100)).is_err());
    assert!(one.metric(&Spec::new("x", Kind::Counter)).unwrap().for_each(&mut |_, _| ()).is_err());
    eventually("the error is counted", || errors(&one, "connect") > 0);
    assert!(one.lag() > Duration::from_millis(50));
    server.restart();
    flush(&one);
    assert_eq!(total(&one, "jobs"), 1.0);
    eventually("the lag is small", || one.lag() < Duration::from_secs(1));
    // The server silently loses everything.
    server.run("FLUSHALL").unwrap();
    flush(&one);
    assert_eq!((total(&one, "jobs"), total(&one, "quiet")), (1.0, 7.0));
    // The server is killed and restarts empty, while the process counts.
    server.kill();
    let begin = Instant::now();
    (0..100_000).for_each(|_| quiet.add(&[], 1.0));
    assert!(begin.elapsed() < Duration::from_secs(5));
    eventually("the loss is noticed", || one.registry().text().contains("pending_series 2\n"));
    server.restart();
    flush(&one);
    assert_eq!((total(&one, "jobs"), total(&one, "quiet")), (1.0, 100_007.0));
}

#[test]
fn a_server_that_does_not_respond_blocks_no_counting() {
    let server = Server::start(&[]);
    let proxy = Proxy::to(server.port);
    let directory = tempfile::tempdir().unwrap();
    let options = options(&proxy.url()).timeout(Duration::from_secs(3));
    let one = machine(options, &directory.path().join("one"));
    count(&one, 1.0);
    flush(&one);
    proxy.is_stuck.store(true, Ordering::SeqCst);
    let begin = Instant::now();
    (0..1000).for_each(|_| count(&one, 1.0));
    assert!(begin.elapsed() < Duration::from_millis(2500));
    eventually("it is given up", || errors(&one, "timeout") > 0);
    assert!(one.lag() >= Duration::from_millis(2500));
    proxy.is_stuck.store(false, Ordering::SeqCst);
    flush(&one);
    assert_eq!(total(&one, "jobs"), 1001.0);
}

#[test]
fn lost_replies_count_nothing_twice() {
    let server = Server::start(&[]);
    let proxy = Proxy::to(server.port);
    let directory = tempfile::tempdir().unwrap();
    let one = machine(options(&proxy.url()), &directory.path().join("one"));
    let reader = machine(options(&server.url()), &directory.path().join("reader"));
    for round in 1..=20 {
        (0..10).for_each(|_| count(&one, 0.5));
        proxy.cut_after.store(true, Ordering::SeqCst);
        eventually("it is cut", || proxy.cuts.load(Ordering::SeqCst) == round);
        flush(&one);
        assert_eq!(total(&reader, "jobs"), 5.0 * round as f64);
    }
    for round in 21..=40 {
        (0..10).for_each(|_| count(&one, 0.5));
        server.run("CLIENT KILL TYPE normal").unwrap();
        flush(&one);
        assert_eq!(total(&reader, "jobs"), 5.0 * f64::from(round));
    }
}

/// Series that are removed and created again within the resolution of start times, and then reach
/// the same values. This way, the server's data does not show whether the response was lost.
#[test]
fn lost_replies_to_resets_count_nothing_twice() {
    let server = Server::start(&[]);
    let proxy = Proxy::to(server.port);
    let directory = tempfile::tempdir().unwrap();
    // Flushes only on request.
    let options = options(&proxy.url()).interval(PATIENCE).max_backoff(PATIENCE);
    let one = machine(options.clone(), &directory.path().join("one"));
    let jobs = one.metric(&Spec::new("jobs", Kind::Counter).labels(["a"])).unwrap();
    jobs.add(&["first"], 1.0);
    flush(&one);
    let mut expected = 1.0;
    for trial in 0..12_u32 {
        let label = format!("trial {trial}");
        jobs.add(&[&label], 1.0);
        flush(&one);
        assert!(jobs.remove(&[&label]).unwrap());
        // In half of the trials, a flush first moves the field of the removed series into the
        // archive.
        (0..trial % 2).for_each(|_| flush(&one));
        flush(&one);
        jobs.add(&[&label], 1.0);
        expected += 2.0;
        for _ in 0..=trial % 3 {
            let cuts = proxy.cuts.load(Ordering::SeqCst);
            *proxy.lost.lock().unwrap() = Some((Lost::Answer, label.clone()));
            let _ = one.flush(Duration::ZERO);
            eventually("it is cut", || proxy.cuts.load(Ordering::SeqCst) > cuts);
            // In some trials, we count more before the flush is repeated.
            jobs.add(&[&label], f64::from(trial % 4 / 2));
            expected += f64::from(trial % 4 / 2);
        }
        (0..2).for_each(|_| flush(&one));
        assert_eq!(total(&one, "jobs"), expected, "trial {trial}");
    }
    // The response is lost, and the process too: another process writes the remaining changes.
    jobs.remove(&["first"]).unwrap();
    jobs.add(&["first"], 1.0);
    let cuts = proxy.cuts.load(Ordering::SeqCst);
    *proxy.lost.lock().unwrap() = Some((Lost::Answer, "first".into()));
    let _ = one.flush(Duration::ZERO);
    eventually("it is cut", || proxy.cuts.load(Ordering::SeqCst) > cuts);
    *proxy.lost.lock().unwrap() = Some((Lost::Requests, "first".into()));
    drop((jobs, one));
    *proxy.lost.lock().unwrap() = None;
    let one = machine(options, &directory.path().join("one"));
    (0..2).for_each(|_| flush(&one));
    assert_eq!(total(&one, "jobs"), expected + 1.0);
}

/// A series is removed and created again after a write of its last values failed.
#[test]
fn a_reset_after_a_failed_write_counts_all() {
    let server = Server::start(&[]);
    let proxy = Proxy::to(server.port);
    let directory = tempfile::tempdir().unwrap();
    let options = options(&proxy.url()).interval(PATIENCE).max_backoff(PATIENCE);
    let one = machine(options, &directory.path().join("one"));
    let jobs = one.metric(&Spec::new("jobs", Kind::Counter).labels(["a"])).unwrap();
    let key = format!("{{quipu:jobs}}:{}", one.instance());
    let fields = |label: &str| {
        let all = server.run(&format!("HKEYS {key}")).unwrap();
        let all: Vec<String> = redis::from_redis_value(all).unwrap();
        all.into_iter().filter(|field| field.contains(label)).count()
    };
    let lose = |label: &str| {
        let cuts = proxy.cuts.load(Ordering::SeqCst);
        *proxy.lost.lock().unwrap() = Some((Lost::Requests, label.into()));
        let _ = one.flush(Duration::ZERO);
        eventually("it is cut", || proxy.cuts.load(Ordering::SeqCst) > cuts);
        *proxy.lost.lock().unwrap() = None;
    };
    let mut expected = 0.0;
    for trial in 0..8 {
        let label = format!("trial {trial}");
        jobs.add(&[&label], 5.0);
        flush(&one);
        jobs.add(&[&label], 3.0);
        lose(&label);
        jobs.remove(&[&label]).unwrap();
        jobs.add(&[&label], 1.0);
        (0..trial % 3).for_each(|_| lose(&label));
        flush(&one);
        // If the new series starts later, the lost 3 are not in the total.
        expected += if fields(&label) == 1 { 9.0 } else { 6.0 };
        flush(&one);
        assert_eq!(total(&one, "jobs"), expected);
    }
}

/// A file and its copy are the same instance. If the server does not know the heartbeat of one,
/// this one waits, and reports it.
#[test]
fn a_copy_of_a_file_in_use_waits_and_reports_that() {
    let server = Server::start(&[]);
    let directory = tempfile::tempdir().unwrap();
    let [path, copy] = ["one", "copy"].map(|name| directory.path().join(name));
    // Long enough that a busy machine does not fold an instance that lives.
    let options = || options(&server.url()).dead_after(Duration::from_secs(4));
    let one = machine(options(), &path);
    count(&one, 5.0);
    flush(&one);
    std::fs::copy(&path, &copy).unwrap();
    flush(&one);
    let two = machine(options(), &copy);
    assert_eq!(two.instance(), one.instance());
    count(&two, 2.0);
    eventually("the copy is noticed", || errors(&two, "copied") > 0);
    let error = two.flush(Duration::from_millis(50)).unwrap_err();
    assert!(error.to_string().contains("its file was copied"), "{error}");
    count(&one, 1.0);
    flush(&one);
    assert_eq!((total(&one, "jobs"), errors(&one, "copied")), (6.0, 0));
    // When the original is gone, the copy takes its place.
    drop(one);
    flush(&two);
    assert_eq!(total(&two, "jobs"), 7.0);
}

#[test]
fn a_full_server_is_a_counted_error() {
    let server = Server::start(&[]);
    let directory = tempfile::tempdir().unwrap();
    let one = machine(options(&server.url()), &directory.path().join("one"));
    count(&one, 1.0);
    flush(&one);
    server.run("CONFIG SET maxmemory 1").unwrap();
    count(&one, 1.0);
    assert!(one.flush(Duration::from_millis(200)).is_err());
    eventually("the error is counted", || errors(&one, "out_of_memory") > 0);
    server.run("CONFIG SET maxmemory 0").unwrap();
    flush(&one);
    assert_eq!(total(&one, "jobs"), 2.0);
}

#[test]
fn a_replica_and_a_wrong_password_are_errors() {
    let server = Server::start(&[]);
    let directory = tempfile::tempdir().unwrap();
    let one = machine(options(&server.url()), &directory.path().join("one"));
    count(&one, 1.0);
    flush(&one);
    let nobody = free_port();
    server.run(&format!("REPLICAOF 127.0.0.1 {nobody}")).unwrap();
    count(&one, 1.0);
    assert!(one.flush(Duration::from_millis(200)).is_err());
    eventually("the error is counted", || errors(&one, "read_only") + errors(&one, "loading") > 0);
    server.run("REPLICAOF NO ONE").unwrap();
    flush(&one);
    assert_eq!(total(&one, "jobs"), 2.0);

    server.run("CONFIG SET requirepass secret").unwrap();
    let port = server.port;
    for (name, login) in [("none", ""), ("wrong", ":wrong@")] {
        let url = format!("redis://{login}127.0.0.1:{port}/");
        let two = machine(options(&url), &directory.path().join(name));
        count(&two, 1.0);
        assert!(two.flush(Duration::from_millis(200)).is_err());
        eventually("the error is counted", || errors(&two, "auth") > 0);
    }
    let url = format!("redis://:secret@127.0.0.1:{port}/");
    let three = machine(options(&url), &directory.path().join("none"));
    flush(&three);
    assert_eq!(total(&three, "jobs"), 3.0);
}

#[test]
fn scripts_that_a_server_forgot_are_sent_again() {
    let server = Server::start(&[]);
    let directory = tempfile::tempdir().unwrap();
    let one = machine(options(&server.url()), &directory.path().join("one"));
    for round in 1..=5 {
        count(&one, 1.0);
        flush(&one);
        assert_eq!(total(&one, "jobs"), f64::from(round));
        server.run("SCRIPT FLUSH").unwrap();
    }
}

#[test]
fn a_server_that_is_not_redis_is_an_error() {
    // A server that speaks another protocol.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let mut client = client;
            let _ = std::io::Write::write_all(&mut client, b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let directory = tempfile::tempdir().unwrap();
    let one = machine(options(&format!("redis://127.0.0.1:{port}/")), &directory.path().join("o"));
    count(&one, 1.0);
    assert!(one.flush(Duration::from_millis(200)).is_err());
    assert!(quipu_store::redis::RedisOptions::new("http://x").open().is_err());
    let private = options("redis://127.0.0.1/").open_with_registry(quipu::Registry::new());
    assert!(private.unwrap_err().to_string().contains("private memory"));
}

#[test]
fn a_write_that_is_delayed_on_its_way_counts_once() {
    let server = Server::start(&[]);
    let proxy = Proxy::to(server.port);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("one");
    let slow = machine(options(&proxy.url()).timeout(Duration::from_secs(1)), &path);
    count(&slow, 1.0);
    flush(&slow);
    proxy.is_stuck.store(true, Ordering::SeqCst);
    count(&slow, 1.0);
    eventually("it is given up", || errors(&slow, "timeout") > 0);
    drop(slow);
    let one = machine(options(&server.url()), &path);
    count(&one, 1.0);
    flush(&one);
    assert_eq!(total(&one, "jobs"), 3.0);
    // The delayed write of the first store arrives only now.
    proxy.is_stuck.store(false, Ordering::SeqCst);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(total(&one, "jobs"), 3.0);
}
