//! What a request may bring, if the samples of its source are limited in their rate.
//!
//! A request is checked when it comes, so that one that is refused costs little. It may then wait
//! for its place while others of its source are taken. So it is checked again when its turn comes,
//! or its samples are taken from the budget as soon as their number is known.

use super::Inputs;
use super::rate::{Allowance, Excess};
use super::refusals::Input;
use quipu_http::Response;

/// What the source of a request may bring.
pub struct Admission {
    inputs: Inputs,
    input: Input,
    /// `None` if nothing is limited.
    limited: Option<(Allowance<'static>, String)>,
}

impl Admission {
    /// Admits a request of a source.
    ///
    /// # Errors
    ///
    /// The response that refuses it: 429 if the source has brought too much.
    #[expect(clippy::result_large_err, reason = "the response to send, once for each request")]
    pub fn new(inputs: &Inputs, input: Input, source: &str) -> Result<Self, Response> {
        let allowance = inputs.shared().rates.of(&source);
        let limited = allowance.map(|allowance| (allowance, source.to_owned()));
        let admission = Self { inputs: inputs.clone(), input, limited };
        admission.check().map(|()| admission)
    }

    /// Checks that samples may still be taken.
    ///
    /// # Errors
    ///
    /// As for [`Admission::new`].
    #[expect(clippy::result_large_err, reason = "the response to send, once for each request")]
    pub fn check(&self) -> Result<(), Response> {
        self.ask(Allowance::check)
    }

    /// Takes samples from what the source may bring.
    ///
    /// # Errors
    ///
    /// As for [`Admission::new`]; then none are taken.
    #[expect(clippy::result_large_err, reason = "the response to send, once for each request")]
    pub fn take(&self, samples: u64) -> Result<(), Response> {
        self.ask(|allowance| allowance.take(samples))
    }

    /// Notes that the source brought samples.
    pub fn brought(&self, samples: u64) {
        if let Some((allowance, _)) = &self.limited {
            allowance.brought(samples);
        }
    }

    #[expect(clippy::result_large_err, reason = "the response to send, once for each request")]
    fn ask(
        &self,
        ask: impl FnOnce(&Allowance<'static>) -> Result<(), Excess>,
    ) -> Result<(), Response> {
        let Some((allowance, source)) = &self.limited else { return Ok(()) };
        ask(allowance).map_err(|excess| {
            self.inputs.refusals().refused(self.input, source, excess.reason, &excess);
            excess.response()
        })
    }
}
