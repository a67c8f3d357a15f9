//! Parses the name of a series on the command line: `name`, `name{label="value",...}`, or, for a
//! name with other characters, `{"any name",label="value"}`.
//!
//! The syntax is strictly the syntax of an exposition. An error names the column and the expected
//! characters.

use quipu_segment::printable;

/// The name of a metric, and the labels of one of its series in the given order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeriesName {
    /// The name.
    pub name: String,
    /// The names and values of the labels. Each name occurs only once.
    pub labels: Vec<(String, String)>,
}

impl SeriesName {
    /// Returns the labels, borrowed.
    pub fn labels(&self) -> Vec<(&str, &str)> {
        self.labels.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
    }
}

impl std::str::FromStr for SeriesName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut reader = Reader { text, at: 0 };
        reader.series()
    }
}

/// Returns the reason why a name is invalid for a label, although it is valid for a metric.
fn fault(name: &str) -> Option<&'static str> {
    match name {
        "quipu_overflow" => Some("it marks the overflow series: choose another"),
        _ if name.starts_with("__") => Some("Prometheus reserves \"__\": choose another"),
        _ => None,
    }
}

/// A parser at a position in a string.
struct Reader<'t> {
    text: &'t str,
    /// The offset of the next byte.
    at: usize,
}

impl Reader<'_> {
    fn series(&mut self) -> Result<SeriesName, String> {
        self.skip_spaces();
        let mut series = SeriesName { name: self.word(":"), labels: Vec::new() };
        self.skip_spaces();
        if self.take('{') {
            self.labels(&mut series)?;
            self.skip_spaces();
        }
        if series.name.is_empty() {
            self.at = 0;
            return Err(self.error("a name is missing: write NAME or NAME{LABEL=\"VALUE\"}"));
        }
        match self.peek() {
            None => Ok(series),
            Some(c) if !self.text[..self.at].contains('{') => {
                // The spaces before this position were already skipped.
                let c = if self.text[..self.at].ends_with(' ') { ' ' } else { c };
                // The name ends before the labels.
                let (name, labels) = match self.text.split_once('{') {
                    Some((name, _)) => (name, ",LABEL=\"VALUE\""),
                    None => (self.text, ""),
                };
                let name = if name.contains(['"', '\\', '\'']) { "NAME" } else { name };
                Err(self.error(&format!(
                    "{c:?} cannot be in a metric name: use _, or quote the name as \
                     '{{\"{}\"{labels}}}'",
                    printable(name)
                )))
            }
            Some(_) => Err(self.error("nothing can follow the labels: leave it out")),
        }
    }

    /// Parses the labels after the opening brace.
    fn labels(&mut self, series: &mut SeriesName) -> Result<(), String> {
        loop {
            self.skip_spaces();
            if self.take('}') {
                return Ok(());
            }
            let start = self.at;
            let is_quoted = self.peek() == Some('"');
            let name = if is_quoted { self.quoted()? } else { self.word("") };
            if name.is_empty() {
                return Err(self.error("expected the name of a label, or }"));
            }
            if let Some(message) = fault(&name) {
                self.at = start;
                return Err(
                    self.error(&format!("{} cannot name a label: {message}", printable(&name)))
                );
            }
            self.skip_spaces();
            if self.take('=') {
                self.skip_spaces();
                if self.peek() != Some('"') {
                    return Err(self.error(
                        "the value of a label is in double quotes: put the whole series in single \
                         quotes, such as 'NAME{LABEL=\"VALUE\"}'",
                    ));
                }
                let value = self.quoted()?;
                if series.labels.iter().any(|(other, _)| *other == name) {
                    self.at = start;
                    return Err(self.error("the label is there twice: leave one out"));
                }
                series.labels.push((name, value));
            } else if is_quoted && series.name.is_empty() && series.labels.is_empty() {
                series.name = name;
            } else {
                return Err(self.error("expected = after the name of a label"));
            }
            self.skip_spaces();
            if !self.take(',') && self.peek() != Some('}') {
                return Err(self.error("expected , or }"));
            }
        }
    }

    /// Parses letters, digits, underscores, and the characters in `more`. The first character
    /// cannot be a digit.
    fn word(&mut self, more: &str) -> String {
        let rest = &self.text[self.at..];
        let is_first = |c: char| c.is_ascii_alphabetic() || c == '_' || more.contains(c);
        let end = match rest.chars().next().is_some_and(is_first) {
            true => rest.find(|c| !is_first(c) && !c.is_ascii_digit()).unwrap_or(rest.len()),
            false => 0,
        };
        self.at += end;
        rest[..end].to_owned()
    }

    /// Parses a string in double quotes, with the escapes `\\`, `\"` and `\n`.
    fn quoted(&mut self) -> Result<String, String> {
        let start = self.at;
        self.at += 1;
        let mut out = String::new();
        loop {
            let at = self.at;
            match self.next() {
                Some('"') => return Ok(out),
                Some('\\') => match self.next() {
                    Some('n') => out.push('\n'),
                    Some(c @ ('\\' | '"')) => out.push(c),
                    _ => {
                        self.at = at;
                        return Err(self.error("expected \\\\, \\\" or \\n after a backslash"));
                    }
                },
                Some(c) => out.push(c),
                None => {
                    self.at = start;
                    return Err(self.error("the text that begins here has no closing quote"));
                }
            }
        }
    }

    fn skip_spaces(&mut self) {
        while self.take(' ') {}
    }

    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let next = self.peek()?;
        self.at += next.len_utf8();
        Some(next)
    }

    fn take(&mut self, wanted: char) -> bool {
        let is_there = self.peek() == Some(wanted);
        if is_there {
            self.at += wanted.len_utf8();
        }
        is_there
    }

    fn error(&self, message: &str) -> String {
        let column = self.text[..self.at].chars().count() + 1;
        let text = printable(self.text);
        format!("cannot read the series {text}, column {column}: {message}")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn series(name: &str, labels: &[(&str, &str)]) -> SeriesName {
        let labels = labels.iter().map(|&(name, value)| (name.into(), value.into())).collect();
        SeriesName { name: name.into(), labels }
    }

    #[test]
    fn names_in_the_text_format_are_parsed() {
        for (text, name, labels) in [
            ("jobs_total", "jobs_total", &[][..]),
            (" a:b {} ", "a:b", &[]),
            ("jobs{queue=\"mail\"}", "jobs", &[("queue", "mail")]),
            ("jobs{ b = \"2\" , a=\"\", }", "jobs", &[("b", "2"), ("a", "")]),
            (r#"x{a="\"\\\n",b="é,}"}"#, "x", &[("a", "\"\\\n"), ("b", "é,}")]),
            ("{\"http.hits\"}", "http.hits", &[]),
            ("{\"http.hits\",\"my label\"=\"1\"}", "http.hits", &[("my label", "1")]),
        ] {
            assert_eq!(text.parse::<SeriesName>().unwrap(), series(name, labels), "{text}");
        }
    }

    #[test]
    fn errors_name_the_column_and_the_expected_text() {
        for (text, column, message) in [
            ("", 1, "a name is missing"),
            ("{a=\"b\"}", 1, "a name is missing"),
            ("jobs{queue=mail}", 12, "in single quotes"),
            ("jobs{queue=\"mail\"", 18, "expected , or }"),
            ("jobs{queue=\"mail}", 12, "no closing quote"),
            ("jobs{queue}", 11, "expected ="),
            ("jobs{\"x\"}", 9, "expected ="),
            ("jobs{1=\"x\"}", 6, "the name of a label"),
            ("jobs{,}", 6, "the name of a label"),
            ("jobs{a=\"1\", __b=\"2\"}", 13, "__b cannot name a label: Prometheus reserves"),
            ("jobs{\"quipu_overflow\"=\"2\"}", 6, "the overflow series"),
            ("jobs{a=\"1\",a=\"2\"}", 12, "twice"),
            ("jobs{a=\"\\x\"}", 9, "after a backslash"),
            ("jobs{a=\"1\"} 3", 13, "nothing can follow"),
            ("é.jobs", 1, "a name is missing"),
            (
                "http.jobs",
                5,
                "'.' cannot be in a metric name: use _, or quote the name as '{\"http.jobs\"}'",
            ),
            ("a.b{a=\"1\"}", 2, "'{\"a.b\",LABEL=\"VALUE\"}'"),
            ("jobs total", 6, "' ' cannot be"),
            (
                "jobs\"total",
                5,
                "'\"' cannot be in a metric name: use _, or quote the name as '{\"NAME\"}'",
            ),
            ("jobs{a=\"é\"x}", 11, "expected ,"),
        ] {
            let error = text.parse::<SeriesName>().unwrap_err();
            let is_there =
                error.contains(&format!(", column {column}: ")) && error.contains(message);
            assert!(is_there, "{text}: {error}");
        }
    }

    #[test]
    fn no_text_panics() {
        let whole = "jobs{ \"é\\\"\" = \"a\\n\", b=\"\"} x";
        for (end, _) in whole.char_indices() {
            let _ = whole[..end].parse::<SeriesName>();
            for c in ['{', '}', '"', '\\', ',', '=', 'é', '0'] {
                let _ = format!("{}{c}{}", &whole[..end], &whole[end..]).parse::<SeriesName>();
            }
        }
    }
}
