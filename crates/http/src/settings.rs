//! The settings of the HTTP server, including the hosts and origins that requests may name.

use std::net::SocketAddr;
use std::time::Duration;

use quipu_process::address::with_host;
use quipu_process::flags;
use quipu_process::settings::{Unusable, at_least, in_range, set};
use quipu_process::size::Size;
use quipu_process::time::Time;

use crate::{Access, Limits, Options};

flags! {
    /// The settings of the HTTP server.
    #[command(next_help_heading = "Listening")]
    pub struct HttpFlags {
        /// Address to listen on: HOST:PORT, :PORT for all interfaces, PORT for 127.0.0.1, or
        /// unix:PATH for a unix socket; may be given several times [default: 127.0.0.1:8081]
        #[arg(long, env = "QUIPU_LISTEN", value_name = "ADDRESS", value_delimiter = ',')]
        #[serde(deserialize_with = "quipu_process::settings::list")]
        listen: Vec<String> = vec!["127.0.0.1:8081".to_owned()],

        /// Name under which clients reach the daemon, such as metrics.example.com, or *.example.com
        /// for all names of a domain: a request for another name is refused if a web page may have
        /// sent it. Addresses, names without a dot and this machine's name are always served, and *
        /// serves all; may be given several times [default: none]
        #[arg(long, env = "QUIPU_ALLOW_HOST", value_name = "HOST", value_delimiter = ',')]
        #[serde(deserialize_with = "quipu_process::settings::list")]
        allow_host: Vec<String>,

        /// Origin of web pages that may send requests that change something, and read pushed
        /// metrics, such as https://console:3000, or * for all; may be given several times
        /// [default: none]
        #[arg(long, env = "QUIPU_ALLOW_ORIGIN", value_name = "ORIGIN", value_delimiter = ',')]
        #[serde(deserialize_with = "quipu_process::settings::list")]
        allow_origin: Vec<String>,

        /// Server threads, 1 to 1024; one serves about 100,000 requests per second. More threads
        /// help if the transport is the bottleneck: they share the port by SO_REUSEPORT and count
        /// in the same cells [default: 1]
        #[arg(long, env = "QUIPU_THREADS", value_name = "COUNT")]
        threads: Size<usize> = Size(1),

        /// Maximum number of open connections; more get 503. The limit on open files (ulimit -Hn)
        /// can lower this number [default: 10000]
        #[arg(long, env = "QUIPU_CONNECTIONS", value_name = "COUNT")]
        connections: Size<usize> = Size(Limits::default().connections),

        /// Maximum bytes of a request line and headers, 256 to 2^30; longer ones get 431 or 414
        /// [default: 16384]
        #[arg(long, env = "QUIPU_HEADER_BYTES", value_name = "BYTES")]
        header_bytes: Size<usize> = Size(Limits::default().header_bytes),

        /// Maximum bytes of a request body, 0 to 2^40; larger ones get 413 [default: 1048576]
        #[arg(long, env = "QUIPU_BODY_BYTES", value_name = "BYTES")]
        body_bytes: Size<usize> = Size(Limits::default().body_bytes),

        /// Maximum bytes of all responses that a thread holds until clients have read them, 2^20 to
        /// 2^40; more get 503, or end the connections of slow readers [default: 268435456]
        #[arg(long, env = "QUIPU_RESPONSE_BYTES", value_name = "BYTES")]
        response_bytes: Size<usize> = Size(Limits::default().response_bytes),

        /// Time limit for a request, from its first byte to its last, at least 10ms; a slower one
        /// gets 408 [default: 10s]
        #[arg(long, env = "QUIPU_READ_TIMEOUT", value_name = "TIME")]
        read_timeout: Time = Time(Limits::default().read_timeout),

        /// Time limit for a client to read a response, at least 10ms; a slower one is disconnected
        /// [default: 30s]
        #[arg(long, env = "QUIPU_WRITE_TIMEOUT", value_name = "TIME")]
        write_timeout: Time = Time(Limits::default().write_timeout),

        /// Time that a connection may stay open without a request, at least 10ms [default: 60s]
        #[arg(long, env = "QUIPU_IDLE_TIMEOUT", value_name = "TIME")]
        idle_timeout: Time = Time(Limits::default().idle_timeout),

        /// Time that running requests get to finish at shutdown [default: 10s]
        #[arg(long, env = "QUIPU_DRAIN_TIMEOUT", value_name = "TIME")]
        drain_timeout: Time = Time(Limits::default().drain_timeout),
    }
}

impl HttpFlags {
    /// Returns the addresses to listen on, and adds missing hosts in the flags as well.
    ///
    /// # Errors
    /// Fails if there is no address.
    pub fn addresses(&mut self) -> Result<Vec<String>, Unusable> {
        let listen = set(self.listen.as_mut().map(|listen| {
            listen.iter_mut().for_each(|address| *address = with_host(address));
            listen.clone()
        }));
        if listen.is_empty() {
            let reason = "there is no address; give at least one, such as 127.0.0.1:8081";
            return Err(Unusable::new("listen", reason));
        }
        listen.iter().try_for_each(|address| check_address(address))?;
        Ok(listen)
    }

    /// Returns the options of a server on these addresses. For requests that carry metrics, it
    /// keeps up to `kept_body_bytes` of the body.
    ///
    /// # Errors
    /// Fails for a number or a time out of its bounds, and for a string that is not a host or
    /// origin.
    pub fn resolve(&self, listen: &[String], kept_body_bytes: usize) -> Result<Options, Unusable> {
        let limits = Limits {
            header_bytes: in_range("header-bytes", self.header_bytes, 256, 1 << 30)?,
            body_bytes: in_range("body-bytes", self.body_bytes, 0, 1 << 40)?,
            kept_body_bytes,
            response_bytes: in_range("response-bytes", self.response_bytes, 1 << 20, 1 << 40)?,
            connections: in_range("connections", self.connections, 1, 1 << 30)?,
            read_timeout: at_least("read-timeout", self.read_timeout, MIN_TIMEOUT)?,
            write_timeout: at_least("write-timeout", self.write_timeout, MIN_TIMEOUT)?,
            idle_timeout: at_least("idle-timeout", self.idle_timeout, MIN_TIMEOUT)?,
            drain_timeout: set(self.drain_timeout).0,
            ..Limits::default()
        };
        Ok(Options {
            threads: in_range("threads", self.threads, 1, 1024)?,
            limits,
            access: access(self, listen)?,
            ..Options::default()
        })
    }
}

/// The shortest accepted timeout, because a shorter one is most likely a mistake.
const MIN_TIMEOUT: Duration = Duration::from_millis(10);

/// Returns the names from the settings and from the addresses to listen on.
fn access(flags: &HttpFlags, listen: &[String]) -> Result<Access, Unusable> {
    let hosts = flags.allow_host.iter().flatten().map(|host| checked_host(host));
    let listened = listen.iter().filter(|address| !address.starts_with("unix:"));
    let listened = listened.filter_map(|address| Some(address.rsplit_once(':')?.0.to_owned()));
    let hosts = hosts.chain(listened.filter(|host| !host.is_empty()).map(Ok));
    let origins = flags.allow_origin.iter().flatten().map(|origin| checked_origin(origin));
    Ok(Access {
        hosts: hosts.collect::<Result<_, _>>()?,
        origins: origins.collect::<Result<_, _>>()?,
    })
}

/// Refuses an address that no machine can listen on. The name of a host is only looked up at the
/// start.
fn check_address(address: &str) -> Result<(), Unusable> {
    let is_usable = match (address.strip_prefix("unix:"), address.rsplit_once(':')) {
        (Some(path), _) => !path.is_empty(),
        (None, Some((host, port))) => {
            let is_port = port.bytes().all(|byte| byte.is_ascii_digit());
            is_port && port.parse::<u16>().is_ok() && (host.is_empty() || is_host(address, host))
        }
        (None, None) => false,
    };
    if is_usable {
        return Ok(());
    }
    let reason = format!(
        "{address:?} is not an address: write host:port, such as 127.0.0.1:8081, or unix:PATH; a \
         port is a number up to 65535"
    );
    Err(Unusable::new("listen", reason))
}

/// Returns whether this is the host of an address: an IP address, or a name.
fn is_host(address: &str, host: &str) -> bool {
    let is_name = host.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
    // A name whose last label is a number is a wrong IP address.
    let last = host.trim_end_matches('.').rsplit('.').next().unwrap_or_default();
    let is_number = !last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit());
    address.parse::<SocketAddr>().is_ok() || is_name && !is_number
}

fn checked_host(host: &str) -> Result<String, Unusable> {
    let name = host.strip_prefix("*.").unwrap_or(host);
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if host == "*" || !name.is_empty() && name.chars().all(is_part) {
        return Ok(host.strip_suffix('.').unwrap_or(host).to_owned());
    }
    let reason = format!(
        "{host:?} is not a name: give one without a scheme and a port, such as metrics.example.com \
         or *.example.com, or * for all"
    );
    Err(Unusable::new("allow-host", reason))
}

fn checked_origin(origin: &str) -> Result<String, Unusable> {
    let host = origin.split_once("://").map(|(_, host)| host);
    if origin == "*" || host.is_some_and(|host| !host.is_empty() && !host.contains(['/', ' '])) {
        return Ok(origin.to_owned());
    }
    let reason = format!(
        "{origin:?} is not an origin: give the scheme, the host and the port if the page has one, \
         such as https://console.example.com, or * for all"
    );
    Err(Unusable::new("allow-origin", reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access_of(toml: &str) -> Result<Access, String> {
        let flags = toml::from_str::<HttpFlags>(toml).unwrap();
        let listen = flags.listen.clone().unwrap_or_default();
        access(&flags, &listen).map_err(|error| error.to_string())
    }

    #[test]
    fn names_to_listen_on_are_known() {
        let listen = r#"listen = ["127.0.0.1:1", "[::1]:1", ":1", "unix:/a:1", "a.example.com:1"]"#;
        let hosts = access_of(listen).unwrap().hosts;
        assert_eq!(hosts, ["127.0.0.1", "[::1]", "a.example.com"]);
    }

    #[test]
    fn unusable_addresses_are_refused() {
        for address in
            ["127.0.0.1:0", "[::1]:1", ":1", "unix:/a:1", "a.example.com:1", "localhost:80"]
        {
            assert_eq!(check_address(address), Ok(()), "{address}");
        }
        for address in [
            "",
            "a",
            "127.0.0.1",
            "a:99999",
            ":",
            "a:+1",
            "256.1.1.1:80",
            "a b:1",
            "unix:",
            "::1:2",
        ] {
            let error = check_address(address).unwrap_err().to_string();
            assert!(error.starts_with(&format!("cannot use --listen: {address:?}")), "{error}");
        }
    }

    #[test]
    fn hosts_and_origins_are_checked() {
        let given = "allow-host = [\"a.example\", \"*.b.example.\", \"*\"]\n\
                     allow-origin = [\"https://c.example:1\", \"*\"]";
        let access_given = access_of(given).unwrap();
        assert_eq!(access_given.hosts, ["a.example", "*.b.example", "*"]);
        assert_eq!(access_given.origins, ["https://c.example:1", "*"]);
        for host in ["", "a:1", "http://a", "*.", "a.*", "a b", "*a"] {
            let error = access_of(&format!("allow-host = {host:?}")).unwrap_err();
            assert!(error.contains("--allow-host") && error.contains("*.example.com"), "{error}");
        }
        for origin in ["", "a", "null", "https://", "https://a/", "https://a/b", "https://a b"] {
            let error = access_of(&format!("allow-origin = {origin:?}")).unwrap_err();
            assert!(error.contains("--allow-origin") && error.contains("https://"), "{error}");
        }
    }
}
