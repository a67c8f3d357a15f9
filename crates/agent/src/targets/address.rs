//! Parses the address of a scrape target, `[JOB=]URL`, into its URL and its labels `job` and
//! `instance`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use hyper::Uri;
use rustix::net::SocketAddrUnix;
use serde::{Deserialize, Serialize};

/// A target: a program to scrape.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The address in the settings, without the query, because a query can contain a secret.
    text: String,
    job: String,
    instance: String,
    url: String,
    socket: Option<PathBuf>,
}

/// The path of a credentials file: `[JOB=]FILE`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct TargetFile {
    /// The job whose targets use the file; without a job, all targets for which there is no more
    /// specific file.
    pub job: Option<String>,
    /// The path of the credentials file.
    pub path: PathBuf,
}

/// The job of a target that names none.
const JOB: &str = "scrape";
/// The path of a target that names none.
const PATH: &str = "/metrics";
const EXAMPLE: &str = "write [JOB=]URL, such as http://127.0.0.1:9100/metrics, \
                       node=http://127.0.0.1:9100, or app=unix:/run/app.sock:/metrics";

impl Target {
    /// Returns the label `job` of the target's series.
    pub fn job(&self) -> &str {
        &self.job
    }

    /// Returns the label `instance` of the target's series.
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// Returns the URL to request. For a unix socket, its host is only a placeholder.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the path of the unix socket, if the target uses one.
    pub(super) fn socket(&self) -> Option<&Path> {
        self.socket.as_deref()
    }

    /// Returns whether the connection is encrypted.
    pub(super) fn is_encrypted(&self) -> bool {
        self.url.starts_with("https://")
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (job, place) = split(text);
        let job = job.unwrap_or(JOB);
        if job.is_empty() {
            return Err(format!("the job is empty; {EXAMPLE}"));
        }
        let (instance, url, socket) = match place.strip_prefix("unix:") {
            Some(place) => on_socket(place)?,
            None => on_host(place)?,
        };
        let text = text.split('?').next().unwrap_or_default().to_owned();
        Ok(Self { text, job: job.to_owned(), instance, url, socket })
    }
}

impl FromStr for TargetFile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const EXAMPLE: &str =
            "write [JOB=]FILE, such as /run/secrets/token or node=/run/secrets/node";
        let (job, path) = split(text);
        if job == Some("") {
            return Err(format!("the job is empty; {EXAMPLE}"));
        }
        if path.is_empty() {
            return Err(format!("the path is empty; {EXAMPLE}"));
        }
        Ok(Self { job: job.map(str::to_owned), path: path.into() })
    }
}

/// Splits an address into the job, if any, and the rest.
fn split(text: &str) -> (Option<&str>, &str) {
    match text.split_once('=') {
        // A URL contains a colon before its first parameter, and a path contains a slash. An equals
        // sign after one of these therefore does not end a job.
        Some((job, rest)) if !job.contains([':', '/']) => (Some(job), rest),
        _ => (None, text),
    }
}

/// Returns the instance, the URL and the socket path of a target on a unix socket.
fn on_socket(place: &str) -> Result<(String, String, Option<PathBuf>), String> {
    let (socket, path) = match place.rfind(":/") {
        Some(at) => (&place[..at], &place[at + 1..]),
        None => (place, PATH),
    };
    if socket.is_empty() {
        return Err(format!("the path of the socket is empty; {EXAMPLE}"));
    }
    SocketAddrUnix::new(socket)
        .map_err(|error| format!("it cannot be the path of a socket: {error}; {EXAMPLE}"))?;
    let url = format!("http://localhost{path}");
    url.parse::<Uri>().map_err(|error| format!("{error}; {EXAMPLE}"))?;
    Ok((format!("unix:{socket}"), url, Some(socket.into())))
}

/// Returns the instance and the URL of a target on a host.
fn on_host(place: &str) -> Result<(String, String, Option<PathBuf>), String> {
    let (start, port) = match place {
        _ if place.starts_with("http://") => ("http://", 80),
        _ if place.starts_with("https://") => ("https://", 443),
        _ => return Err(format!("it begins with none of http://, https://, unix:; {EXAMPLE}")),
    };
    let uri: Uri = place.parse().map_err(|error| format!("{error}; {EXAMPLE}"))?;
    let Some(authority) = uri.authority().filter(|authority| !authority.host().is_empty()) else {
        return Err(format!("it has no host; {EXAMPLE}"));
    };
    let rest = &place[start.len() + authority.as_str().len()..];
    let path = if rest.starts_with('/') { "" } else { PATH };
    let url = format!("{start}{authority}{path}{rest}");
    let instance = match authority.port() {
        Some(_) => authority.as_str().to_owned(),
        None => format!("{authority}:{port}"),
    };
    Ok((instance, url, None))
}

impl TryFrom<String> for TargetFile {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<TargetFile> for String {
    fn from(file: TargetFile) -> Self {
        let path = file.path.display();
        match file.job {
            Some(job) => format!("{job}={path}"),
            None => path.to_string(),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_have_a_job_an_instance_and_a_url() {
        for (text, job, instance, url) in [
            ("http://a:1/m", "scrape", "a:1", "http://a:1/m"),
            ("http://a", "scrape", "a:80", "http://a/metrics"),
            ("http://a/", "scrape", "a:80", "http://a/"),
            ("https://a?b=c", "scrape", "a:443", "https://a/metrics?b=c"),
            ("node=http://[::1]:9100", "node", "[::1]:9100", "http://[::1]:9100/metrics"),
            ("a b=http://a/m?x=y", "a b", "a:80", "http://a/m?x=y"),
            ("unix:/run/a", "scrape", "unix:/run/a", "http://localhost/metrics"),
            ("x=unix:run/a:/m?y=z", "x", "unix:run/a", "http://localhost/m?y=z"),
        ] {
            let target: Target = text.parse().unwrap();
            assert_eq!((target.job(), target.instance(), target.url()), (job, instance, url));
            assert_eq!(target.to_string(), text.split('?').next().unwrap());
        }
        let target: Target = "unix:/run/a:b:/m".parse().unwrap();
        assert_eq!(target.socket(), Some(Path::new("/run/a:b")));
        for (text, part) in [
            ("", "begins with none of"),
            ("localhost:9100", "begins with none of"),
            ("=http://a/", "the job is empty"),
            ("ftp://a/", "begins with none of"),
            ("http:///m", "such as"),
            ("http://a b/", "such as"),
            ("unix:", "the path of the socket is empty"),
            ("unix:/a:/b c", "such as"),
        ] {
            let error = text.parse::<Target>().unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        for (text, job, path) in
            [("/a=b", None, "/a=b"), ("a b=c=d", Some("a b"), "c=d"), ("./a=b", None, "./a=b")]
        {
            let file: TargetFile = text.parse().unwrap();
            assert_eq!((file.job.as_deref(), file.path.to_str().unwrap()), (job, path));
            assert_eq!(String::from(file), text);
        }
        for text in ["", "=a", "a="] {
            let error = text.parse::<TargetFile>().unwrap_err();
            assert!(error.contains("such as /run/secrets/token"), "{text}: {error}");
        }
        let long = format!("unix:/{}", "a".repeat(200));
        assert!(long.parse::<Target>().unwrap_err().contains("cannot be the path"));
    }
}
