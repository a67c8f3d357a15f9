//! Negotiates the version of remote write with a receiver.
//!
//! The first request uses version 2.0. A receiver that only supports 1.0 refuses this request, or
//! accepts it without storing anything, for example Prometheus 2 and VictoriaMetrics. A receiver
//! that supports 2.0 reports the number of stored samples in the header fields
//! `X-Prometheus-Remote-Write-*-Written`. By the specification of 2.0, a response without these
//! fields means that the receiver does not support 2.0. The shards of a receiver share the result.

use quipu_wire::remote::write::WriteVersion::{self, One, Two};

use crate::protocol::Verdict;

/// The version to use for a receiver, and whether it is confirmed.
#[derive(Debug)]
pub(super) struct Negotiation {
    version: WriteVersion,
    is_known: bool,
}

const TAKEN: Verdict = Verdict::Taken(0, String::new());
const REFUSED: Verdict = Verdict::Refused { written: 0, is_of_sender: false };

impl Negotiation {
    /// Creates the state before the first response.
    pub(super) fn new() -> Self {
        Self { version: Two, is_known: false }
    }

    /// Returns the version to send.
    pub(super) fn version(&self) -> WriteVersion {
        self.version
    }

    /// Returns whether the receiver has accepted samples in this version.
    pub(super) fn is_known(&self) -> bool {
        self.is_known
    }

    /// Interprets the response to a request in version `sent`. `has_counts` is true if the response
    /// contains one of the header fields.
    pub(super) fn judge(&mut self, sent: WriteVersion, status: u16, has_counts: bool) -> Verdict {
        let is_open = !self.is_known || self.version != sent;
        match (sent, status) {
            // This request was sent when the receiver only supported 1.0, so its outcome does not
            // affect 2.0.
            (One, 200..=299) if self.version == Two => TAKEN,
            (One, 400..=428 | 430..=499) if self.version == Two => REFUSED,
            (_, 429 | 500..=599) => Verdict::Later,
            (Two, 200..=299) if has_counts => self.settle(Two, TAKEN),
            (Two, 200..=299 | 415) => self.change(One, Verdict::Other),
            (Two, 400) if is_open && !has_counts => self.change(One, Verdict::Other),
            (Two, _) if has_counts => self.settle(Two, REFUSED),
            (One, 200..=299) => self.settle(One, TAKEN),
            // The receiver may only support 2.0. The next snapshot will determine this.
            (One, 415) => self.change(Two, REFUSED),
            (One, 400) if is_open => self.change(Two, REFUSED),
            _ => REFUSED,
        }
    }

    fn settle(&mut self, version: WriteVersion, verdict: Verdict) -> Verdict {
        (self.version, self.is_known) = (version, true);
        verdict
    }

    fn change(&mut self, version: WriteVersion, verdict: Verdict) -> Verdict {
        // Another shard may have changed the version before, and its samples may already be
        // accepted.
        self.is_known &= self.version == version;
        self.version = version;
        verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Verdict::{Later, Other};

    #[test]
    fn responses_tell_the_version() {
        type Response = (WriteVersion, u16, bool, Verdict);
        let cases: [(&[Response], WriteVersion); 10] = [
            (
                &[(Two, 204, true, TAKEN), (Two, 400, false, REFUSED), (Two, 404, false, REFUSED)],
                Two,
            ),
            (
                &[(Two, 204, false, Other), (One, 204, false, TAKEN), (One, 400, false, REFUSED)],
                One,
            ),
            (&[(Two, 415, false, Other), (One, 500, false, Later), (One, 200, false, TAKEN)], One),
            (&[(Two, 400, false, Other), (One, 204, false, TAKEN)], One),
            // A receiver that supports 2.0 refuses samples.
            (&[(Two, 400, true, REFUSED), (Two, 400, false, REFUSED)], Two),
            // A receiver that only supports 2.0 refuses the first samples.
            (&[(Two, 400, false, Other), (One, 415, false, REFUSED), (Two, 204, true, TAKEN)], Two),
            (&[(Two, 500, false, Later), (Two, 429, false, Later), (Two, 503, true, Later)], Two),
            // The receiver is replaced by one with another version.
            (&[(Two, 204, true, TAKEN), (Two, 204, false, Other), (One, 204, false, TAKEN)], One),
            (&[(Two, 415, true, Other), (One, 204, true, TAKEN), (One, 415, false, REFUSED)], Two),
            // Two shards sent the first requests in 2.0, and one response arrived late.
            (
                &[
                    (Two, 204, false, Other),
                    (One, 204, false, TAKEN),
                    (Two, 204, false, Other),
                    (One, 400, false, REFUSED),
                ],
                One,
            ),
        ];
        for (responses, version) in cases {
            let mut negotiation = Negotiation::new();
            for (sent, status, has_counts, verdict) in responses {
                let judged = negotiation.judge(*sent, *status, *has_counts);
                assert_eq!(judged, *verdict, "{status} in {responses:?}");
            }
            assert_eq!(negotiation.version(), version, "{responses:?}");
        }
    }
}
