//! The accepted and refused samples of one request, for its response and for the daemon's own
//! metrics.
//!
//! If the rate of samples is limited, we check a request when it arrives, because a refusal is
//! cheap at this time. The request may then wait for memory while other requests of its source are
//! handled. It is therefore checked again before its first sample, or its samples are taken from
//! the budget as soon as their number is known.

use std::fmt::{self, Write};

use hyper::StatusCode;
use quipu::intake::Rejection;

use super::Inputs;
use super::list::Input;
use super::rate_limits::{Allowance, Excess};
use super::refusal::{Refusal, Result};
use super::refusals::Refusals;
use super::requests::BodyInput;
use super::truncate::push_truncated;
use quipu_http::{Request, Response};
use quipu_process::text::cut;

/// Counts the samples of one request, and creates the response.
pub struct RequestOutcome {
    input: Input,
    is_repeatable: bool,
    refusals: &'static Refusals,
    source: String,
    /// The limits on the samples of the source; `None` without limits.
    allowance: Option<Allowance<'static>>,
    /// The number of samples read so far that are accepted or refused as a whole.
    held: u64,
    /// Whether samples can be accepted: see [`RequestOutcome::begin`].
    has_begun: bool,
    taken: u64,
    /// The number of accepted samples that are not reported yet.
    unreported: u64,
    refused: u64,
    /// The number of refused or omitted samples that are not reported yet.
    unreported_refused: u64,
    /// Whether a sample was refused because the state is full, which can change.
    is_full: bool,
    /// The lines of the response about the first refusals, and their number.
    lines: String,
    listed: u64,
}

/// The maximum number of refusals that a response lists.
const LISTED: u64 = 8;
/// The maximum length of a refusal in the list, in bytes.
const LISTED_BYTES: usize = 400;

impl RequestOutcome {
    /// Creates an outcome without samples. The source is the client's address.
    ///
    /// # Errors
    /// Returns 429 if the source exceeds its rate.
    pub fn new<I: BodyInput>(inputs: &Inputs, request: &Request) -> Result<Self> {
        let source = request.client().map_or_else(String::new, |address| address.to_string());
        let outcome = Self {
            input: I::INPUT,
            is_repeatable: I::IS_REPEATABLE,
            refusals: inputs.refusals(),
            allowance: inputs.shared().rate_limits.allowance(&source),
            held: 0,
            has_begun: false,
            source,
            taken: 0,
            unreported: 0,
            refused: 0,
            unreported_refused: 0,
            is_full: false,
            lines: String::new(),
            listed: 0,
        };
        outcome.check_allowance(Allowance::check)?;
        Ok(outcome)
    }

    /// Returns the source of the request.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Begins to accept samples, after the request got its memory permit. Later calls have no
    /// effect.
    ///
    /// # Errors
    /// Returns 429 if other requests made the source exceed its rate in the meantime.
    pub fn begin(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.has_begun, true) {
            return Ok(());
        }
        self.check_allowance(Allowance::check)
    }

    /// Sets the number of samples read so far that are accepted or refused as a whole.
    pub fn hold(&mut self, samples: u64) {
        self.held = samples;
    }

    /// Takes all of these samples from the budget of the source.
    ///
    /// # Errors
    /// Returns 429 if the source exceeds its rate. In this case, no sample is taken.
    pub fn take(&self, samples: u64) -> Result<()> {
        self.check_allowance(|allowance| allowance.take(samples))
    }

    fn check_allowance(
        &self,
        ask: impl FnOnce(&Allowance<'static>) -> Result<(), Excess>,
    ) -> Result<()> {
        self.allowance.as_ref().map_or(Ok(()), ask).map_err(|excess| {
            self.refusals.refuse(self.input, &self.source, excess.reason, &excess);
            excess.refusal()
        })
    }

    /// Returns the number of accepted samples.
    pub fn taken(&self) -> u64 {
        self.taken + self.unreported
    }

    /// Counts accepted samples.
    pub fn count_taken(&mut self, samples: u64) {
        self.unreported += samples;
    }

    /// Counts a refused sample, line or message. `detail` names its position and the reason.
    pub fn refuse(&mut self, reason: &'static str, detail: fmt::Arguments<'_>) {
        self.omit(reason, detail);
        self.refused += 1;
        self.is_full |= reason == Rejection::Full.reason();
        if self.listed < LISTED {
            self.listed += 1;
            let is_all = push_truncated(&mut self.lines, &detail, LISTED_BYTES);
            self.lines.push_str(if is_all { "\n" } else { "...\n" });
        }
    }

    /// Counts a sample that cannot be a value of a metric. The response does not list it, because
    /// the sender need not change anything.
    pub fn omit(&mut self, reason: &'static str, detail: fmt::Arguments<'_>) {
        self.unreported_refused += 1;
        self.refusals.refuse(self.input, &self.source, reason, &detail);
    }

    /// Works like [`RequestOutcome::omit`], for a source that the request names.
    pub fn omit_from(&mut self, source: &str, reason: &'static str, detail: fmt::Arguments<'_>) {
        self.unreported_refused += 1;
        self.refusals.refuse(self.input, source, reason, &detail);
    }

    /// Reports the samples since the last report.
    pub fn report(&mut self) {
        self.charge(self.unreported + self.unreported_refused);
        self.unreported_refused = 0;
        if self.unreported > 0 {
            self.refusals.count_taken(self.input, self.unreported);
            self.taken += self.unreported;
            self.unreported = 0;
        }
    }

    fn charge(&self, samples: u64) {
        if let Some(allowance) = &self.allowance {
            allowance.charge(samples);
        }
    }

    /// Returns 204 if all samples were accepted. If the body failed in the middle, the response
    /// also contains the number of samples and the first refusals.
    ///
    /// # Errors
    /// Returns 400 with the first refusals if a sample was refused, or 503 if the state is full,
    /// because the client should then repeat the request.
    pub fn end(&self, failed: Option<Box<Refusal>>) -> Result<Response> {
        Err(match failed {
            Some(mut failed) => {
                failed.text = format!("{}\n{}", failed.text, self.text());
                failed
            }
            None if self.is_full && self.may_be_repeated() => {
                Refusal::unavailable(self.text(), "1")
            }
            None if self.refused > 0 => Refusal::bad(self.text()),
            None => {
                let mut response = Response::default();
                *response.status_mut() = StatusCode::NO_CONTENT;
                return Ok(response);
            }
        })
    }

    /// Returns whether the client can repeat the accepted part of the request without an effect.
    fn may_be_repeated(&self) -> bool {
        self.is_repeatable || self.taken() == 0
    }

    fn text(&self) -> String {
        let Self { taken, refused, lines, listed, .. } = self;
        let mut text = format!("{taken} taken, {refused} refused:\n{lines}");
        if refused > listed {
            let _ = writeln!(text, "and {} more", refused - listed);
        }
        // The response adds the last line feed itself.
        text.pop();
        text
    }
}

/// Displays a series in the text format, with long names and values truncated.
pub struct SeriesDisplay<'a> {
    /// The name.
    pub name: &'a str,
    /// The labels.
    pub labels: &'a [(&'a str, &'a str)],
}

/// The maximum length of a name or a value in bytes.
const DISPLAY_BYTES: usize = 100;

impl fmt::Display for SeriesDisplay<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rest = |text: &str| if text.len() > DISPLAY_BYTES { "..." } else { "" };
        let Self { name, labels } = *self;
        write!(f, "{}{}", cut(name, DISPLAY_BYTES).escape_debug(), rest(name))?;
        for (index, (name, value)) in labels.iter().enumerate() {
            f.write_char(if index == 0 { '{' } else { ',' })?;
            write!(f, "{}{}=", cut(name, DISPLAY_BYTES).escape_debug(), rest(name))?;
            write!(f, "{:?}{}", cut(value, DISPLAY_BYTES), rest(value))?;
        }
        if labels.is_empty() { Ok(()) } else { f.write_str("}") }
    }
}

impl Drop for RequestOutcome {
    /// Counts the samples of a request even if its client leaves.
    fn drop(&mut self) {
        self.report();
        self.charge(self.held);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_and_values_are_truncated() {
        let long = "\u{e9}".repeat(1 << 20);
        let labels = [("a", "\"x\n"), (long.as_str(), long.as_str())];
        let display = SeriesDisplay { name: &long, labels: &labels }.to_string();
        let short = "\u{e9}".repeat(50);
        let expected = format!("{short}...{{a=\"\\\"x\\n\",{short}...=\"{short}\"...}}");
        assert_eq!(display, expected);
        assert_eq!(SeriesDisplay { name: "m", labels: &[] }.to_string(), "m");
    }
}
