//! Requests that carry metrics: their bodies, and a loop that sends them one after the other.

use std::io::Write;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use quipu_wire::remote::{snappy::compress, write::RemoteWrite1};

use super::LOAD_CORE;
use super::series::Series;
use super::subject::{PATIENCE, Running};
use crate::measure::on_core;
use crate::server::Connection;
use crate::{Error, Result};

/// The number of samples in a request of remote write, and of lines in an import.
pub(super) const SAMPLES: usize = 1_000;

/// The first value of a series. In a request, the number of earlier requests with this series is
/// added. Ten digits, because one value is written over the other.
const FIRST_VALUE: u64 = 1_000_000_000;

/// The headers of remote write 1.0.
pub(super) const REMOTE_WRITE: &str = "Content-Type: application/x-protobuf\r\n\
    Content-Encoding: snappy\r\nX-Prometheus-Remote-Write-Version: 0.1.0\r\n";

/// A request with a body.
pub(super) fn request(method: &str, target: &str, headers: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = format!(
        "{method} {target} HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

/// Returns the current time, in milliseconds since 1970.
pub(super) fn now_ms() -> i64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX)
}

/// Returns a body of remote write 1.0 with one sample of each series.
pub(super) fn write_body<'s>(
    samples: impl Iterator<Item = (&'s [(&'s str, &'s str)], f64, i64)>,
) -> Result<Vec<u8>> {
    let failed = |error: quipu_wire::Error| Error::report(format!("remote write: {error}"));
    let mut write = RemoteWrite1::new();
    for (labels, value, time) in samples {
        write.push(labels, value, time).map_err(failed)?;
    }
    let (mut plain, mut body) = (Vec::new(), Vec::new());
    write.finish(&mut plain);
    compress(&plain, &mut body).map_err(failed)?;
    Ok(body)
}

/// Returns this number of requests of remote write, each with the next 1,000 of the series. The
/// totals of a series grow by one from one sweep over all series to the next, a second later.
pub(super) fn write_requests(series: usize, count: usize) -> Result<Vec<Vec<u8>>> {
    let texts: Vec<[String; 4]> = (0..series)
        .map(|number| {
            let series = Series(number);
            [
                format!("checkout_requests_{:03}_total", series.name()),
                series.code().to_string(),
                series.route().to_string(),
                series.service().to_string(),
            ]
        })
        .collect();
    let labels: Vec<[(&str, &str); 4]> = texts
        .iter()
        .map(|[name, code, route, service]| {
            [("__name__", name), ("code", code), ("route", route), ("service", service)]
                .map(|(name, value)| (name, value.as_str()))
        })
        .collect();
    let chunks: Vec<_> = labels.chunks(SAMPLES).collect();
    let sweeps = count.div_ceil(chunks.len());
    let start = now_ms() - 1000 * sweeps as i64;
    let mut requests = Vec::with_capacity(count);
    for number in 0..count {
        let (sweep, chunk) = (number / chunks.len(), number % chunks.len());
        let value = (FIRST_VALUE + sweep as u64) as f64;
        let time = start + 1000 * sweep as i64;
        let body = write_body(chunks[chunk].iter().map(|labels| (&labels[..], value, time)))?;
        requests.push(request("POST", "/api/v1/write", REMOTE_WRITE, &body));
    }
    Ok(requests)
}

/// Import requests: one for each 1,000 of the series. Values and times are written into the request
/// before it is sent again.
#[derive(Clone)]
pub(super) struct TextRequests {
    requests: Vec<(Vec<u8>, Vec<usize>)>,
    start: i64,
    sent: usize,
}

impl TextRequests {
    pub(super) fn new(series: usize) -> TextRequests {
        let all: Vec<Series> = (0..series).map(Series).collect();
        let requests = all.chunks(SAMPLES).map(text_request).collect();
        // Ten hours ago, because the times of all sweeps, which are a second apart, must be in the
        // past.
        TextRequests { requests, start: now_ms() - 36_000_000, sent: 0 }
    }

    /// Returns the number of requests that together contain each series once.
    pub(super) fn len(&self) -> usize {
        self.requests.len()
    }

    /// The next request.
    pub(super) fn next(&mut self) -> &[u8] {
        let (sweep, chunk) = (self.sent / self.requests.len(), self.sent % self.requests.len());
        self.sent += 1;
        let value = FIRST_VALUE + sweep as u64;
        let digits = format!("{value} {:013}", self.start + 1000 * sweep as i64);
        let (bytes, places) = &mut self.requests[chunk];
        for place in places {
            bytes[*place..*place + digits.len()].copy_from_slice(digits.as_bytes());
        }
        bytes
    }
}

/// Returns a request, and the places of the value and the time of each line.
fn text_request(series: &[Series]) -> (Vec<u8>, Vec<usize>) {
    let (mut body, mut places) = (Vec::new(), Vec::new());
    for series in series {
        let (name, service) = (series.name(), series.service());
        let (route, code) = (series.route(), series.code());
        // Writing to memory never fails.
        let _ = write!(
            body,
            "checkout_requests_{name:03}_total\
             {{service=\"{service}\",route=\"{route}\",code=\"{code}\"}} "
        );
        places.push(body.len());
        body.extend_from_slice(b"0000000000 0000000000000\n");
    }
    let whole = request("POST", "/api/v1/import/prometheus", "Content-Type: text/plain\r\n", &body);
    let head = whole.len() - body.len();
    places.iter_mut().for_each(|place| *place += head);
    (whole, places)
}

/// The cost of a load of requests.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Load {
    pub(super) requests: u64,
    /// From the first request to the last response.
    pub(super) elapsed: Duration,
    /// The processor time until the subject is idle.
    pub(super) cpu: Duration,
}

/// Sends requests on one connection, each after the previous response, until the time is over or
/// `next` returns false. `next` calls its argument with the request to send. A response without
/// success is an error.
pub(super) fn load(
    running: &Running,
    time: Duration,
    mut next: impl FnMut(&mut dyn FnMut(&[u8])) -> bool + Send,
) -> Result<Load> {
    running.settle()?;
    let before = running.process.cpu_time()?;
    let sent = on_core(LOAD_CORE, || -> std::io::Result<Load> {
        let mut connection = Connection::open(running.http, PATIENCE)?;
        let mut load = Load::default();
        let started = Instant::now();
        while load.elapsed < time {
            let mut outcome = None;
            let mut send = |request: &[u8]| outcome = Some(post(&mut connection, request));
            if !next(&mut send) {
                break;
            }
            outcome.transpose()?;
            load.requests += 1;
            load.elapsed = started.elapsed();
        }
        Ok(load)
    });
    let mut load = sent.map_err(|error| running.process.failed(&format!("a request: {error}")))?;
    running.settle()?;
    load.cpu = running.process.cpu_time()?.saturating_sub(before);
    Ok(load)
}

/// Sends a request and checks that it was successful.
pub(super) fn post(connection: &mut Connection, request: &[u8]) -> std::io::Result<()> {
    connection.send(request)?;
    let response = connection.receive()?;
    if (200..300).contains(&response.status) {
        return Ok(());
    }
    let said = String::from_utf8_lossy(response.body);
    let said: String = said.chars().take(300).collect();
    Err(std::io::Error::other(format!("status {}: {said}", response.status)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_text_have_new_values_in_each_sweep() {
        let mut text = TextRequests::new(2 * SAMPLES);
        assert_eq!(text.len(), 2);
        let line = |bytes: &[u8]| {
            let text = String::from_utf8(bytes.to_vec()).unwrap();
            let (head, body) = text.split_once("\r\n\r\n").unwrap();
            assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
            assert_eq!(body.lines().count(), SAMPLES);
            body.lines().last().unwrap().to_string()
        };
        let first = line(text.next());
        let start = text.start;
        assert_eq!(
            first,
            format!(
                "checkout_requests_099_total{{service=\"svc-009\",route=\"/api/v1/r00009\",\
                 code=\"204\"}} 1000000000 {start}"
            )
        );
        text.next();
        assert!(line(text.next()).ends_with(&format!("1000000001 {}", start + 1000)));
    }

    #[test]
    fn requests_of_remote_write_are_read_back() {
        let requests = write_requests(2 * SAMPLES, 3).unwrap();
        let body = |request: &[u8]| {
            let end = request.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
            let mut plain = Vec::new();
            quipu_wire::remote::snappy::uncompress(&request[end..], 1 << 20, &mut plain).unwrap();
            plain
        };
        let [first, _, third] = &requests[..] else { panic!("{} requests", requests.len()) };
        assert_eq!(body(first).len(), body(third).len());
        assert_ne!(body(first), body(third));
    }
}
