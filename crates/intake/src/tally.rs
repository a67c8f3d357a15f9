//! What was taken and refused of one request, for its response and for the daemon's own metrics.

use std::fmt::{self, Write};

use hyper::StatusCode;
use quipu::intake::Refused;

use super::admission::Admission;
use super::brief::push_brief;
use super::refusals::{Input, Refusals};
use super::{Inputs, source};
use quipu_http::{Request, Response, text, unavailable};
use quipu_process::text::cut;

/// Counts one request.
pub struct Tally {
    input: Input,
    refusals: &'static Refusals,
    source: String,
    /// What the source may bring.
    admission: Admission,
    /// Whether the turn of the request has come.
    has_begun: bool,
    taken: u64,
    /// What was taken and not reported yet.
    fresh: u64,
    refused: u64,
    /// What was refused and not reported yet.
    fresh_refused: u64,
    /// What was left out and not reported yet.
    fresh_left_out: u64,
    /// Whether something was refused because the state has no room, which may change.
    is_full: bool,
    /// What the response says of what was refused.
    first: String,
    told: u64,
}

/// The most refusals that a response names.
const TOLD: u64 = 8;
/// The most bytes of one of them.
const TOLD_BYTES: usize = 400;

impl Tally {
    /// Nothing yet. The source is the client's address.
    ///
    /// # Errors
    ///
    /// The response that refuses the request: 429 if the source has brought too much.
    #[expect(clippy::result_large_err, reason = "the response to send, once for each request")]
    pub fn new(input: Input, inputs: &Inputs, request: &Request) -> Result<Self, Response> {
        let source = source(request);
        Ok(Self {
            input,
            refusals: inputs.refusals(),
            admission: Admission::new(inputs, input, &source)?,
            has_begun: false,
            source,
            taken: 0,
            fresh: 0,
            refused: 0,
            fresh_refused: 0,
            fresh_left_out: 0,
            is_full: false,
            first: String::new(),
            told: 0,
        })
    }

    /// Where the request comes from.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Begins to take samples: the request has its place by now. Later calls do nothing.
    ///
    /// # Errors
    ///
    /// As for [`Tally::new`], if others of the source were taken meanwhile.
    #[expect(clippy::result_large_err, reason = "the response to send, once for each request")]
    pub fn begin(&mut self) -> Result<(), Response> {
        match std::mem::replace(&mut self.has_begun, true) {
            true => Ok(()),
            false => self.admission.check(),
        }
    }

    /// Whether any sample was taken.
    pub fn has_taken(&self) -> bool {
        self.taken + self.fresh > 0
    }

    /// Counts samples that were taken.
    pub fn took(&mut self, samples: u64) {
        self.fresh += samples;
    }

    /// Counts a sample, a line or a message that was refused. `what` says where it is, and why it
    /// is refused.
    pub fn refused(&mut self, reason: &'static str, what: fmt::Arguments<'_>) {
        self.refused += 1;
        self.fresh_refused += 1;
        self.is_full |= reason == Refused::Full.reason();
        self.refusals.refused(self.input, &self.source, reason, &what);
        if self.told < TOLD {
            self.told += 1;
            let is_all = push_brief(&mut self.first, &what, TOLD_BYTES);
            self.first.push_str(if is_all { "\n" } else { "...\n" });
        }
    }

    /// Counts what has no place in a metric, as a sample that was brought. The response does not
    /// tell it: the sender need not change anything.
    pub fn left_out(&mut self, reason: &'static str, what: fmt::Arguments<'_>) {
        self.fresh_left_out += 1;
        self.refusals.refused(self.input, &self.source, reason, &what);
    }

    /// Reports what was brought since the last report.
    pub fn report(&mut self) {
        self.admission.brought(self.fresh + self.fresh_refused + self.fresh_left_out);
        (self.fresh_refused, self.fresh_left_out) = (0, 0);
        if self.fresh > 0 {
            self.refusals.took(self.input, self.fresh);
            self.taken += self.fresh;
            self.fresh = 0;
        }
    }

    /// 204, or 400 if something was refused, with how much was taken and refused, and the first few
    /// refusals; or 503 if the state had no room, so that the client sends the request again. A
    /// body that failed in its middle has a response, to which the same is added.
    pub fn response(&self, failed: Option<Response>) -> Response {
        match failed {
            Some(failed) => {
                let fault = String::from_utf8_lossy(failed.body());
                text(failed.status(), format!("{fault}{}", self.text()))
            }
            None if self.is_full && self.may_come_again() => unavailable(self.text(), "1"),
            None if self.refused > 0 => text(StatusCode::BAD_REQUEST, self.text()),
            None => {
                let mut response = Response::default();
                *response.status_mut() = StatusCode::NO_CONTENT;
                response
            }
        }
    }

    /// Whether the part of the request that was taken has no effect if it comes again. Messages at
    /// `/ingest` are added.
    fn may_come_again(&self) -> bool {
        self.input != Input::Ingest || !self.has_taken()
    }

    fn text(&self) -> String {
        let mut text = format!("{} taken, {} refused:\n{}", self.taken, self.refused, self.first);
        if self.refused > self.told {
            let _ = writeln!(text, "and {} more", self.refused - self.told);
        }
        text
    }
}

/// A series as the text format shows it. Of long names and values, it shows the beginning.
pub struct Shown<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its labels.
    pub labels: &'a [(&'a str, &'a str)],
}

/// The most bytes that are shown of a name or a value.
const SHOWN_BYTES: usize = 100;

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rest = |text: &str| if text.len() > SHOWN_BYTES { "..." } else { "" };
        let Self { name, labels } = *self;
        write!(f, "{}{}", cut(name, SHOWN_BYTES).escape_debug(), rest(name))?;
        for (index, (name, value)) in labels.iter().enumerate() {
            f.write_char(if index == 0 { '{' } else { ',' })?;
            write!(f, "{}{}=", cut(name, SHOWN_BYTES).escape_debug(), rest(name))?;
            write!(f, "{:?}{}", cut(value, SHOWN_BYTES), rest(value))?;
        }
        if labels.is_empty() { Ok(()) } else { f.write_str("}") }
    }
}

impl Drop for Tally {
    /// What a request took counts even if its client leaves.
    fn drop(&mut self) {
        self.report();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_with_long_texts_is_shown_in_short() {
        let long = "\u{e9}".repeat(1 << 20);
        let labels = [("a", "\"x\n"), (long.as_str(), long.as_str())];
        let shown = Shown { name: &long, labels: &labels }.to_string();
        let short = "\u{e9}".repeat(50);
        let expected = format!("{short}...{{a=\"\\\"x\\n\",{short}...=\"{short}\"...}}");
        assert_eq!(shown, expected);
        assert_eq!(Shown { name: "m", labels: &[] }.to_string(), "m");
    }
}
