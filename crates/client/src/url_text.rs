//! URLs in settings that are not parsed yet. A URL can contain a secret, so errors contain the flag
//! and the position of the value instead of the URL.

use serde::{Deserialize, Serialize};

use quipu_process::settings::Unusable;

/// A URL, or `JOB=URL`, that is not parsed yet.
///
/// It is parsed together with the other settings, because errors of clap and of the TOML parser
/// would show the invalid value.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(transparent)]
pub struct UrlText(String);

impl UrlText {
    /// Returns the unparsed value.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Removes the query, because it can contain a secret.
    pub fn hide_query(&mut self) {
        self.0.truncate(self.0.find('?').unwrap_or(self.0.len()));
    }

    /// Replaces the query with a placeholder, which is not accepted as a URL.
    pub fn redact_query(&mut self) {
        if let Some(at) = self.0.find('?') {
            self.0.replace_range(at + 1.., "<secret>");
        }
    }
}

impl From<String> for UrlText {
    fn from(text: String) -> Self {
        Self(text)
    }
}

/// Parses the values of a flag. Rejects URLs with passwords.
pub fn read<T>(
    flag: &'static str,
    given: Option<&Vec<UrlText>>,
    of: impl Fn(&str) -> Result<T, String>,
    url: impl Fn(&T) -> &str,
) -> Result<Vec<T>, Unusable> {
    let read = |(number, text): (usize, &UrlText)| {
        let whole = check_is_one(flag, &text.0);
        let checked =
            whole.and_then(|()| of(&text.0)).and_then(|one| check(flag, url(&one)).map(|()| one));
        checked.map_err(|reason| Unusable::new(flag, format!("value {number}: {reason}")))
    };
    (1..).zip(given.into_iter().flatten()).map(read).collect()
}

/// Rejects several URLs with commas between them, because they would form one URL with a long path.
/// A single URL can contain commas.
fn check_is_one(flag: &str, text: &str) -> Result<(), String> {
    let is_url = |rest: &str| {
        let rest = rest.trim_start();
        // A scrape target can contain a job before its URL.
        let url = rest.split_once('=').filter(|(job, _)| !job.contains([':', '/', '&']));
        let url = url.map_or(rest, |(_, url)| url);
        ["http://", "https://", "unix:"].iter().any(|start| url.starts_with(start))
    };
    if !text.split(',').skip(1).any(is_url) {
        return Ok(());
    }
    let variable = flag.to_uppercase().replace('-', "_");
    Err(format!(
        "it has a comma and another URL after that: give each by a --{flag} of its own, on a line \
         of its own in QUIPU_{variable}, or in an array of the settings file; write a comma of a \
         URL as %2C"
    ))
}

/// Rejects a URL whose host is followed by a colon and anything but a port, because the default
/// port would then be used.
///
/// # Errors
/// Returns the reason and the remedy, without the URL.
pub fn check_port(url: &str) -> Result<(), String> {
    let port = port(authority(url));
    match port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok() {
        false if !port.is_empty() => {
            Err("the port is not a number up to 65535: write HOST:PORT, such as localhost:8081"
                .into())
        }
        _ => Ok(()),
    }
}

/// Returns a URL to be shown, with `...` instead of a user and a password.
pub fn without_password(url: &str) -> String {
    match authority(url).rfind('@') {
        None => url.to_owned(),
        Some(end) => {
            let begin = url.find("://").map_or(0, |at| at + 3);
            format!("{}...{}", &url[..begin], &url[begin + end..])
        }
    }
}

/// Returns the host and the port of a URL.
fn authority(url: &str) -> &str {
    // The authority follows the two slashes of the scheme.
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split(['/', '?', '#']).next().unwrap_or_default()
}

/// Returns the port of an authority. An IPv6 address contains colons within brackets.
fn port(authority: &str) -> &str {
    let host = authority.rfind(']').unwrap_or(authority.rfind('@').unwrap_or(0));
    authority[host..].split_once(':').map_or("", |(_, port)| port)
}

/// Rejects a URL with a password.
fn check(flag: &str, url: &str) -> Result<(), String> {
    // The authority follows the two slashes of the scheme. An IPv6 address contains colons within
    // brackets.
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let shown = rest.split('?').next().unwrap_or_default();
    let authority = shown.split(['/', '#']).next().unwrap_or_default();
    let host = authority.rfind(']').unwrap_or(0);
    let port = authority[host..].split_once(':').map_or("", |(_, port)| port);
    let is_port = port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok();
    // A slash, a question mark or a number sign in a password ends the authority. The part before
    // it then looks like a port, and an `@` follows later.
    if authority.contains('@') || !port.is_empty() && shown.contains('@') {
        return Err(format!(
            "the URL has a password, which others can see in the list of processes; write \
             USER:PASSWORD to a file, and name that with --{flag}-basic-file. Write an @ in a path \
             as %40"
        ));
    }
    if !port.is_empty() && !is_port {
        return Err(format!(
            "its host is followed by a colon and what is not a port; write HOST:PORT, and \
             USER:PASSWORD to a file that --{flag}-basic-file names"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_shows_no_password_and_needs_a_port() {
        for url in ["http://a", "http://a:80/b:c", "http://[::1]", "http://u:p@[::1]:9/", "a:1"] {
            assert_eq!(check_port(url), Ok(()), "{url}");
        }
        for url in ["http://a:99999/b", "http://a:b", "http://[::1]:+1", "127.0.0.1:65536/m"] {
            assert!(check_port(url).unwrap_err().contains("HOST:PORT"), "{url}");
        }
        assert_eq!(without_password("http://u:p@a:1/b@c"), "http://...@a:1/b@c");
        assert_eq!(without_password("u:p@a/b"), "...@a/b");
        assert_eq!(without_password("http://a/b@c"), "http://a/b@c");
    }

    #[test]
    fn passwords_are_refused_and_not_shown() {
        for url in [
            "http://a/b@c?d@e",
            "http://a:9/b?c@d",
            "http://a:65535",
            "http://a:/b",
            "http://[::1]",
            "http://[::1]:9/b?c:d@e",
        ] {
            assert_eq!(check("scrape", url), Ok(()), "{url}");
        }
        let ends = "fish@a fi@sh@a fi/sh@a fi?sh@a fi#sh@a fi/sh 12/fish@a 12#fish@a 65536 +80 @a \
                    fish@[::1] fi/sh@[::1]:9";
        for end in ends.split(' ') {
            for start in ["http://u:", "https://[::1]:"] {
                let error = check("scrape", &format!("{start}{end}/w")).unwrap_err();
                assert!(error.contains("--scrape-basic-file"), "{end}: {error}");
                assert!(!error.contains(end) && !error.contains("sh@"), "{end}: {error}");
            }
        }
    }

    #[test]
    fn several_urls_in_one_value_are_refused() {
        for text in
            ["http://a/w?ids=1,2", "j=http://a/m,n?x=y", "http://a/,b=c", "http://a/?u=http://b"]
        {
            assert_eq!(check_is_one("scrape", text), Ok(()), "{text}");
        }
        for text in [
            "http://a/w,http://b/w",
            "http://a, https://b?fish",
            "j=http://a,k=http://b",
            "unix:/a,unix:/b",
        ] {
            let error = check_is_one("remote-write", text).unwrap_err();
            assert!(error.contains("on a line of its own in QUIPU_REMOTE_WRITE"), "{error}");
            assert!(!error.contains("fish"), "{error}");
        }
    }

    #[test]
    fn errors_name_the_value_by_its_number() {
        let texts = ["http://a", "http://u:fish@a"].map(|text| UrlText(text.to_owned()));
        let of = |text: &str| Ok(text.to_owned());
        let error = read("otlp", Some(&texts.to_vec()), of, String::as_str).unwrap_err();
        let error = error.to_string();
        assert!(error.starts_with("cannot use --otlp: value 2: the URL has"), "{error}");
        let fails = |_: &str| Err::<String, _>("no".to_owned());
        let error = read("otlp", Some(&texts.to_vec()), fails, String::as_str).unwrap_err();
        assert_eq!(error.to_string(), "cannot use --otlp: value 1: no");
    }
}
