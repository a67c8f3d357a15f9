//! The names of the keys on the server, and of the fields in these keys.
//!
//! ```text
//! {ns}:metrics                 set      the names of all metrics
//! {ns}:instances               zset     instances, scored by the time of their last heartbeat
//! {ns}:heartbeats              hash     instance -> the ID of its last heartbeat
//! {ns}:claims                  hash     dead instance -> the time at which its folding began
//! {ns:metric}:meta             hash     kind, how, aggregation, help, unit, labels
//! {ns:metric}:instances        set      the instances that have this metric
//! {ns:metric}:<instance>       hash     series -> value; `#`: the number of the last write;
//!                                       `!`: the lists of resets that were applied
//! {ns:metric}:folded:<instance>  hash   the same, for a folded instance; it expires
//! {ns:metric}:archive          hash     what all folded instances have left
//! ```

use std::fmt::Write as _;

/// The keys that do not belong to a metric.
#[derive(Debug, Clone)]
pub(super) struct NamespaceKeys {
    pub(super) metrics: String,
    pub(super) instances: String,
    pub(super) claims: String,
    pub(super) heartbeats: String,
}

/// The keys of a metric.
#[derive(Debug, Clone)]
pub(super) struct MetricKeys {
    /// The prefix of all keys of the metric.
    pub(super) prefix: String,
    pub(super) meta: String,
    pub(super) instances: String,
    pub(super) archive: String,
}

impl NamespaceKeys {
    pub(super) fn new(namespace: &str) -> Self {
        let tag = format!("{{{}}}", escaped(namespace));
        Self {
            metrics: format!("{tag}:metrics"),
            instances: format!("{tag}:instances"),
            claims: format!("{tag}:claims"),
            heartbeats: format!("{tag}:heartbeats"),
        }
    }

    /// Returns the keys for scripts on the list of instances.
    pub(super) fn of_instances(&self) -> [&str; 3] {
        [&self.instances, &self.claims, &self.heartbeats]
    }
}

impl MetricKeys {
    pub(super) fn new(namespace: &str, metric: &str) -> Self {
        let prefix = format!("{{{}:{}}}:", escaped(namespace), escaped(metric));
        Self {
            meta: format!("{prefix}meta"),
            instances: format!("{prefix}instances"),
            archive: format!("{prefix}archive"),
            prefix,
        }
    }

    pub(super) fn instance_key(&self, instance: &str) -> String {
        format!("{}{instance}", self.prefix)
    }

    pub(super) fn folded(&self, instance: &str) -> String {
        format!("{}folded:{instance}", self.prefix)
    }

    /// Returns the keys for scripts on a metric of an instance.
    pub(super) fn of_scripts(&self, instance: &str) -> [String; 5] {
        let own = (self.instance_key(instance), self.instances.clone());
        [own.0, own.1, self.folded(instance), self.archive.clone(), self.meta.clone()]
    }
}

/// Returns whether a field holds a note about the instance rather than a series.
pub(super) fn is_note(field: &str) -> bool {
    matches!(field, "#" | "!")
}

/// Escapes braces, because they mark the part of a key that selects its cluster node (the hash
/// tag).
fn escaped(text: &str) -> String {
    text.replace('%', "%25").replace('{', "%7B").replace('}', "%7D")
}

/// Writes a field name: the part of the series, the labels in Prometheus' notation, and the start
/// time of the series, which distinguishes a removed series from a new one with the same labels.
pub(super) fn write_field<'a>(
    out: &mut String,
    part: &str,
    labels: impl Iterator<Item = (&'a str, &'a str)>,
    start: Option<u64>,
) {
    out.push_str(part);
    out.push('{');
    for (i, (name, value)) in labels.enumerate() {
        if i > 0 {
            out.push(',');
        }
        if is_plain(name) {
            out.push_str(name);
        } else {
            push_quoted(out, name);
        }
        out.push('=');
        push_quoted(out, value);
    }
    out.push('}');
    if let Some(start) = start {
        // In microseconds. If a series is replaced within one microsecond, both use the same field;
        // the flush then sends a reset.
        let _ = write!(out, "@{:x}", start / 1000);
    }
}

/// A parsed field name: its part, and its labels.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) part: String,
    pub(super) labels: Vec<(String, String)>,
}

/// Parses a field name. Returns `None` if it is malformed, because another program can write it.
pub(super) fn read_field(text: &str) -> Option<Field> {
    let (part, rest) = text.split_once('{')?;
    let mut rest = rest.trim_end_matches(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    rest = rest.strip_suffix('@').unwrap_or(rest);
    let mut labels = Vec::new();
    while rest != "}" {
        let (name, after) = match rest.strip_prefix('"') {
            Some(quoted) => unquote(quoted)?,
            None => {
                let (name, _) = rest.split_once('=')?;
                (name.to_owned(), &rest[name.len()..])
            }
        };
        let (value, after) = unquote(after.strip_prefix("=\"")?)?;
        labels.push((name, value));
        rest = after.strip_prefix(',').unwrap_or(after);
    }
    Some(Field { part: part.to_owned(), labels })
}

/// Reads up to the closing quote. Returns the unquoted string, and the rest after the quote.
fn unquote(text: &str) -> Option<(String, &str)> {
    let mut out = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((out, &text[at + 1..])),
            '\\' => out.push(match chars.next()?.1 {
                'n' => '\n',
                c => c,
            }),
            c => out.push(c),
        }
    }
    None
}

fn push_quoted(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            c => out.push(c),
        }
    }
    out.push('"');
}

fn is_plain(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn fields_are_read_back() {
        let odd = "a\"b\\c\nd}@e,f=\"";
        let all: [&[(&str, &str)]; 4] =
            [&[], &[("code", "200")], &[("a", odd), ("b.c", "")], &[("x", "}@12ab")]];
        for labels in all {
            for start in [None, Some(1_700_000_000_000_000_000)] {
                let mut text = String::new();
                write_field(&mut text, "sum", labels.iter().copied(), start);
                let owned = |&(a, b): &(&str, &str)| (a.to_owned(), b.to_owned());
                let labels = labels.iter().map(owned).collect();
                let field = Field { part: "sum".into(), labels };
                assert_eq!(read_field(&text), Some(field), "{text}");
                for end in 0..text.len() {
                    if text.is_char_boundary(end) {
                        let _ = read_field(&text[..end]);
                    }
                }
            }
        }
    }

    #[test]
    fn keys_of_a_metric_share_its_tag() {
        let keys = MetricKeys::new("app", "odd{name}%");
        assert_eq!(keys.archive, "{app:odd%7Bname%7D%25}:archive");
        assert_eq!(keys.folded("1f"), "{app:odd%7Bname%7D%25}:folded:1f");
    }
}
