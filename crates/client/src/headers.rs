//! The header fields that users add to requests, for example for tenants, API keys and credentials.

use std::path::PathBuf;

use hyper::header::{AUTHORIZATION, HeaderName, HeaderValue};
use quipu_segment::printable;

use crate::credentials::{self, Credentials};

/// The header fields to add to the fields that the protocol requires.
#[derive(Debug, Clone, Default)]
pub struct Headers {
    /// The credentials for the receiver.
    pub credentials: Option<Credentials>,
    /// Header fields with distinct names.
    pub fields: Vec<Header>,
    /// A file with more fields, one per line. The file is read before each request.
    pub file: Option<PathBuf>,
}

/// A header field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The name.
    pub name: HeaderName,
    /// The value, which is never shown.
    pub value: HeaderValue,
}

/// The placeholder for secret values when settings are shown.
pub const HIDDEN: &str = "<secret>";

impl Header {
    /// Parses `NAME: VALUE`.
    ///
    /// # Errors
    /// Returns the problem, without any part that may be secret.
    pub fn parse(text: &str) -> Result<Self, String> {
        const EXAMPLE: &str = "write NAME: VALUE, such as X-Scope-OrgID: tenant-1";
        let (name, value) =
            text.split_once(':').ok_or_else(|| format!("it has no colon; {EXAMPLE}"))?;
        let name = HeaderName::from_bytes(name.trim().as_bytes())
            .map_err(|_| format!("what it has before the colon cannot be a name; {EXAMPLE}"))?;
        if let Some(why) = refusal(&name) {
            return Err(format!("{name} cannot be added: {why}"));
        }
        let value = value.trim();
        if value.is_empty() || value == HIDDEN {
            return Err(format!("{name} has no value; {EXAMPLE}"));
        }
        let mut value = HeaderValue::from_str(value)
            .map_err(|_| format!("the value of {name} has characters that a field cannot have"))?;
        value.set_sensitive(true);
        Ok(Self { name, value })
    }
}

impl Headers {
    /// Returns the fields for the next request.
    ///
    /// # Errors
    /// Returns the problem with a file, without any part that may be secret.
    pub fn read(&self) -> Result<Vec<Header>, String> {
        let mut all = self.fields.clone();
        if let Some(credentials) = &self.credentials {
            all.push(Header { name: AUTHORIZATION, value: credentials.authorization()? });
        }
        let Some(path) = &self.file else { return Ok(all) };
        let text = credentials::read(path)?;
        for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
            let at = format!("line {number} of {}", printable(path));
            let header = Header::parse(line).map_err(|error| format!("{at}: {error}"))?;
            if all.iter().any(|other| other.name == header.name) {
                let name = header.name;
                return Err(format!(
                    "{at}: {name} is there already, or comes from a flag; remove one"
                ));
            }
            all.push(header);
        }
        Ok(all)
    }
}

/// Returns the reason why a field with this name cannot be added, with a remedy, if any.
fn refusal(name: &HeaderName) -> Option<&'static str> {
    Some(match name.as_str() {
        "host" => "it is the host of the URL; give a URL with that host",
        "accept"
        | "accept-encoding"
        | "content-encoding"
        | "content-length"
        | "content-type"
        | "quipu-via"
        | "user-agent"
        | "x-prometheus-remote-write-version"
        | "x-victoriametrics-remote-write-version" => {
            "the daemon sets it itself; leave it out, or have a proxy change it"
        }
        "connection"
        | "expect"
        | "keep-alive"
        | "proxy-authorization"
        | "proxy-connection"
        | "te"
        | "trailer"
        | "transfer-encoding"
        | "upgrade" => "it is about the connection, and not the request; leave it out",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::via;

    #[test]
    fn fields_are_checked_without_showing_their_values() {
        let header = Header::parse(" X-Scope-OrgID:a:b c ").unwrap();
        assert_eq!(
            (header.name.as_str(), header.value.to_str().unwrap()),
            ("x-scope-orgid", "a:b c")
        );
        assert!(!format!("{header:?}").contains("a:b"), "{header:?}");
        for (text, part) in [
            ("swordfish", "no colon"),
            (": swordfish", "before the colon"),
            ("sword fish: swordfish", "before the colon"),
            ("x:", "x has no value"),
            ("x: <secret>", "x has no value"),
            ("x: sword\rfish", "characters that a field cannot have"),
            ("Host: swordfish", "a URL with that host"),
            ("content-Type: swordfish", "the daemon sets it"),
            ("TE: swordfish", "the connection"),
        ] {
            let error = Header::parse(text).unwrap_err();
            assert!(error.contains(part) && !error.contains("fish"), "{text}: {error}");
        }
        assert!(refusal(&via::FIELD).is_some());
    }

    #[test]
    fn a_file_adds_fields_and_is_read_each_time() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("fields");
        let fields = vec![Header::parse("a: 1").unwrap()];
        let headers = Headers { credentials: None, fields, file: Some(path.clone()) };
        assert!(headers.read().unwrap_err().contains("cannot read"));
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            let all = headers.read()?;
            let shown = |one: &Header| format!("{}={}", one.name, one.value.to_str().unwrap());
            Ok::<_, String>(all.iter().map(shown).collect::<Vec<_>>().join(" "))
        };
        assert_eq!(
            read("b: 2\r\n\n Authorization: Api-Token x\n"),
            Ok("a=1 b=2 authorization=Api-Token x".into())
        );
        assert_eq!(read("b: 3"), Ok("a=1 b=3".into()));
        for (text, part) in [
            ("b: 2\nfish\n", "line 2 of "),
            ("b: 2\nB: fish\n", "line 2 of "),
            ("A: fish\n", "comes from a flag"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(part) && !error.contains("fish"), "{error}");
        }
        let credentials = Some(Credentials::Bearer(path.clone()));
        let both = Headers { credentials, ..headers.clone() };
        std::fs::write(&path, "Authorization: x").unwrap();
        assert!(both.read().unwrap_err().contains("authorization is there already"));
    }
}
