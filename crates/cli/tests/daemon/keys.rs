//! Tests of other window lengths, and of keys, each with a separate window.

use crate::common::{Daemon, Home};

#[test]
fn rate_does_not_count_itself() {
    let home = Home::new();
    let daemon = home.start(&[]);
    for _ in 0..3 {
        daemon.get("/");
    }
    for _ in 0..3 {
        assert_eq!(daemon.count("/rate"), 3);
        assert_eq!(daemon.count("/rate?window=30m"), 3);
    }
    assert_eq!(daemon.count("/"), 4);
}

#[test]
fn rate_is_also_json() {
    let home = Home::new();
    // A bucket lasts far longer than this test, so it contains all events.
    let daemon = home.start(&["--accuracy", "30m", "--span", "2h"]);
    for _ in 0..9 {
        daemon.get("/");
    }
    let object = daemon.get("/rate?window=2h&format=json").json();
    assert_eq!(object["window"], 7200.0);
    assert_eq!(object["count"], 9);
    assert_eq!(object["rate"], 9.0 / 7200.0);
    assert_eq!(object["max_rate"], 9.0 / 1800.0);
    assert_eq!(object.as_object().unwrap().len(), 4);
    // The default is the daemon's own window. You can put spaces into a time, in either encoding.
    assert_eq!(daemon.get("/rate?format=json").json()["window"], 3600.0);
    for window in ["1h+30m", "1h%2030m", "90m", "5400s"] {
        let object = daemon.get(&format!("/rate?format=json&window={window}")).json();
        assert_eq!((object["window"].as_f64(), object["count"].as_u64()), (Some(5400.0), Some(9)));
    }
    assert_eq!(daemon.count("/rate?format=text"), 9);
}

#[test]
fn each_key_has_its_own_count() {
    let home = Home::new();
    let daemon = home.start(&["--accuracy", "1m"]);
    assert_eq!(daemon.post("/hit/a").count(), 1);
    assert_eq!(daemon.post("/hit/a").count(), 2);
    assert_eq!(daemon.post("/hit/a?n=40").count(), 42);
    assert_eq!(daemon.post("/hit/b?n=7").count(), 7);
    assert_eq!(daemon.post("/hit/b?n=0").count(), 7);
    for (key, count) in [("a", 42), ("b", 7), ("unknown", 0)] {
        assert_eq!(daemon.count(&format!("/rate/{key}")), count);
        assert_eq!(daemon.count(&format!("/rate/{key}?window=30m")), count);
        let object = daemon.get(&format!("/rate/{key}?format=json")).json();
        assert_eq!((object["key"].as_str(), object["count"].as_u64()), (Some(key), Some(count)));
        assert_eq!(
            (object["window"].as_f64(), object.as_object().unwrap().len()),
            (Some(3600.0), 4)
        );
        assert_eq!(object["rate"].as_f64() > Some(0.0), count > 0);
    }
    // Hits of keys do not count in the window of requests, and reading a key does not create it.
    assert_eq!((daemon.count("/rate"), daemon.sample("quipu_keys")), (0, 2.0));
}

#[test]
fn a_key_can_contain_any_bytes() {
    let home = Home::new();
    let daemon = home.start(&[]);
    // Different spellings of one key count together.
    for (same, count) in [("/hit/a/b%20c", 1), ("/hit/a%2Fb%20c", 2), ("/hit/%61%2fb%20c", 3)] {
        assert_eq!(daemon.post(same).count(), count);
    }
    assert_eq!(daemon.count("/rate/a/b%20c"), 3);
    assert_eq!(daemon.get("/rate/a%2Fb%20c?format=json").json()["key"], "a/b c");
    // In a path, a plus is a literal plus.
    for (key, shown) in [
        ("%2B", "+"),
        ("%25zz", "%zz"),
        ("%C3%BC", "\u{fc}"),
        ("%FF", "\u{fffd}"),
        ("%0a", "\n"),
        ("%00", "\0"),
        ("..", ".."),
        ("%22", "\""),
    ] {
        assert_eq!(daemon.post(&format!("/hit/{key}")).count(), 1, "{key}");
        assert_eq!(daemon.post(&format!("/hit/{key}")).count(), 2, "{key}");
        let object = daemon.get(&format!("/rate/{key}?format=json")).json();
        assert_eq!((object["key"].as_str(), object["count"].as_u64()), (Some(shown), Some(2)));
    }
    assert_eq!(daemon.count("/rate/+"), 2);
    for bad in ["%zz", "%", "a%4", "%2g", "%C3%"] {
        daemon.post(&format!("/hit/{bad}")).expect_refusal(400, "write %25");
    }
    // The longest valid key, and a key with one more byte.
    let longest = "k".repeat(128);
    assert_eq!(daemon.post(&format!("/hit/{longest}")).count(), 1);
    daemon.post(&format!("/hit/{longest}k")).expect_refusal(400, "has 1 to 128 bytes");
    assert_eq!(daemon.count(&format!("/rate/{longest}k")), 0);
}

#[test]
fn a_hit_never_lowers_a_count() {
    let home = Home::new();
    let daemon = home.start(&[]);
    assert_eq!(daemon.post("/hit/v?n=10").count(), 10);
    for n in ["18446744073709551606", "9223372036854775808", "4294967297"] {
        daemon.post(&format!("/hit/v?n={n}")).expect_refusal(400, "give at most 4294967296");
    }
    assert_eq!(daemon.post("/hit/v?n=4294967296").count(), 4_294_967_306);
    assert_eq!(daemon.count("/rate/v"), 4_294_967_306);
}

#[test]
fn top_lists_the_keys_with_the_most_events() {
    let home = Home::new();
    let daemon = home.start(&[]);
    assert_eq!(daemon.get("/top").text(), "");
    for (key, hits) in [("third", 3), ("first", 90), ("line%0aend", 2), ("second", 4)] {
        daemon.post(&format!("/hit/{key}?n={hits}"));
    }
    let lines = [
        "00000000000000000090 first\n",
        "00000000000000000004 second\n",
        "00000000000000000003 third\n",
        "00000000000000000002 line\\nend\n",
    ];
    assert_eq!(daemon.get("/top").text(), lines.concat());
    assert_eq!(daemon.get("/top?n=2").text(), lines[..2].concat());
    assert_eq!(daemon.get("/top?n=0").text(), "");
    assert_eq!(daemon.get("/top?n=1000").text(), lines.concat());
    let refused = daemon.get("/top?n=1001");
    assert_eq!((refused.status, refused.text().contains("give at most 1000")), (400, true));
    for key in 0..12 {
        daemon.post(&format!("/hit/{key}"));
    }
    assert_eq!(daemon.get("/top").text().lines().count(), 10);
}

#[test]
fn top_of_a_large_table_is_computed_in_steps() {
    let home = Home::new();
    let daemon = home.start(&["--keys", "3000"]);
    let mut client = daemon.connect();
    let hit = |key| format!("POST /hit/k{key}?n={key} HTTP/1.1\r\nHost: quipu\r\n\r\n");
    client.send((1..=3000).map(hit).collect::<String>()).unwrap();
    for key in 1..=3000 {
        assert_eq!(client.read_response().unwrap().count(), key);
    }
    let top = |most: u64| -> String {
        let line = |key| format!("{key:020} k{key}\n");
        (3000 - most + 1..=3000).rev().map(line).collect()
    };
    // Simultaneous requests get the same page.
    let mut clients: Vec<_> = (0..8).map(|_| daemon.connect()).collect();
    for client in &mut clients {
        client.send("GET /top?n=1000 HTTP/1.1\r\nHost: quipu\r\n\r\n".repeat(20)).unwrap();
    }
    assert_eq!(daemon.get("/top?n=2").text(), top(2));
    for client in &mut clients {
        (0..20).for_each(|_| assert!(client.read_response().unwrap().text() == top(1000)));
    }
}

#[test]
fn the_least_recently_hit_key_is_evicted() {
    let home = Home::new();
    let daemon = home.start(&["--keys", "3"]);
    for key in ["a", "b", "c"] {
        daemon.post(&format!("/hit/{key}?n=5"));
    }
    expect_keys(&daemon, 3.0, 0.0);
    // A hit protects a key from eviction, but reading it does not.
    daemon.post("/hit/a");
    daemon.get("/rate/b");
    assert_eq!(daemon.post("/hit/d").count(), 1);
    expect_keys(&daemon, 3.0, 1.0);
    for (key, count) in [("a", 6), ("b", 0), ("c", 5), ("d", 1)] {
        assert_eq!(daemon.count(&format!("/rate/{key}")), count, "{key}");
    }
    // The order survives a restart: c is the oldest now.
    daemon.stop();
    let daemon = home.start(&["--keys", "3"]);
    assert_eq!(daemon.opened()["keys"], 3);
    assert_eq!(daemon.post("/hit/b").count(), 1);
    expect_keys(&daemon, 3.0, 2.0);
    for (key, count) in [("a", 6), ("b", 1), ("c", 0), ("d", 1)] {
        assert_eq!(daemon.count(&format!("/rate/{key}")), count, "{key}");
    }
}

fn expect_keys(daemon: &Daemon, keys: f64, evicted: f64) {
    assert_eq!(daemon.sample("quipu_keys"), keys);
    assert_eq!(daemon.sample("quipu_keys_capacity"), 3.0);
    assert_eq!(daemon.sample("quipu_keys_evicted_total"), evicted);
}
