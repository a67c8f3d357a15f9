//! Tests of the cache of a push group's series. Pushes with and without this cache must get the
//! same responses and create the same series.

use std::collections::BTreeSet;
use std::thread;

use crate::common::{Client, Daemon, Home, Random, Response, wait_until};

/// The bodies of pushes, where `@` stands for a value. The last two contradict others.
const BODIES: [&str; 5] = [
    "# TYPE c counter\nc{a=\"1\"} @\nc{a=\"2\"} @\n# TYPE g gauge\ng @\nu{b=\"1\"} @\n\
     # TYPE s summary\ns{quantile=\"0.5\"} @\ns_sum @\ns_count @\n",
    "# TYPE g gauge\ng @\ng{a=\"1\"} @\ng{a=\"2\"} @\n",
    "# TYPE c counter\nc{a=\"2\"} @\nc{a=\"3\"} @\nc{a=\"1\"} @\n",
    "# TYPE g counter\ng @\n",
    "# TYPE u gauge\nu{b=\"1\"} @\n# TYPE x untyped\nx @\n",
];
/// Because a group keeps its expiry time, all other queries have to turn it off.
const QUERIES: [&str; 5] = [
    "?ttl=0s",
    "?mode=add&ttl=0s",
    "?mode=add&gauges=sum&ttl=0s",
    "?mode=add&gauges=max&ttl=0s",
    EXPIRING,
];
const EXPIRING: &str = "?mode=add&ttl=1ms";

impl Random {
    fn of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize]
    }

    /// Returns the first entry most of the time, because programs repeat the same push again and
    /// again.
    fn often(&mut self, list: &[&'static str]) -> &'static str {
        if self.below(3) > 0 { list[0] } else { self.of(list) }
    }

    fn body(&mut self) -> String {
        let body = self.often(&BODIES);
        let mut parts = body.split('@');
        let first = parts.next().unwrap().to_owned();
        parts.fold(first, |text, part| {
            let value = match self.below(40) {
                0 => "-1".to_owned(),
                1 => "x".to_owned(),
                2 => "NaN".to_owned(),
                _ => self.below(100).to_string(),
            };
            text + &value + part
        })
    }
}

fn send(client: &mut Client, method: &str, path: &str, body: &str) -> Response {
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: quipu\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    client.send(request).unwrap();
    client.read_response().unwrap()
}

/// Returns the series of a kind of group, without their times, as if they belonged to the other
/// kind.
fn shown(daemon: &Daemon, kind: &str) -> BTreeSet<String> {
    let text = daemon.get("/metrics").text();
    let lines = text.lines().filter(|line| line.contains(&format!("kind=\"{kind}\"")));
    let lines = lines.filter(|line| !line.starts_with("push_"));
    lines.map(|line| line.replace(kind, "any")).collect()
}

#[test]
fn pushes_by_spots_equal_other_pushes() {
    let home = Home::new();
    let mut daemon = home.start(&[]);
    let mut client = daemon.connect();
    let mut random = Random(7);
    for round in 0..500 {
        let group = random.below(3);
        let path = |kind| format!("/metrics/job/j/group/{group}/kind/{kind}");
        match random.below(20) {
            0 | 1 => {
                for kind in ["known", "usual"] {
                    assert_eq!(send(&mut client, "DELETE", &path(kind), "").status, 202);
                }
            }
            2 if random.below(3) == 0 => {
                daemon = match random.below(2) {
                    0 => (daemon.kill(), home.start(&[])).1,
                    _ => (daemon.stop(), home.start(&[])).1,
                };
                client = daemon.connect();
            }
            _ => {
                let (method, query) = (random.of(&["PUT", "POST"]), random.often(&QUERIES));
                let body = random.body();
                let known = send(&mut client, method, &(path("known") + query), &body);
                // No other body contains this comment, so its series are not in the cache.
                let body = format!("{body}# {round}\n");
                let usual = send(&mut client, method, &(path("usual") + query), &body);
                assert_eq!(known.status, usual.status, "{method} {query} {body}");
                if query == EXPIRING && known.status == 200 {
                    wait_until("both groups expire", || {
                        let of_group = format!("group=\"{group}\"");
                        !daemon.get("/metrics").text().contains(&of_group)
                    });
                }
            }
        }
        let (known, usual) = (shown(&daemon, "known"), shown(&daemon, "usual"));
        assert_eq!(known, usual, "round {round}");
    }
}

/// Groups are created and deleted during other pushes, so records are reused for other series.
#[test]
fn records_of_groups_that_went_have_other_series() {
    let home = Home::new();
    let daemon = home.start(&[]);
    let mut client = daemon.connect();
    let path = |group: usize| format!("/metrics/job/j/group/{group}");
    let body = |n: usize| {
        let lines = (0..20).map(|at| format!("r{{at=\"{at}\"}} {n}\n"));
        "# TYPE r gauge\n".to_owned() + &lines.collect::<String>()
    };
    // The last value of each group.
    let mut groups = [None; 8];
    for round in 0..200 {
        let at = round * 5 % groups.len();
        let removes = round % 7 == 3 || round % 11 == 5;
        let (method, text) = if removes { ("DELETE", String::new()) } else { ("PUT", body(round)) };
        send(&mut client, method, &path(at), &text);
        groups[at] = (!removes).then_some(round);
        if round % 10 == 9 {
            let text = daemon.get("/metrics").text();
            for (group, value) in groups.iter().enumerate() {
                let of_group = format!("group=\"{group}\",");
                let lines = text.lines().filter(|line| line.starts_with("r{"));
                let values = lines.filter(|line| line.contains(&of_group));
                let values: Vec<&str> = values.filter_map(|line| line.split(' ').nth(1)).collect();
                let expected = value.map_or(vec![], |value: usize| vec![value.to_string(); 20]);
                assert_eq!(values, expected, "group {group} in round {round}");
            }
        }
    }
}

#[test]
fn pushes_of_several_threads_to_one_group_add_up() {
    let home = Home::new();
    let daemon = home.start(&["--threads", "2"]);
    let address = daemon.address();
    let body = "# TYPE c counter\nc{a=\"1\"} 1\nc{a=\"2\"} 2\n";
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut client = Client::connect(address).unwrap();
                for _ in 0..50 {
                    let path = "/metrics/job/j?mode=add";
                    assert_eq!(send(&mut client, "POST", path, body).status, 200);
                }
            });
        }
    });
    let of = |a: u8| daemon.sample(&format!("c{{a=\"{a}\",instance=\"\",job=\"j\"}}"));
    assert_eq!((of(1), of(2)), (200.0, 400.0));
}
