//! The original small benchmarks, in Rust: a hash map, a key as a string, system calls, Redis.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Mutex;

use rustix::fs::{FlockOperation, flock};

use super::{Places, Plan};
use crate::measure::{Case, black_box};
use crate::record::Record;
use crate::{Error, Result};

/// The subject of these records.
const SUBJECT: &str = "Rust";

/// A hash map with each kind of key.
pub(super) fn hash(plan: Plan, _places: &Places) -> Result<Vec<Record>> {
    let mut records = Vec::new();
    let mut time = |name: &str, body: &mut dyn FnMut(u64)| {
        let case = Case::new(format!("raw hash/{name}")).exclusive(SUBJECT, body);
        records.extend(case.run(&plan.options()));
    };
    let keys: Vec<String> = (0..1000).map(|number| format!("key{number}")).collect();
    let mut table: HashMap<String, f64> = keys.iter().map(|key| (key.clone(), 0.0)).collect();
    table.insert("key".into(), 0.0);
    let add = |table: &mut HashMap<String, f64>, key: &str| {
        if let Some(value) = table.get_mut(black_box(key)) {
            *value += 1.0;
        }
    };
    time("constant key", &mut |n| (0..n).for_each(|_| add(&mut table, "key")));
    let mut next = 0;
    let mut around = move || {
        next = (next + 1) % 1000;
        next
    };
    time("1,000 keys", &mut |n| (0..n).for_each(|_| add(&mut table, &keys[around()])));
    let table = Mutex::new(table);
    let locked = |key: &str| add(&mut table.lock().expect("no thread panics"), key);
    time("constant key, with Mutex", &mut |n| (0..n).for_each(|_| locked("key")));
    time("1,000 keys, with Mutex", &mut |n| (0..n).for_each(|_| locked(&keys[around()])));

    let array = ["200", "/some/path", "GET"];
    let arrays = Mutex::new(HashMap::from([(array, 0.0)]));
    time("Array keys, with Mutex", &mut |n| {
        for _ in 0..n {
            let mut arrays = arrays.lock().expect("no thread panics");
            if let Some(value) = arrays.get_mut(&black_box(array)) {
                *value += 1.0;
            }
        }
    });
    Ok(records)
}

/// Measures labels as a string.
pub(super) fn keys(plan: Plan, _places: &Places) -> Result<Vec<Record>> {
    let labels = [("code", "200"), ("path", "/some/path"), ("method", "GET")];
    let values = ["200", "/some/path", "GET"];
    let case = |name: &str| Case::new(format!("key/{name}"));
    let cases = [
        case("to_json").each(SUBJECT, || {
            let labels: HashMap<_, _> = black_box(labels).into_iter().collect();
            serde_json::to_string(&labels).expect("texts are always JSON")
        }),
        case("query string").each(SUBJECT, || {
            let mut text = String::new();
            for (name, value) in black_box(labels) {
                text.push_str(name);
                text.push('=');
                text.push_str(value);
                text.push('&');
            }
            text
        }),
        case("values joined").each(SUBJECT, || black_box(values).join("-|-")),
    ];
    Ok(cases.into_iter().flat_map(|case| case.run(&plan.options())).collect())
}

/// The system calls of the original stores at each increment.
pub(super) fn system_calls(plan: Plan, places: &Places) -> Result<Vec<Record>> {
    let mut records = Vec::new();
    for (place, path) in [("tmpfs", &places.tmpfs), ("disk", &places.disk)] {
        let folder = places.fresh(path);
        let path = folder.path().join("lock");
        let file = File::create(&path).map_err(Error::file("make", &path))?;
        let case = Case::new(format!("system call/flock and unlock, {place}"));
        let case = case.each(SUBJECT, || {
            flock(&file, FlockOperation::LockExclusive).expect("the file is private");
            flock(&file, FlockOperation::Unlock).expect("it was locked");
        });
        records.extend(case.run(&plan.options()));
    }
    let case = Case::new("system call/getpid").each(SUBJECT, rustix::process::getpid);
    records.extend(case.run(&plan.options()));
    Ok(records)
}

/// HINCRBYFLOAT over a bare socket: the minimum for any client.
pub(super) fn redis(plan: Plan, places: &Places) -> Result<Vec<Record>> {
    const COMMAND: &[u8] = b"*4\r\n$12\r\nHINCRBYFLOAT\r\n$1\r\nh\r\n$7\r\na=1&b=2\r\n$1\r\n1\r\n";
    let unix = UnixStream::connect(&places.redis).map_err(Error::file("reach", &places.redis))?;
    let address = ("127.0.0.1", places.redis_port);
    let tcp = TcpStream::connect(address).map_err(Error::file("reach", &places.redis))?;
    let _ = tcp.set_nodelay(true);
    let sockets: [(&str, Box<dyn Socket>); 2] =
        [("Rust, TCP", Box::new(tcp)), ("Rust, Unix socket", Box::new(unix))];
    let mut connections: Vec<_> =
        sockets.into_iter().map(|(subject, socket)| (subject, BufReader::new(socket))).collect();
    let mut records = Vec::new();
    for (name, size) in [("round trip", 1), ("pipeline of 100", 100), ("pipeline of 1000", 1000)] {
        for (subject, connection) in &mut connections {
            let commands = COMMAND.repeat(size as usize);
            let mut reply = String::new();
            let case = Case::new(format!("redis/{name}")).timed(subject, |_, n| {
                let start = std::time::Instant::now();
                let batches = n.div_ceil(size);
                for _ in 0..batches {
                    connection.get_mut().write_all(&commands).expect("the server reads");
                    // A reply is the length of a string, and the string.
                    for _ in 0..2 * size {
                        reply.clear();
                        connection.read_line(&mut reply).expect("the server replies");
                    }
                }
                // Scaled to n operations, since the last batch may contain more than are left.
                start.elapsed().mul_f64(n as f64 / (batches * size) as f64)
            });
            records.extend(case.run(&plan.options()));
        }
    }
    Ok(records)
}

/// A connection of either kind.
trait Socket: Read + Write {}

impl<S: Read + Write> Socket for S {}
