//! The samples of one request that were taken and refused, for its response and for the
//! daemon's own metrics.
//!
//! If the samples of a source are limited in their rate, a request is checked when it comes, so
//! that one that is refused costs little. It may then wait for its place while others of its source
//! are taken. So it is checked again when its turn comes, or its samples are taken from the budget
//! as soon as their number is known.

use std::fmt::{self, Write};

use hyper::StatusCode;
use quipu::intake::Refused;

use super::Inputs;
use super::list::Input;
use super::rate_limits::{Allowance, Excess};
use super::refusal::{Refusal, Result};
use super::refusals::Refusals;
use super::requests::BodyInput;
use super::truncate::push_brief;
use quipu_http::{Request, Response};
use quipu_process::text::cut;

/// Counts one request.
pub struct Tally {
    input: Input,
    is_repeatable: bool,
    refusals: &'static Refusals,
    source: String,
    /// The limit on what the source brings; `None` if nothing is limited.
    allowance: Option<Allowance<'static>>,
    /// Samples that were read, and are taken or refused whole.
    held: u64,
    /// Whether the turn of the request has come.
    has_begun: bool,
    taken: u64,
    /// Samples that were taken and not reported yet.
    fresh: u64,
    refused: u64,
    /// Samples that were refused or left out and not reported yet.
    fresh_refused: u64,
    /// Whether something was refused because the state has no room, which may change.
    is_full: bool,
    /// The text of the response about the first refusals.
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
    /// 429 if the source has brought too much.
    pub fn new<I: BodyInput>(inputs: &Inputs, request: &Request) -> Result<Self> {
        let source = request.client().map_or_else(String::new, |address| address.to_string());
        let tally = Self {
            input: I::INPUT,
            is_repeatable: I::IS_REPEATABLE,
            refusals: inputs.refusals(),
            allowance: inputs.shared().rates.of(&source),
            held: 0,
            has_begun: false,
            source,
            taken: 0,
            fresh: 0,
            refused: 0,
            fresh_refused: 0,
            is_full: false,
            first: String::new(),
            told: 0,
        };
        tally.ask(Allowance::check)?;
        Ok(tally)
    }

    /// Where the request comes from.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Begins to take samples: the request has its place by now. Later calls do nothing.
    ///
    /// # Errors
    /// As for [`Tally::new`], if others of the source were taken meanwhile.
    pub fn begin(&mut self) -> Result<()> {
        match std::mem::replace(&mut self.has_begun, true) {
            true => Ok(()),
            false => self.ask(Allowance::check),
        }
    }

    /// Notes the number of samples that were read so far, and that are taken whole or not at all.
    pub fn hold(&mut self, samples: u64) {
        self.held = samples;
    }

    /// Takes samples whole from what the source may bring.
    ///
    /// # Errors
    /// As for [`Tally::new`]; then none are taken.
    pub fn take(&self, samples: u64) -> Result<()> {
        self.ask(|allowance| allowance.take(samples))
    }

    fn ask(&self, ask: impl FnOnce(&Allowance<'static>) -> Result<(), Excess>) -> Result<()> {
        self.allowance.as_ref().map_or(Ok(()), ask).map_err(|excess| {
            self.refusals.refused(self.input, &self.source, excess.reason, &excess);
            excess.refusal()
        })
    }

    /// The number of samples that were taken.
    pub fn taken(&self) -> u64 {
        self.taken + self.fresh
    }

    /// Counts samples that were taken.
    pub fn took(&mut self, samples: u64) {
        self.fresh += samples;
    }

    /// Counts a sample, a line or a message that was refused. `what` says where it is, and why it
    /// is refused.
    pub fn refused(&mut self, reason: &'static str, what: fmt::Arguments<'_>) {
        self.left_out(reason, what);
        self.refused += 1;
        self.is_full |= reason == Refused::Full.reason();
        if self.told < TOLD {
            self.told += 1;
            let is_all = push_brief(&mut self.first, &what, TOLD_BYTES);
            self.first.push_str(if is_all { "\n" } else { "...\n" });
        }
    }

    /// Counts what has no place in a metric, as a sample that was brought. The response does not
    /// tell it: the sender need not change anything.
    pub fn left_out(&mut self, reason: &'static str, what: fmt::Arguments<'_>) {
        self.fresh_refused += 1;
        self.refusals.refused(self.input, &self.source, reason, &what);
    }

    /// Counts like [`Tally::left_out`], for a source that the request names.
    pub fn left_out_of(&mut self, source: &str, reason: &'static str, what: fmt::Arguments<'_>) {
        self.fresh_refused += 1;
        self.refusals.refused(self.input, source, reason, &what);
    }

    /// Reports what was brought since the last report.
    pub fn report(&mut self) {
        self.brought(self.fresh + self.fresh_refused);
        self.fresh_refused = 0;
        if self.fresh > 0 {
            self.refusals.took(self.input, self.fresh);
            self.taken += self.fresh;
            self.fresh = 0;
        }
    }

    fn brought(&self, samples: u64) {
        if let Some(allowance) = &self.allowance {
            allowance.brought(samples);
        }
    }

    /// 204 if all was taken. A body that failed in its middle has a refusal, to which the number of
    /// samples and the first few refusals are added.
    ///
    /// # Errors
    /// 400 if something was refused, with the same; or 503 if the state had no room, so that the
    /// client sends the request again.
    pub fn end(&self, failed: Option<Box<Refusal>>) -> Result<Response> {
        Err(match failed {
            Some(mut failed) => {
                failed.text = format!("{}\n{}", failed.text, self.text());
                failed
            }
            None if self.is_full && self.may_come_again() => Refusal::unavailable(self.text(), "1"),
            None if self.refused > 0 => Refusal::bad(self.text()),
            None => {
                let mut response = Response::default();
                *response.status_mut() = StatusCode::NO_CONTENT;
                return Ok(response);
            }
        })
    }

    /// Whether the part of the request that was taken has no effect if it comes again.
    fn may_come_again(&self) -> bool {
        self.is_repeatable || self.taken() == 0
    }

    fn text(&self) -> String {
        let Self { taken, refused, first, told, .. } = self;
        let mut text = format!("{taken} taken, {refused} refused:\n{first}");
        if refused > told {
            let _ = writeln!(text, "and {} more", refused - told);
        }
        // The last line ends in the response.
        text.pop();
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
    /// Counts the samples of a request even if its client leaves.
    fn drop(&mut self) {
        self.report();
        self.brought(self.held);
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
