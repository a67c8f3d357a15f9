//! The hosts and the origins that requests may name.

use super::{Error, Flags};
use quipu_http::Access;

/// The names of the settings, and of the addresses to listen on.
pub(super) fn resolve(flags: &Flags, listen: &[String]) -> Result<Access, Error> {
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

fn checked_host(host: &str) -> Result<String, Error> {
    let name = host.strip_prefix("*.").unwrap_or(host);
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if host == "*" || !name.is_empty() && name.chars().all(is_part) {
        return Ok(host.strip_suffix('.').unwrap_or(host).to_owned());
    }
    let what = format!(
        "{host:?} is not a name: give one without a scheme and a port, such as metrics.example.com \
         or *.example.com, or * for all"
    );
    Err(Error::Value("allow-host", what))
}

fn checked_origin(origin: &str) -> Result<String, Error> {
    let host = origin.split_once("://").map(|(_, host)| host);
    if origin == "*" || host.is_some_and(|host| !host.is_empty() && !host.contains(['/', ' '])) {
        return Ok(origin.to_owned());
    }
    let what = format!(
        "{origin:?} is not an origin: give the scheme, the host and the port if the page has one, \
         such as https://console.example.com, or * for all"
    );
    Err(Error::Value("allow-origin", what))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(toml: &str) -> Result<Access, String> {
        let flags = toml::from_str::<Flags>(toml).unwrap();
        let listen = flags.listen.clone().unwrap_or_default();
        resolve(&flags, &listen).map_err(|error| error.to_string())
    }

    #[test]
    fn names_to_listen_on_are_known() {
        let listen = r#"listen = ["127.0.0.1:1", "[::1]:1", ":1", "unix:/a:1", "a.example.com:1"]"#;
        let hosts = access(listen).unwrap().hosts;
        assert_eq!(hosts, ["127.0.0.1", "[::1]", "a.example.com"]);
    }

    #[test]
    fn hosts_and_origins_are_checked() {
        let given = "allow-host = [\"a.example\", \"*.b.example.\", \"*\"]\n\
                     allow-origin = [\"https://c.example:1\", \"*\"]";
        let access_given = access(given).unwrap();
        assert_eq!(access_given.hosts, ["a.example", "*.b.example", "*"]);
        assert_eq!(access_given.origins, ["https://c.example:1", "*"]);
        for host in ["", "a:1", "http://a", "*.", "a.*", "a b", "*a"] {
            let error = access(&format!("allow-host = {host:?}")).unwrap_err();
            assert!(error.contains("--allow-host") && error.contains("*.example.com"), "{error}");
        }
        for origin in ["", "a", "null", "https://", "https://a/", "https://a/b", "https://a b"] {
            let error = access(&format!("allow-origin = {origin:?}")).unwrap_err();
            assert!(error.contains("--allow-origin") && error.contains("https://"), "{error}");
        }
    }
}
