//! Runs the load generators `ab` (Apache) and `wrk`, and parses their output.

use std::fs;
use std::net::SocketAddr;
use std::process::{Command, Stdio};

use super::process::{end_with_us, on_core};
use crate::{Error, Result};

/// The connections of every load.
const CONNECTIONS: &str = "100";

/// A way to ask a server for its count, over 100 connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// `ab`: a connection for each request.
    Ab,
    /// `ab -k`: HTTP/1.0 requests on keep-alive connections.
    AbKeepAlive,
    /// `wrk -t1`: HTTP/1.1 requests on keep-alive connections.
    Wrk,
}

/// The sizes of the loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Requests of `ab`.
    pub ab: u64,
    /// Requests of `ab -k`.
    pub ab_keep_alive: u64,
    /// Seconds of `wrk`.
    pub wrk_seconds: u64,
}

impl Default for Sizes {
    fn default() -> Sizes {
        Sizes { ab: 200_000, ab_keep_alive: 400_000, wrk_seconds: 5 }
    }
}

impl Sizes {
    /// A million requests of `ab` and of `ab -k`.
    pub fn full() -> Sizes {
        Sizes { ab: 1_000_000, ab_keep_alive: 1_000_000, wrk_seconds: 10 }
    }

    /// Small loads, to try out a benchmark.
    pub fn quick() -> Sizes {
        Sizes { ab: 20_000, ab_keep_alive: 40_000, wrk_seconds: 1 }
    }
}

/// The results of a load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figures {
    /// Responses per second.
    pub requests_per_second: f64,
    /// The median response time, in ms.
    pub p50_ms: f64,
    /// The 99th percentile of the response time, in ms.
    pub p99_ms: f64,
    /// The number of responses.
    pub completed: u64,
    /// The number of requests without a response, or whose response was not 200 with the expected
    /// length.
    pub failed: u64,
}

impl Load {
    /// The name of the load in a report.
    pub fn name(self) -> &'static str {
        match self {
            Load::Ab => "ab",
            Load::AbKeepAlive => "ab -k",
            Load::Wrk => "wrk",
        }
    }

    /// Runs the load against a server, on all cores or on the given one.
    pub fn run(self, address: SocketAddr, sizes: &Sizes, core: Option<usize>) -> Result<Figures> {
        match self {
            Load::Ab => ab(address, sizes.ab, false, core),
            Load::AbKeepAlive => ab(address, sizes.ab_keep_alive, true, core),
            Load::Wrk => wrk(address, sizes.wrk_seconds, core),
        }
    }
}

/// Checks that the tools are installed, before any work is done.
pub(super) fn check_tools(one_core: bool) -> Result<()> {
    for (tool, argument, package) in
        [("ab", "-V", "apache2-utils"), ("wrk", "-v", "wrk"), ("taskset", "-V", "util-linux")]
    {
        let needed = tool != "taskset" || one_core;
        let quiet = || Stdio::null();
        let mut command = Command::new(tool);
        // wrk exits with 1 after printing its version.
        let started = command.arg(argument).stdout(quiet()).stderr(quiet()).status();
        if needed && let Err(error) = started {
            let problem = format!("{error}. Install the package {package}.");
            return Err(Error::command(tool, problem));
        }
    }
    Ok(())
}

fn ab(address: SocketAddr, requests: u64, keep: bool, core: Option<usize>) -> Result<Figures> {
    // The percentiles on stdout are in whole milliseconds; this file contains three decimals.
    let file = tempfile::NamedTempFile::new()
        .map_err(Error::file("make a file in", &std::env::temp_dir()))?;
    let percentiles = file.path().display().to_string();
    let (requests, url) = (requests.to_string(), format!("http://{address}/"));
    let mut words = vec!["ab", "-q", "-n", &requests, "-c", CONNECTIONS, "-e", &percentiles];
    words.extend(keep.then_some("-k"));
    words.push(&url);
    let text = output(&words, core)?;
    let csv = fs::read_to_string(file.path()).map_err(Error::file("read", file.path()))?;
    parse_ab(&text, &csv).ok_or_else(|| unreadable(&words, &text))
}

fn wrk(address: SocketAddr, seconds: u64, core: Option<usize>) -> Result<Figures> {
    let (duration, url) = (format!("-d{seconds}s"), format!("http://{address}/"));
    let words = ["wrk", "-t1", &format!("-c{CONNECTIONS}"), &duration, "--latency", &url];
    let text = output(&words, core)?;
    parse_wrk(&text).ok_or_else(|| unreadable(&words, &text))
}

fn output(words: &[&str], core: Option<usize>) -> Result<String> {
    let words: Vec<String> = words.iter().map(|word| word.to_string()).collect();
    let mut command = on_core(core, &words);
    end_with_us(&mut command);
    let name = words.join(" ");
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Error::command(&name, format!("cannot be started: {error}")))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let problem = format!("failed with {}\n{}", output.status, said.trim());
        return Err(Error::command(&name, problem));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn unreadable(words: &[&str], text: &str) -> Error {
    Error::command(words.join(" "), format!("printed unexpected output:\n{text}"))
}

fn parse_ab(text: &str, percentiles: &str) -> Option<Figures> {
    let field = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()
    };
    let percentile = |percent: &str| {
        let line = percentiles.lines().find_map(|line| line.strip_prefix(percent))?;
        line.strip_prefix(',')?.parse().ok()
    };
    let failed: u64 = field("Failed requests:")?.parse().ok()?;
    // ab prints these only if there are any.
    let refused = field("Non-2xx responses:").map_or(Some(0), |text| text.parse::<u64>().ok())?;
    Some(Figures {
        requests_per_second: field("Requests per second:")?.parse().ok()?,
        p50_ms: percentile("50")?,
        p99_ms: percentile("99")?,
        completed: field("Complete requests:")?.parse().ok()?,
        failed: failed + refused,
    })
}

fn parse_wrk(text: &str) -> Option<Figures> {
    let after = |name: &str| {
        let line = text.lines().find_map(|line| line.trim().strip_prefix(name))?;
        Some(line.trim())
    };
    let completed = text.lines().find_map(|line| line.split_once(" requests in "))?;
    let numbers = |line: &str| -> u64 {
        line.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse::<u64>().ok()).sum()
    };
    // wrk prints these only if there are any.
    let errors = after("Socket errors:").map_or(0, numbers);
    let refused = after("Non-2xx or 3xx responses:").map_or(0, numbers);
    Some(Figures {
        requests_per_second: after("Requests/sec:")?.parse().ok()?,
        p50_ms: parse_milliseconds(after("50%")?)?,
        p99_ms: parse_milliseconds(after("99%")?)?,
        completed: completed.0.trim().parse().ok()?,
        failed: errors + refused,
    })
}

/// Parses a time in wrk's form, for example `635.00us`.
fn parse_milliseconds(text: &str) -> Option<f64> {
    let split = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(split);
    let factor = match unit {
        "us" => 1e-3,
        "ms" => 1.0,
        "s" => 1e3,
        "m" => 6e4,
        _ => return None,
    };
    Some(number.parse::<f64>().ok()? * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AB: &str = "
Concurrency Level:      100
Time taken for tests:   0.502 seconds
Complete requests:      40000
Failed requests:        3
   (Connect: 0, Receive: 0, Length: 3, Exceptions: 0)
Non-2xx responses:      2
Keep-Alive requests:    40000
Requests per second:    79681.20 [#/sec] (mean)
Time per request:       1.255 [ms] (mean)
";

    const WRK: &str = "Running 1s test @ http://127.0.0.1:8081/
  1 threads and 100 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     1.27ms    1.05ms  20.05ms   89.42%
    Req/Sec    80.07k     2.72k   84.73k    70.00%
  Latency Distribution
     50%  970.00us
     75%    1.47ms
     90%    2.44ms
     99%    5.91ms
  79645 requests in 1.00s, 10.41MB read
  Socket errors: connect 0, read 3, write 0, timeout 1
Requests/sec:  79539.76
Transfer/sec:     10.39MB
";

    #[test]
    fn reads_ab() {
        let csv = "Percentage served,Time in ms\n0,0.100\n5,0.9\n50,1.212\n99,5.125\n100,9.000\n";
        let figures = parse_ab(AB, csv).unwrap();
        let expected = Figures {
            requests_per_second: 79681.2,
            p50_ms: 1.212,
            p99_ms: 5.125,
            completed: 40000,
            failed: 5,
        };
        assert_eq!(figures, expected);
        let fine = AB.replace("Non-2xx responses:      2\n", "");
        assert_eq!(parse_ab(&fine, csv).unwrap().failed, 3);
        assert_eq!(parse_ab("", csv), None);
        assert_eq!(parse_ab(AB, ""), None);
    }

    #[test]
    fn reads_wrk() {
        let figures = parse_wrk(WRK).unwrap();
        let expected = Figures {
            requests_per_second: 79539.76,
            p50_ms: 0.97,
            p99_ms: 5.91,
            completed: 79645,
            failed: 4,
        };
        assert_eq!(figures, expected);
        assert_eq!(parse_wrk(&WRK.replace("99%", "98%")), None);
    }

    #[test]
    fn reads_the_units_of_wrk() {
        assert_eq!(parse_milliseconds("1.50s"), Some(1500.0));
        assert_eq!(parse_milliseconds("0.50m"), Some(30_000.0));
        assert_eq!(parse_milliseconds("5"), None);
    }
}
