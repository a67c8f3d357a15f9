//! Reads credentials from files, for receivers and scrape targets. A file is read for each request,
//! so you can change it while the daemon runs.

use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hyper::header::HeaderValue;
use quipu_segment::printable;

/// A file with the credentials that another server requires.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credentials {
    /// A file with a token.
    Bearer(PathBuf),
    /// A file with a name and a password.
    Basic(PathBuf),
}

impl Credentials {
    /// Returns the value of the header field `Authorization`.
    ///
    /// # Errors
    /// Returns the error of the file. The message contains the path, but never the contents.
    pub fn authorization(&self) -> Result<HeaderValue, String> {
        let (Self::Bearer(path) | Self::Basic(path)) = self;
        let text = read(path)?;
        let secret = text.trim();
        let wrong = |fault| Err(format!("{} {fault}", printable(path)));
        if secret.contains(char::is_control) {
            return wrong("has more than a line, or control characters; write the secret alone");
        }
        let value = match self {
            Self::Bearer(_) if !secret.is_ascii() => {
                return wrong("has characters that are not ASCII, which no token has; correct it");
            }
            Self::Bearer(_) => format!("Bearer {secret}"),
            Self::Basic(_) if !secret.contains(':') => {
                return wrong("has no colon; write USER:PASSWORD");
            }
            Self::Basic(_) => format!("Basic {}", BASE64_STANDARD.encode(secret)),
        };
        let mut value = HeaderValue::from_str(&value).expect("visible ASCII and spaces");
        value.set_sensitive(true);
        Ok(value)
    }
}

/// Returns the contents of a file with a secret.
///
/// # Errors
/// Fails like [`Credentials::authorization`].
pub fn read(path: &Path) -> Result<String, String> {
    let mut text = String::new();
    // We use `O_NONBLOCK` because opening a pipe without a writer would block the thread forever.
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path);
    let read = file.and_then(|file| match file.metadata()?.is_file() {
        true => file.take(MOST + 1).read_to_string(&mut text).map(Some),
        false => Ok(None),
    });
    let path = printable(path);
    match read {
        Err(error) => Err(format!("cannot read {path}: {error}")),
        Ok(None) => Err(format!("{path} is not a regular file; write the secret to one")),
        Ok(_) if text.len() as u64 > MOST => Err(format!("{path} has more than {MOST} bytes")),
        Ok(_) if text.trim().is_empty() => Err(format!("{path} is empty")),
        Ok(_) => Ok(text),
    }
}

/// The maximum size of a file in bytes.
const MOST: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_become_fields_and_errors_name_the_path_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        let of = |text: &str| {
            std::fs::write(&path, text).unwrap();
            [Credentials::Bearer(path.clone()), Credentials::Basic(path.clone())]
                .map(|one| one.authorization())
        };
        let shown = of("ada:b\n").map(|value| value.unwrap().to_str().unwrap().to_owned());
        assert_eq!(shown, ["Bearer ada:b", "Basic YWRhOmI="]);
        assert!(of("x:y").iter().flatten().all(HeaderValue::is_sensitive));
        let long = "x".repeat(65537);
        for (text, part) in
            [("", "is empty"), (" \n", "is empty"), (&long, "more than 65536 bytes")]
        {
            for error in of(text).map(Result::unwrap_err) {
                assert!(error.contains("secret") && error.contains(part), "{error}");
            }
        }
        let [bearer, basic] = of("ada:b\u{e9}");
        assert!(bearer.unwrap_err().contains("secret has characters that are not ASCII"));
        assert_eq!(basic.unwrap(), "Basic YWRhOmLDqQ==");
        let [bearer, basic] = of("swordfish");
        assert!(bearer.is_ok());
        let error = basic.unwrap_err();
        assert!(error.contains("secret has no colon") && !error.contains("fish"), "{error}");
        // Includes control characters that a password could still contain when it is encoded.
        for text in ["ada:swordfish\nhaddock", "ada:sword\tfish", "ada:\u{7f}fish"] {
            for error in of(text).map(Result::unwrap_err) {
                assert!(error.contains("secret has more than a line"), "{text:?}: {error}");
                assert!(!error.contains("fish"), "{text:?}: {error}");
            }
        }
        let missing = Credentials::Bearer(directory.path().join("none")).authorization();
        assert!(missing.unwrap_err().starts_with("cannot read "));
        let folder = Credentials::Bearer(directory.path().to_owned()).authorization();
        assert!(folder.unwrap_err().contains(" is not a regular file"));
    }
}
