//! Parses the requests that a test's receiver gets from a daemon.

use std::collections::HashMap;
use std::io::BufRead;

/// A request with a body.
pub(crate) struct Received {
    /// The first line.
    pub(crate) line: String,
    /// The header fields, with their names in lower case.
    pub(crate) fields: HashMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl Received {
    /// Reads the next request; `None` after the last one.
    pub(crate) fn read(input: &mut impl BufRead) -> Option<Received> {
        let next = |input: &mut dyn BufRead| {
            let mut line = String::new();
            (input.read_line(&mut line).ok()? > 0).then(|| line.trim_end().to_owned())
        };
        let line = next(input)?;
        let mut fields = HashMap::new();
        loop {
            let line = next(input)?;
            let Some((name, value)) = line.split_once(": ") else { break };
            let before = fields.insert(name.to_lowercase(), value.to_owned());
            assert_eq!(before, None, "{name} twice");
        }
        let mut body = vec![0; fields["content-length"].parse().unwrap()];
        input.read_exact(&mut body).ok()?;
        Some(Received { line, fields, body })
    }
}
