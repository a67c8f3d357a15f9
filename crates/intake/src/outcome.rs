//! Counts the accepted and refused samples of one request, and creates its response.
//!
//! If a rate limit is set, it is checked twice. The first check is at the arrival of a request,
//! because a refusal is cheap at this time. A large request may then wait for memory while other
//! requests of its source are handled. It is therefore checked again before its first sample, or
//! its samples are charged as soon as their number is known.

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

/// The counts of one request. Dropping this value reports them.
pub struct RequestOutcome {
    input: Input,
    is_repeatable: bool,
    refusals: &'static Refusals,
    source: String,
    /// The rate limits that apply to the source, if any.
    allowance: Option<Allowance<'static>>,
    /// The number of parsed samples that will be accepted or refused together.
    held: u64,
    /// Whether [`RequestOutcome::begin`] was called.
    has_begun: bool,
    taken: u64,
    /// The number of accepted samples since the last report.
    unreported: u64,
    refused: u64,
    /// The number of refused or omitted samples since the last report.
    unreported_refused: u64,
    /// Whether a sample was refused because the state is full. The client can retry later.
    is_full: bool,
    /// The first refusals, a line each, for the response.
    lines: String,
    listed: u64,
}

/// The maximum number of refusals in a response.
const LISTED: u64 = 8;
/// The maximum length of one of these refusals in bytes.
const LISTED_BYTES: usize = 400;

impl RequestOutcome {
    /// Creates an outcome without samples, for a source that is the client's address.
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

    /// Returns the source of the request, for example the client's address.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Checks the rate limit again, after the request got its memory permit. Later calls have no
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

    /// Sets the number of parsed samples that will be accepted or refused together.
    pub fn hold(&mut self, samples: u64) {
        self.held = samples;
    }

    /// Charges all of these samples to the rate limit of the source.
    ///
    /// # Errors
    /// Returns 429 if the source exceeds its rate. In this case, none is charged.
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

    /// Counts a refused sample, line or message. `detail` contains its position and the reason.
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

    /// Counts a sample that is omitted, for example a NaN in a counter. The response does not
    /// mention it, because the sender need not change anything.
    pub fn omit(&mut self, reason: &'static str, detail: fmt::Arguments<'_>) {
        self.unreported_refused += 1;
        self.refusals.refuse(self.input, &self.source, reason, &detail);
    }

    /// Counts an omitted sample of another source, which the request names.
    pub fn omit_from(&mut self, source: &str, reason: &'static str, detail: fmt::Arguments<'_>) {
        self.unreported_refused += 1;
        self.refusals.refuse(self.input, source, reason, &detail);
    }

    /// Adds the counts since the last report to the daemon's metrics and to the rate limit.
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

    /// Returns 204 if all samples were accepted. If the body failed in the middle (`failed`), the
    /// response contains this error, the number of samples, and the first refusals.
    ///
    /// # Errors
    /// Returns 400 with the first refusals, or 503 if the state is full, because the client should
    /// then retry.
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

    /// Returns whether a retry of the request would not count accepted samples twice.
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

/// Formats a series in the text format, and truncates long names and values.
pub struct SeriesDisplay<'a> {
    /// The name.
    pub name: &'a str,
    /// The labels.
    pub labels: &'a [(&'a str, &'a str)],
}

/// The maximum length of a name or a value in the display, in bytes.
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
    /// Reports the samples, even if the client disconnected.
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
