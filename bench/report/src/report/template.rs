//! Splits a template into plain parts and placeholders.

use crate::{Error, Result};

/// A part of the template.
#[derive(Debug, PartialEq)]
pub(super) enum Part<'a> {
    /// A part that is copied.
    Text(&'a str),
    /// The content between `{{` and `}}`.
    Placeholder(Placeholder),
}

/// `{{word words... key=value...}}`.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Placeholder {
    /// The line in the template, from 1.
    pub(super) line: usize,
    pub(super) word: String,
    pub(super) words: Vec<String>,
    options: Vec<(String, String)>,
}

impl Placeholder {
    /// Returns a copy for the cases with this prefix.
    pub(super) fn with_prefix(&self, prefix: &str) -> Placeholder {
        let words = self.words.iter().map(|word| format!("{prefix}{word}")).collect();
        Placeholder { words, ..self.clone() }
    }

    /// The value of an optional `key=value`.
    pub(super) fn option(&self, key: &str) -> Option<&str> {
        let found = self.options.iter().find(|(name, _)| name == key);
        found.map(|(_, value)| value.as_str())
    }

    /// The value of a required `key=value`.
    pub(super) fn required(&self, key: &str) -> Result<&str> {
        let problem = || Error::report(format!("{} needs {key}=...", self.word));
        self.option(key).ok_or_else(problem)
    }

    /// Refuses a placeholder with fewer words, or with other options.
    pub(super) fn expect(&self, words: usize, options: &[&str]) -> Result<()> {
        if self.words.len() < words || (words == 0 && !self.words.is_empty()) {
            let problem = format!("{} has {} words after it", self.word, self.words.len());
            return Err(Error::report(problem));
        }
        match self.options.iter().find(|(name, _)| !options.contains(&name.as_str())) {
            None => Ok(()),
            Some((name, _)) => Err(Error::report(format!(
                "{} has no option {name}; it has: {}",
                self.word,
                options.join(", "),
            ))),
        }
    }
}

/// Splits a template. `place` names it in errors.
pub(super) fn parse<'a>(place: &str, text: &'a str) -> Result<Vec<Part<'a>>> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find("{{") {
        let line = 1 + text[..text.len() - rest.len() + start].matches('\n').count();
        let inner = &rest[start + 2..];
        let Some(end) = inner.find("}}") else {
            return Err(Error::line(place, line, "{{ without }}"));
        };
        parts.push(Part::Text(&rest[..start]));
        let placeholder = parse_placeholder(line, &inner[..end])
            .map_err(|problem| Error::line(place, line, problem))?;
        parts.push(Part::Placeholder(placeholder));
        rest = &inner[end + 2..];
    }
    parts.push(Part::Text(rest));
    Ok(parts)
}

/// Returns whether a string matches a pattern. Each `*` in the pattern matches any characters.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((before, after)) => text.strip_prefix(before).is_some_and(|rest| {
            let ends = rest.char_indices().map(|(index, _)| index).chain([rest.len()]);
            ends.into_iter().any(|index| matches(after, &rest[index..]))
        }),
    }
}

fn parse_placeholder(line: usize, text: &str) -> std::result::Result<Placeholder, String> {
    let mut tokens = split(text)?.into_iter();
    let (_, word) = tokens.next().ok_or("an empty placeholder")?;
    let mut placeholder = Placeholder { line, word, words: Vec::new(), options: Vec::new() };
    for (key, value) in tokens {
        match key {
            None => placeholder.words.push(value),
            Some(key) => placeholder.options.push((key, value)),
        }
    }
    Ok(placeholder)
}

/// Splits at spaces outside quotes. A `=` before any quote ends the key of an option.
fn split(text: &str) -> std::result::Result<Vec<(Option<String>, String)>, String> {
    let mut tokens = Vec::new();
    let mut chars = text.chars().peekable();
    loop {
        while chars.next_if(|c| c.is_whitespace()).is_some() {}
        if chars.peek().is_none() {
            return Ok(tokens);
        }
        let (mut key, mut value, mut quotes) = (None, String::new(), 0);
        while let Some(c) = chars.next_if(|c| quotes % 2 == 1 || !c.is_whitespace()) {
            match c {
                '"' => quotes += 1,
                '=' if quotes == 0 && key.is_none() => key = Some(std::mem::take(&mut value)),
                c => value.push(c),
            }
        }
        if quotes % 2 == 1 {
            return Err("a quote is not closed".into());
        }
        tokens.push((key, value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_text_and_placeholders() {
        let parts = parse("t", "a\n{{table b/* \"c d\" peer=\"e = f\" metric=g}}\nh").unwrap();
        let [Part::Text("a\n"), Part::Placeholder(table), Part::Text("\nh")] = &parts[..] else {
            panic!("{parts:?}");
        };
        assert_eq!((table.line, table.word.as_str()), (2, "table"));
        assert_eq!(table.words, ["b/*", "c d"]);
        assert_eq!((table.option("peer"), table.option("metric")), (Some("e = f"), Some("g")));
        assert!(table.expect(1, &["peer", "metric"]).is_ok());
        assert!(table.expect(1, &["peer"]).is_err());
        assert!(table.expect(3, &["peer", "metric"]).is_err());
    }

    #[test]
    fn refuses_what_is_not_closed_or_empty() {
        let error = |text| parse("t", text).unwrap_err().to_string();
        assert_eq!(error("\n{{table"), "t:2: {{ without }}");
        assert_eq!(error("{{table \"a}}"), "t:1: a quote is not closed");
        assert_eq!(error("{{ }}"), "t:1: an empty placeholder");
    }

    #[test]
    fn stars_stand_for_any_text() {
        assert!(matches("a/*", "a/") && matches("a/*", "a/b/c") && matches("*b*", "abc"));
        assert!(matches("a/b", "a/b") && matches("*", ""));
        assert!(!matches("a/*", "b/a") && !matches("a", "ab") && !matches("*b", "abc"));
    }
}
