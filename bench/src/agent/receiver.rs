//! A receiver of remote write that counts its samples, and can be down for a time.
//!
//! All samples of a snapshot or scrape share one time. This is why it counts by the times of
//! samples.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use quipu_wire::remote::{
    snappy::uncompress,
    write::{Entry, WriteReader, WriteVersion},
};

use super::OTHER_CORE;
use super::programs::METRIC;
use crate::measure::pin;
use crate::{Error, Result};

/// The totals of a receiver so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Tally {
    /// Bytes of requests that were accepted, with their heads.
    pub(super) bytes: u64,
    pub(super) requests: u64,
    /// Samples of the programs' series.
    pub(super) samples: u64,
    /// Bytes of requests that were refused because the receiver was down.
    pub(super) bytes_refused: u64,
    /// The number of samples that have arrived, and the arrival of the last one, by the times of
    /// samples in milliseconds since 1970.
    pub(super) arrivals: BTreeMap<i64, (u64, SystemTime)>,
    /// A request that could not be read.
    pub(super) problem: Option<String>,
}

/// A receiver. Its threads end with this program.
pub(super) struct Receiver {
    pub(super) address: SocketAddr,
    shared: Arc<Shared>,
}

struct Shared {
    /// Whether it reports the number of stored samples, like receivers of 2.0.
    is_2: bool,
    is_down: AtomicBool,
    tally: Mutex<Tally>,
}

/// The greatest body, compressed and plain.
const MOST_BYTES: usize = 64 << 20;

impl Receiver {
    /// Starts a receiver of remote write 2.0, or of only 1.0.
    pub(super) fn start(is_2: bool) -> Result<Receiver> {
        let failed = |error: io::Error| Error::command("listen on 127.0.0.1", error.to_string());
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let shared =
            Arc::new(Shared { is_2, is_down: AtomicBool::new(false), tally: Mutex::default() });
        let its = Arc::clone(&shared);
        std::thread::spawn(move || {
            pin(OTHER_CORE);
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&its);
                // If the sender closes the connection, the thread ends with an error.
                std::thread::spawn(move || _ = serve(stream, &shared));
            }
        });
        Ok(Receiver { address, shared })
    }

    /// Makes it respond with 503 from now on, or accept requests again.
    pub(super) fn set_down(&self, is_down: bool) {
        self.shared.is_down.store(is_down, Ordering::SeqCst);
    }

    pub(super) fn tally(&self) -> Tally {
        self.shared.tally().clone()
    }
}

impl Shared {
    fn tally(&self) -> MutexGuard<'_, Tally> {
        // A panic while holding the lock does not damage the counts.
        self.tally.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The relevant fields of the head of a request.
#[derive(Debug, Default, PartialEq)]
struct Head {
    length: usize,
    is_zstd: bool,
    is_2: bool,
}

fn serve(mut stream: TcpStream, shared: &Shared) -> io::Result<()> {
    let (mut bytes, mut chunk) = (Vec::new(), vec![0; 65_536]);
    loop {
        let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
            match stream.read(&mut chunk)? {
                0 => return Ok(()),
                read => bytes.extend_from_slice(&chunk[..read]),
            }
            continue;
        };
        let (start, head) = (end + 4, head(&bytes[..end]));
        if head.length > MOST_BYTES {
            return Err(io::Error::other("a body of more than 64 MiB"));
        }
        while bytes.len() < start + head.length {
            match stream.read(&mut chunk)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => bytes.extend_from_slice(&chunk[..read]),
            }
        }
        let body = &bytes[start..start + head.length];
        let response = respond(shared, &head, body, (start + head.length) as u64);
        stream.write_all(response.as_bytes())?;
        bytes.drain(..start + head.length);
    }
}

/// Counts a request. `length` includes its head.
fn respond(shared: &Shared, head: &Head, body: &[u8], length: u64) -> String {
    let status = |text: &str| format!("HTTP/1.1 {text}\r\nContent-Length: 0\r\n");
    if shared.is_down.load(Ordering::SeqCst) {
        shared.tally().bytes_refused += length;
        return status("503 Service Unavailable") + "\r\n";
    }
    if head.length == 0 {
        return status("200 OK") + "\r\n";
    }
    if head.is_2 && !shared.is_2 {
        return status("415 Unsupported Media Type") + "\r\n";
    }
    let counted = times(head, body);
    let mut tally = shared.tally();
    match counted {
        Ok((times, all)) => {
            tally.bytes += length;
            tally.requests += 1;
            let now = SystemTime::now();
            for (time, count) in times {
                tally.samples += count;
                let arrived = tally.arrivals.entry(time).or_insert((0, now));
                *arrived = (arrived.0 + count, now);
            }
            let stored = format!("X-Prometheus-Remote-Write-Samples-Written: {all}\r\n");
            status("204 No Content") + if head.is_2 { &stored } else { "" } + "\r\n"
        }
        Err(problem) => {
            tally.problem = Some(problem);
            status("400 Bad Request") + "\r\n"
        }
    }
}

/// Returns the times of the samples of the programs' series, with their numbers, and the number of
/// all samples.
fn times(head: &Head, body: &[u8]) -> std::result::Result<(BTreeMap<i64, u64>, u64), String> {
    let mut plain = Vec::new();
    match head.is_zstd {
        true => plain = zstd::stream::decode_all(body).map_err(|error| error.to_string())?,
        false => uncompress(body, MOST_BYTES, &mut plain).map_err(|error| error.to_string())?,
    }
    let version = if head.is_2 { WriteVersion::Two } else { WriteVersion::One };
    let mut reader = WriteReader::new(version, &plain).map_err(|error| error.to_string())?;
    let (mut times, mut all) = (BTreeMap::new(), 0);
    while let Some(entry) = reader.next() {
        let Entry::Series(series) = entry.map_err(|error| error.to_string())? else { continue };
        all += series.samples.len() as u64;
        if series.label("__name__") == Some(METRIC) {
            let samples = series.samples.iter().filter(|sample| !sample.is_stale());
            samples.for_each(|sample| *times.entry(sample.timestamp_ms).or_default() += 1);
        }
    }
    Ok((times, all))
}

fn head(bytes: &[u8]) -> Head {
    let text = String::from_utf8_lossy(bytes);
    let mut head = Head::default();
    for (name, value) in text.split("\r\n").filter_map(|line| line.split_once(':')) {
        match name.to_ascii_lowercase().as_str() {
            "content-length" => head.length = value.trim().parse().unwrap_or(0),
            "content-encoding" => head.is_zstd = value.trim() == "zstd",
            "content-type" => head.is_2 = value.contains("io.prometheus.write.v2"),
            _ => {}
        }
    }
    head
}

#[cfg(test)]
mod tests {
    use super::*;
    use quipu_wire::remote::{snappy::compress, write::RemoteWrite1};

    fn body() -> Vec<u8> {
        let mut write = RemoteWrite1::new();
        write.push(&[("__name__", METRIC), ("a", "b")], 1.0, 1_000).unwrap();
        write.push(&[("__name__", METRIC), ("a", "c")], 1.0, 1_000).unwrap();
        write.push(&[("__name__", "up")], 1.0, 1_000).unwrap();
        let (mut plain, mut body) = (Vec::new(), Vec::new());
        write.finish(&mut plain);
        compress(&plain, &mut body).unwrap();
        body
    }

    fn post(address: SocketAddr) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        let body = body();
        let head = "POST / HTTP/1.1\r\ncontent-encoding: snappy\r\nContent-Type: x\r\n";
        stream
            .write_all(format!("{head}Content-Length: {}\r\n\r\n", body.len()).as_bytes())
            .unwrap();
        stream.write_all(&body).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        response
    }

    #[test]
    fn samples_are_counted_by_their_times() {
        let receiver = Receiver::start(true).unwrap();
        receiver.set_down(true);
        assert!(post(receiver.address).starts_with("HTTP/1.1 503"));
        assert_eq!((receiver.tally().requests, receiver.tally().arrivals.len()), (0, 0));
        receiver.set_down(false);
        assert!(post(receiver.address).starts_with("HTTP/1.1 204"));
        let tally = receiver.tally();
        assert_eq!((tally.requests, tally.samples, tally.problem), (1, 2, None));
        assert_eq!(tally.arrivals[&1_000].0, 2);
        assert!(tally.bytes > body().len() as u64 && tally.bytes_refused == tally.bytes);
    }
}
