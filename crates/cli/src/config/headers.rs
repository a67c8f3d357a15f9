//! The settings of header fields and credentials for receivers.

use std::fmt;
use std::path::PathBuf;

use hyper::header::AUTHORIZATION;
use serde::{Deserialize, Serialize};

use super::Error;
use quipu_client::credentials::Credentials;
use quipu_client::headers::{HIDDEN, Header, Headers};

/// A header field as it was given, `NAME: VALUE`. The value is not shown.
///
/// It is checked with the other settings: a message of clap shows the argument that cannot be read.
#[derive(Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(from = "String", into = "String")]
pub struct HeaderText(String);

/// The flags for one kind of receivers, as the name and the value of each.
pub(super) struct Given<'f> {
    /// The flag for the receivers, and how many there are.
    pub(super) receivers: (&'static str, usize),
    pub(super) header: (&'static str, Option<&'f Vec<HeaderText>>),
    pub(super) file: (&'static str, Option<&'f PathBuf>),
    pub(super) bearer: (&'static str, Option<&'f PathBuf>),
    pub(super) basic: (&'static str, Option<&'f PathBuf>),
}

impl Given<'_> {
    /// What is added to requests.
    pub(super) fn resolve(&self) -> Result<Headers, Error> {
        let credentials = self.credentials()?;
        let fields = self.fields()?;
        let file = self.file.1.cloned();
        if file.is_some() {
            self.check_one_receiver(self.file.0)?;
        }
        Ok(Headers { credentials, fields, file })
    }

    fn fields(&self) -> Result<Vec<Header>, Error> {
        let flag = self.header.0;
        let mut fields: Vec<Header> = Vec::new();
        for (number, text) in (1..).zip(self.header.1.into_iter().flatten()) {
            let refused = |what: &str| Error::Value(flag, format!("value {number}: {what}"));
            let header = Header::parse(&text.0).map_err(|what| refused(&what))?;
            if header.name == AUTHORIZATION {
                return Err(refused(&format!(
                    "{AUTHORIZATION} is a secret, which others can see in the list of processes; \
                     write it to a file, and name that with --{}, --{}, or, as a line \
                     {AUTHORIZATION}: VALUE, with --{}",
                    self.bearer.0, self.basic.0, self.file.0
                )));
            }
            if fields.iter().any(|other| other.name == header.name) {
                return Err(refused(&format!("{} is given twice", header.name)));
            }
            fields.push(header);
        }
        if !fields.is_empty() {
            self.check_any_receiver(flag)?;
        }
        Ok(fields)
    }

    /// The credentials for the only receiver, from the flags for either file.
    fn credentials(&self) -> Result<Option<Credentials>, Error> {
        let (bearer, basic) = (self.bearer, self.basic);
        let (name, credentials) = match (bearer.1, basic.1) {
            (None, None) => return Ok(None),
            (Some(file), None) => (bearer.0, Credentials::Bearer(file.clone())),
            (None, Some(file)) => (basic.0, Credentials::Basic(file.clone())),
            (Some(_), Some(_)) => {
                let what = format!("there is --{}, too; give one of them", basic.0);
                return Err(Error::Value(bearer.0, what));
            }
        };
        self.check_one_receiver(name).map(|()| Some(credentials))
    }

    /// Refuses what is for no receiver.
    fn check_any_receiver(&self, flag: &'static str) -> Result<(), Error> {
        match self.receivers {
            (name, 0) => {
                Err(Error::Value(flag, format!("there is no receiver; give one with --{name}")))
            }
            _ => Ok(()),
        }
    }

    /// Refuses a secret unless it is for one receiver.
    fn check_one_receiver(&self, flag: &'static str) -> Result<(), Error> {
        self.check_any_receiver(flag)?;
        let (_, count) = self.receivers;
        if count == 1 {
            return Ok(());
        }
        let what = format!(
            "it is for one receiver, and there are {count}: each of them would see the secret of \
             the others; run a daemon for each, or have a proxy add the secrets"
        );
        Err(Error::Value(flag, what))
    }
}

/// Reads the files with secrets. The flags are those of a token, a password, and fields.
pub(super) fn check(
    headers: &Headers,
    [bearer, basic, fields]: [&'static str; 3],
) -> Result<(), Error> {
    if let Some(credentials) = &headers.credentials {
        check_credentials(credentials, bearer, basic)?;
    }
    // The credentials can be read, so an error is one of the other file.
    headers.read().map(drop).map_err(|what| Error::Value(fields, what))
}

/// Reads a file with credentials.
pub(super) fn check_credentials(
    credentials: &Credentials,
    bearer: &'static str,
    basic: &'static str,
) -> Result<(), Error> {
    let flag = match credentials {
        Credentials::Bearer(_) => bearer,
        Credentials::Basic(_) => basic,
    };
    credentials.authorization().map(drop).map_err(|what| Error::Value(flag, what))
}

impl From<String> for HeaderText {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<HeaderText> for String {
    fn from(text: HeaderText) -> Self {
        text.to_string()
    }
}

impl fmt::Display for HeaderText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.split_once(':') {
            Some((name, _)) => write!(f, "{name}: {HIDDEN}"),
            None => f.write_str(HIDDEN),
        }
    }
}

impl fmt::Debug for HeaderText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use crate::config::{Flags, Settings};

    #[test]
    fn fields_are_checked_with_the_settings_and_not_shown() {
        const URL: &str = "remote-write = [\"http://a/w\"]\n";
        for (toml, part) in [
            ("remote-write-header = [\"x: fish\"]".into(), "give one with --remote-write"),
            (
                format!("{URL}remote-write-header = [\"x: 1\", \"fish\"]"),
                "value 2: it has no colon",
            ),
            (
                format!("{URL}remote-write-header = [\"x: 1\", \"X: fish\"]"),
                "value 2: x is given twice",
            ),
            (format!("{URL}remote-write-header = [\"Host: fish\"]"), "a URL with that host"),
            (
                format!("{URL}remote-write-header = [\"Authorization: Fish fish\"]"),
                "--remote-write-bearer-file, --remote-write-basic-file, or, as a line authorization: \
                 VALUE, with --remote-write-header-file",
            ),
            (
                "otlp-header-file = \"f\"".into(),
                "--otlp-header-file: there is no receiver; give one",
            ),
            ("otlp = [\"http://a\", \"http://b\"]\notlp-header-file = \"f\"".into(), "there are 2"),
            (
                "otlp = [\"http://a\"]\notlp-header = [\"te: fish\"]".into(),
                "--otlp-header: value 1",
            ),
        ] {
            let error = Settings::resolve(toml::from_str(&toml).unwrap()).unwrap_err().to_string();
            assert!(error.contains(part) && !error.contains("fish"), "{toml}: {error}");
        }
        // A field of a flag may go to several receivers.
        let toml = "otlp = [\"http://a\", \"http://b\"]\notlp-header = [\"X-Tenant: fish\"]";
        let settings = Settings::resolve(toml::from_str(toml).unwrap()).unwrap();
        assert_eq!(settings.outputs.otlp.headers.fields.len(), 1);
        let (shown, file) =
            (format!("{settings:?}{:?}", settings.flags.shown()), settings.to_toml());
        assert!(!shown.contains("fish") && shown.contains("X-Tenant: <secret>"), "{shown}");
        assert!(file.contains("otlp-header = [\"X-Tenant: <secret>\"]"), "{file}");
        // The file that was shown is refused, rather than sent.
        let error = Settings::resolve(toml::from_str::<Flags>(&file).unwrap()).unwrap_err();
        assert!(error.to_string().contains("x-tenant has no value"), "{error}");
    }
}
