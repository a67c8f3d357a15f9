//! Tests of sliding windows. Events must expire at the times that the model predicts, whether the
//! daemon runs or not.

use std::thread;
use std::time::Duration;

use crate::common::{Daemon, Events, Home, wait_until};

const WINDOW: Duration = Duration::from_secs(1);
const HALF: Duration = Duration::from_millis(500);
const ACCURACY: Duration = Duration::from_millis(100);
const SETTINGS: [&str; 4] = ["--window", "1s", "--accuracy", "100ms"];

#[test]
fn the_count_follows_the_model() {
    let home = Home::new();
    let daemon = home.start(&SETTINGS);
    let (mut requests, mut hits) = (Events::default(), Events::default());
    let mut client = daemon.connect();
    let mut call = |method: &str, target: &str| client.request(method, target).unwrap().count();
    for round in 0..60 {
        requests.add_and_check(WINDOW, ACCURACY, || call("GET", "/"));
        if round % 3 == 0 {
            hits.add_and_check(WINDOW, ACCURACY, || call("POST", "/hit/k"));
        }
        requests.check(WINDOW, ACCURACY, || call("GET", "/rate"));
        requests.check(HALF, ACCURACY, || call("GET", "/rate?window=500ms"));
        hits.check(WINDOW, ACCURACY, || call("GET", "/rate/k"));
        hits.check(HALF, ACCURACY, || call("GET", "/rate/k?window=500ms"));
        // Create events of different ages. The model does not depend on the real duration of this
        // sleep.
        thread::sleep(Duration::from_millis(25));
    }
    let (mut before, mut before_of_key) = (u64::MAX, u64::MAX);
    wait_until("all events expire", || {
        let count = requests.check(WINDOW, ACCURACY, || call("GET", "/rate"));
        let of_key = hits.check(WINDOW, ACCURACY, || call("GET", "/rate/k"));
        assert!(count <= before && of_key <= before_of_key, "a count grew without an event");
        (before, before_of_key) = (count, of_key);
        count == 0 && of_key == 0
    });
    assert_eq!(call("GET", "/"), 1);
    // Longer windows of all requests still include these events, but the key's table covers only
    // its own window.
    assert_eq!(call("GET", "/rate?window=1h"), 61);
    assert_eq!(daemon.sample("quipu_events_total"), 61.0);
    wait_until("the gauge follows", || daemon.sample("quipu_window_events{window=\"1s\"}") == 0.0);
}

#[test]
fn windows_advance_while_the_daemon_is_down() {
    let home = Home::new();
    for kill in [false, true] {
        let daemon = home.start(&SETTINGS);
        let (mut requests, mut hits) = (Events::default(), Events::default());
        for _ in 0..7 {
            requests.add(|| daemon.count("/"));
            hits.add(|| daemon.post("/hit/k"));
        }
        let total = daemon.count("/rate?window=1h");
        let end = |daemon: Daemon| if kill { daemon.kill() } else { daemon.stop() };
        end(daemon);
        let daemon = home.start(&SETTINGS);
        requests.check(WINDOW, ACCURACY, || daemon.count("/rate"));
        hits.check(WINDOW, ACCURACY, || daemon.count("/rate/k"));
        // This pause moves all events out of the window.
        end(daemon);
        thread::sleep(WINDOW + ACCURACY * 2);
        let daemon = home.start(&SETTINGS);
        assert_eq!((daemon.count("/rate"), daemon.count("/rate/k")), (0, 0));
        assert_eq!(daemon.count("/rate?window=1h"), total);
        daemon.stop();
    }
}
