//! Tests of kill -9. No answered request may be lost, and none may be counted twice.

use std::thread;
use std::time::Duration;

use crate::common::{Home, Load};

#[test]
fn a_kill_under_load_loses_no_acknowledged_request() {
    let home = Home::new();
    let (mut requests, mut hits) = (0, 0);
    for round in 0..6 {
        let daemon = home.start(&["--threads", "2"]);
        let opened = daemon.opened();
        assert_eq!((opened["new"].as_bool(), opened["left_open"].as_bool()), {
            (Some(round == 0), Some(round > 0))
        });
        assert_eq!(daemon.count("/rate"), requests);

        let get = Load::start(daemon.address(), "GET", "/");
        let post = Load::start(daemon.address(), "POST", "/hit/a%20key");
        // Each round hits a different moment of the checkpoints and buckets.
        for load in [&get, &post] {
            load.wait_for(100 + 200 * round);
        }
        daemon.kill();
        let (get, post) = (get.end(), post.end());

        let daemon = home.start(&["--threads", "2"]);
        assert_eq!(daemon.opened()["left_open"], true);
        let count = daemon.count("/rate");
        get.expect(requests, count);
        // This request counts itself.
        assert_eq!(daemon.count("/"), count + 1);
        assert_eq!(daemon.sample("quipu_events_total"), (count + 1) as f64);
        requests = count + 1;

        let count = daemon.count("/rate/a%20key");
        post.expect(hits, count);
        assert_eq!(daemon.post("/hit/a%20key").count(), count + 1);
        hits = count + 1;
        daemon.kill();
    }
    assert_eq!(home.files(), ["state.quipu"]);
}

#[test]
fn a_kill_while_keys_push_each_other_out_leaves_whole_keys() {
    let home = Home::new();
    let mut evicted = 0.0;
    for _ in 0..3 {
        let daemon = home.start(&["--keys", "4"]);
        // More keys than the table can hold.
        let names = ["/hit/a", "/hit/b", "/hit/c", "/hit/d", "/hit/e", "/hit/f"];
        let loads = names.map(|target| Load::start(daemon.address(), "POST", target));
        loads.iter().for_each(|load| load.wait_for(50));
        daemon.kill();
        let tallies = loads.map(Load::end);

        let daemon = home.start(&["--keys", "4"]);
        // The key being evicted is gone, and its replacement may be missing.
        let keys = daemon.opened()["keys"].as_u64().unwrap();
        assert!((3..=4).contains(&keys), "{keys}");
        let top = daemon.get("/top").text();
        assert_eq!(top.lines().count() as u64, keys, "{top}");
        for line in top.lines() {
            let (count, key) = line.split_once(' ').unwrap();
            let of_key = names.iter().position(|name| name.strip_prefix("/hit/") == Some(key));
            assert!(of_key.is_some(), "a key that no client sent in {top}");
            assert!(count.parse::<u64>().unwrap() <= tallies.iter().map(|t| t.sent).sum(), "{top}");
        }
        let now = daemon.sample("quipu_keys_evicted_total");
        assert!(now >= evicted + 2.0, "{now} after {evicted}");
        evicted = now;
        for key in 0..4 {
            assert_eq!(daemon.post(&format!("/hit/new{key}")).count(), 1);
        }
        // All four fit together: the table still has its full capacity.
        for key in 0..4 {
            assert_eq!(daemon.count(&format!("/rate/new{key}")), 1);
        }
        assert_eq!(daemon.sample("quipu_keys"), 4.0);
        daemon.kill();
    }
}

#[test]
fn a_kill_at_any_moment_of_a_start_leaves_a_usable_state() {
    let home = Home::new();
    let mut count = 0;
    for round in 0..40 {
        // Kill at times from before the file exists until after the first possible response.
        let daemon = home.launch(&[]);
        thread::sleep(Duration::from_micros(250 * round));
        daemon.kill();
        if round % 8 == 7 {
            let daemon = home.start(&[]);
            assert_eq!(daemon.count("/rate"), count);
            assert_eq!(daemon.count("/"), count + 1);
            count += 1;
            daemon.stop();
        }
        let files = home.files();
        assert!(files.is_empty() || files == ["state.quipu"], "{files:?}");
    }
}
