//! Checks the settings of header fields and credentials for receivers.

use std::fmt;
use std::path::PathBuf;

use hyper::header::AUTHORIZATION;
use serde::{Deserialize, Serialize};

use quipu_process::settings::Unusable;

use crate::credentials::Credentials;
use crate::headers::{HIDDEN, Header, Headers};

/// A header field in the settings that is not parsed yet, `NAME: VALUE`. The value is never shown.
///
/// It is parsed together with the other settings, because an error of clap would show the whole
/// argument.
#[derive(Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(from = "String", into = "String")]
pub struct HeaderText(String);

/// The flags for one kind of receiver, each with its name and value.
pub struct HeaderFlags<'f> {
    /// The flag for the receivers, and the number of receivers.
    pub receivers: (&'static str, usize),
    /// The flag for header fields.
    pub header: (&'static str, Option<&'f Vec<HeaderText>>),
    /// The flag for the file with secret header fields.
    pub file: (&'static str, Option<&'f PathBuf>),
    /// The flag for the file with a token.
    pub bearer: (&'static str, Option<&'f PathBuf>),
    /// The flag for the file with a user and a password.
    pub basic: (&'static str, Option<&'f PathBuf>),
}

impl HeaderFlags<'_> {
    /// Returns the header fields to add to requests.
    pub fn resolve(&self) -> Result<Headers, Unusable> {
        let credentials = self.credentials()?;
        let fields = self.fields()?;
        let file = self.file.1.cloned();
        if file.is_some() {
            self.check_one_receiver(self.file.0)?;
        }
        Ok(Headers { credentials, fields, file })
    }

    fn fields(&self) -> Result<Vec<Header>, Unusable> {
        let flag = self.header.0;
        let mut fields: Vec<Header> = Vec::new();
        for (number, text) in (1..).zip(self.header.1.into_iter().flatten()) {
            let refused = |reason: &str| Unusable::new(flag, format!("value {number}: {reason}"));
            let header = Header::parse(&text.0).map_err(|reason| refused(&reason))?;
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

    /// Returns the credentials for the only receiver, from either of the two file flags.
    fn credentials(&self) -> Result<Option<Credentials>, Unusable> {
        let (bearer, basic) = (self.bearer, self.basic);
        let (name, credentials) = match (bearer.1, basic.1) {
            (None, None) => return Ok(None),
            (Some(file), None) => (bearer.0, Credentials::Bearer(file.clone())),
            (None, Some(file)) => (basic.0, Credentials::Basic(file.clone())),
            (Some(_), Some(_)) => {
                let reason = format!("there is --{}, too; give one of them", basic.0);
                return Err(Unusable::new(bearer.0, reason));
            }
        };
        self.check_one_receiver(name).map(|()| Some(credentials))
    }

    /// Rejects a setting that applies to no receiver.
    fn check_any_receiver(&self, flag: &'static str) -> Result<(), Unusable> {
        match self.receivers {
            (name, 0) => {
                Err(Unusable::new(flag, format!("there is no receiver; give one with --{name}")))
            }
            _ => Ok(()),
        }
    }

    /// Rejects a secret unless there is exactly one receiver.
    fn check_one_receiver(&self, flag: &'static str) -> Result<(), Unusable> {
        self.check_any_receiver(flag)?;
        let (_, count) = self.receivers;
        if count == 1 {
            return Ok(());
        }
        let reason = format!(
            "it is for one receiver, and there are {count}: each of them would see the secret of \
             the others; run a daemon for each, or have a proxy add the secrets"
        );
        Err(Unusable::new(flag, reason))
    }
}

/// Checks that the files with secrets can be read. The names are the flags for a token, a password,
/// and header fields.
pub fn check(
    headers: &Headers,
    [bearer, basic, fields]: [&'static str; 3],
) -> Result<(), Unusable> {
    if let Some(credentials) = &headers.credentials {
        check_credentials(credentials, bearer, basic)?;
    }
    // The credentials are readable, so the error belongs to the other file.
    headers.read().map(drop).map_err(|reason| Unusable::new(fields, reason))
}

/// Checks that a file with credentials can be read.
pub fn check_credentials(
    credentials: &Credentials,
    bearer: &'static str,
    basic: &'static str,
) -> Result<(), Unusable> {
    let flag = match credentials {
        Credentials::Bearer(_) => bearer,
        Credentials::Basic(_) => basic,
    };
    credentials.authorization().map(drop).map_err(|reason| Unusable::new(flag, reason))
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
