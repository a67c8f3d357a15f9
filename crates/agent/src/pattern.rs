//! Path patterns that assign labels to files. For example, `/run/quipu/{app}/{instance}.quipu`
//! assigns the labels `app` and `instance`.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use quipu_segment::printable;
use regex::Regex;
use serde::{Deserialize, Serialize};

use quipu_sources::recorded::Labels;

/// The label on all series of a file. Its value is the name of the file as a source.
pub(super) const SEGMENT: &str = "segment";

/// A path pattern. Each part in braces becomes a label.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Pattern(String);

/// A compiled pattern.
#[derive(Debug, Clone)]
pub(super) struct Matcher {
    regex: Regex,
    names: Vec<String>,
}

const EXAMPLE: &str = "write a path such as /run/quipu/{app}/{instance}.quipu";

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        compile(text)?;
        Ok(Self(text.to_owned()))
    }
}

impl TryFrom<String> for Pattern {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Pattern> for String {
    fn from(pattern: Pattern) -> Self {
        pattern.0
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", printable(&self.0))
    }
}

impl Pattern {
    /// Compiles the pattern. This never returns `None`, because parsing has already compiled it.
    pub(super) fn matcher(&self) -> Option<Matcher> {
        compile(&self.0).ok()
    }
}

impl Matcher {
    /// Returns the labels for a path; `None` if the pattern does not match.
    pub(super) fn labels(&self, path: &Path) -> Option<Labels> {
        let captures = self.regex.captures(path.to_str()?)?;
        let values = captures.iter().skip(1).flatten();
        let labels = self.names.iter().zip(values);
        Some(labels.map(|(name, value)| (name.clone(), value.as_str().to_owned())).collect())
    }
}

fn compile(text: &str) -> Result<Matcher, String> {
    let (mut source, mut names) = (String::from("^"), Vec::<String>::new());
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}', '*', '?']) {
        let (before, after) = rest.split_at(at);
        source.push_str(&regex::escape(before));
        rest = &after[1..];
        match after.as_bytes()[0] {
            b'*' => source.push_str("[^/]*"),
            b'?' => source.push_str("[^/]"),
            b'{' => {
                let (name, behind) =
                    rest.split_once('}').ok_or(format!("a brace is not closed; {EXAMPLE}"))?;
                check(name, &names)?;
                names.push(name.to_owned());
                source.push_str("([^/]+)");
                rest = behind;
            }
            _ => return Err(format!("a brace is not opened; {EXAMPLE}")),
        }
    }
    source.push_str(&regex::escape(rest));
    source.push('$');
    if names.is_empty() {
        return Err(format!("it names no label; {EXAMPLE}"));
    }
    let regex = Regex::new(&source).map_err(|error| format!("it is too long: {error}"))?;
    Ok(Matcher { regex, names })
}

/// Returns whether a label with this name has a special meaning in the text formats.
pub(super) fn has_meaning(name: &str) -> bool {
    ["le", "quantile", "quipu_overflow"].contains(&name) || name.starts_with("__")
}

fn check(name: &str, before: &[String]) -> Result<(), String> {
    let is_letter = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
    let is_plain = name.bytes().all(|byte| is_letter(byte) || byte.is_ascii_digit())
        && name.bytes().next().is_some_and(is_letter)
        && !name.starts_with("__");
    if !is_plain {
        return Err(format!("{name:?} cannot be the name of a label; use letters, digits and _"));
    }
    if has_meaning(name) {
        return Err(format!("the label {name:?} has a meaning in metrics; give it another name"));
    }
    if name == SEGMENT || before.iter().any(|other| other == name) {
        return Err(format!("the label {name:?} is there already; give it another name"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_paths_become_labels() {
        let labels = |pattern: &str, path: &str| {
            let matcher = pattern.parse::<Pattern>().unwrap().matcher().unwrap();
            let labels = matcher.labels(Path::new(path))?;
            Some(labels.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>())
        };
        let found = labels("/run/quipu/{app}/{instance}.quipu", "/run/quipu/web.x/1.quipu");
        assert_eq!(found.unwrap(), ["app=web.x", "instance=1"]);
        assert_eq!(labels("/run/{app}-*.quipu", "/run/a-b-c.quipu").unwrap(), ["app=a-b"]);
        assert_eq!(labels("/run/{app}.quipu", "/run/x/web.quipu"), None);
        assert_eq!(labels("/run/{app}.quipu", "/run/webxquipu"), None);
        assert_eq!(labels("/run/{app}.quipu", "/run/.quipu"), None);
        for (pattern, part) in [
            ("/run/{app", "is not closed"),
            ("/run/app}", "is not opened"),
            ("/run/*.quipu", "names no label"),
            ("/run/{a b}", "cannot be the name"),
            ("/run/{__name__}", "cannot be the name"),
            ("/run/{}", "cannot be the name"),
            ("/run/{segment}", "is there already"),
            ("/{a}/{a}", "is there already"),
        ] {
            let error = pattern.parse::<Pattern>().unwrap_err();
            assert!(error.contains(part), "{pattern}: {error}");
        }
    }
}
