//! Parses the labels of a series from the string that a [`Look`](super::Look) stores.

use std::borrow::Cow;

/// Returns the names and values in `name="value",name="value"`. Quotes around names are removed.
/// Parsing stops at the first syntax error.
pub(crate) fn labels(text: &str) -> impl Iterator<Item = (Cow<'_, str>, Cow<'_, str>)> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let name = match rest.strip_prefix('"') {
            Some(_) => quoted(&mut rest)?,
            None => {
                let end = rest.find('=')?;
                let (name, after) = rest.split_at(end);
                rest = after;
                name.into()
            }
        };
        rest = rest.strip_prefix('=')?;
        let value = quoted(&mut rest)?;
        rest = rest.strip_prefix(',').unwrap_or(rest);
        Some((name, value))
    })
}

/// Parses a quoted string, and removes its escapes.
fn quoted<'t>(rest: &mut &'t str) -> Option<Cow<'t, str>> {
    let text = rest.strip_prefix('"')?;
    let mut is_escaped = false;
    let end = text.find(|c| match (is_escaped, c) {
        (true, _) => {
            is_escaped = false;
            false
        }
        (false, '\\') => {
            is_escaped = true;
            false
        }
        (false, c) => c == '"',
    })?;
    let (inside, after) = text.split_at(end);
    *rest = after.strip_prefix('"')?;
    if !inside.contains('\\') {
        return Some(inside.into());
    }
    let mut plain = String::with_capacity(inside.len());
    let mut chars = inside.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match chars.next()? {
                'n' => plain.push('\n'),
                other => plain.push(other),
            },
            other => plain.push(other),
        }
    }
    Some(plain.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::names::append_label;

    #[test]
    fn labels_are_read_as_they_are_written() {
        let all = [("a", "1"), ("my \"label\"", "x\\n\n\"=,"), ("b", "")];
        let mut text = String::new();
        for (i, (name, value)) in all.into_iter().enumerate() {
            text.push_str(if i > 0 { "," } else { "" });
            append_label(&mut text, name, value);
        }
        assert!(labels(&text).eq(all.map(|(name, value)| (name.into(), value.into()))), "{text}");
        for end in 0..text.len() {
            let _ = labels(&text[..end]).count();
        }
        assert_eq!(labels("").count(), 0);
    }
}
