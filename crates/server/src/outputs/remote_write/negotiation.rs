//! Which version of remote write a receiver takes, and whether it takes zstd.
//!
//! The first request is in 2.0. Receivers that know 1.0 alone refuse it, or take it and store
//! nothing: Prometheus 2 and VictoriaMetrics do that. One that knows 2.0 says in the header fields
//! `X-Prometheus-Remote-Write-*-Written` how much it stored. So a response without them means that
//! the receiver does not know the version, as the specification of 2.0 says. The shards of a
//! receiver share what is known.
//!
//! If zstd is wanted, each version is tried with it first. A receiver that may not be able to read
//! such a request gets it with Snappy at once. A receiver that refuses both does so for what is in
//! the request, or for its version. A receiver that takes the second one gets Snappy for [`AGAIN`].
//! A receiver that has taken zstd before may answer 400 because of the samples, so it gets Snappy
//! only after [`ENOUGH`] such responses in a row.

use std::time::{Duration, Instant};

use quipu_wire::remote::WriteVersion::{self, One, Two};

use super::coding::Coding;

/// What is known of a receiver.
#[derive(Debug)]
pub(super) struct Negotiation {
    version: WriteVersion,
    is_known: bool,
    /// The coding that is wanted.
    wanted: Coding,
    /// Until when the receiver gets Snappy in any case.
    snappy_until: Option<Instant>,
    /// Whether the receiver has taken a request with zstd, and how many in a row it took only with
    /// Snappy since.
    has_read_zstd: bool,
    unread: u32,
}

/// What a response means for the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It was stored.
    Taken,
    /// It is not stored, and never will be.
    Refused,
    /// It may be stored if it is sent again.
    Later,
    /// It may be stored if it is sent in 1.0.
    Other,
}

/// Whether a response may mean that the receiver cannot read what is compressed so. One that has
/// stored something can. The specification of 2.0 asks for status 415; receivers of 1.0 also have
/// 400.
pub(super) fn may_be_unread(coding: Coding, status: u16, written: Option<u64>) -> bool {
    coding == Coding::Zstd && matches!(status, 400 | 415) && written.unwrap_or(0) == 0
}

impl Negotiation {
    /// A receiver of which nothing is known, with the coding that is wanted.
    pub(super) fn new(wanted: Coding) -> Self {
        Self {
            version: Two,
            is_known: false,
            wanted,
            snappy_until: None,
            has_read_zstd: false,
            unread: 0,
        }
    }

    /// How requests are compressed.
    pub(super) fn coding(&self, now: Instant) -> Coding {
        if self.snappy_until.is_some_and(|end| now < end) { Coding::Snappy } else { self.wanted }
    }

    /// Notes that the receiver took a request with zstd.
    pub(super) fn read_zstd(&mut self) {
        (self.has_read_zstd, self.unread) = (true, 0);
    }

    /// Notes that the receiver took with Snappy a request to which it responded with this status
    /// when it was sent with zstd. Returns whether it gets Snappy from now on.
    pub(super) fn took_snappy(&mut self, status: u16, now: Instant) -> bool {
        if self.coding(now) == Coding::Snappy {
            return false;
        }
        self.unread += 1;
        if status != 415 && self.has_read_zstd && self.unread < ENOUGH {
            return false;
        }
        self.snappy_until = now.checked_add(AGAIN);
        (self.has_read_zstd, self.unread) = (false, 0);
        true
    }

    /// The version to send.
    pub(super) fn version(&self) -> WriteVersion {
        self.version
    }

    /// Whether the receiver has taken samples in this version.
    pub(super) fn is_known(&self) -> bool {
        self.is_known
    }

    /// Judges the response to a request in this version. `has_counts` says whether the response has
    /// one of the header fields.
    pub(super) fn judge(&mut self, sent: WriteVersion, status: u16, has_counts: bool) -> Verdict {
        let is_open = !self.is_known || self.version != sent;
        match (sent, status) {
            // It waited in the queue since the receiver knew 1.0 alone: this says nothing of 2.0.
            (One, 200..=299) if self.version == Two => Verdict::Taken,
            (One, 400..=428 | 430..=499) if self.version == Two => Verdict::Refused,
            (_, 429 | 500..=599) => Verdict::Later,
            (Two, 200..=299) if has_counts => self.settle(Two, Verdict::Taken),
            (Two, 200..=299 | 415) => self.change(One, Verdict::Other),
            (Two, 400) if is_open && !has_counts => self.change(One, Verdict::Other),
            (Two, _) if has_counts => self.settle(Two, Verdict::Refused),
            (One, 200..=299) => self.settle(One, Verdict::Taken),
            // The receiver may know 2.0 alone: the next snapshot tells.
            (One, 415) => self.change(Two, Verdict::Refused),
            (One, 400) if is_open => self.change(Two, Verdict::Refused),
            _ => Verdict::Refused,
        }
    }

    fn settle(&mut self, version: WriteVersion, verdict: Verdict) -> Verdict {
        (self.version, self.is_known) = (version, true);
        verdict
    }

    fn change(&mut self, version: WriteVersion, verdict: Verdict) -> Verdict {
        // Another shard may have found out, and had samples taken since.
        self.is_known &= self.version == version;
        self.version = version;
        verdict
    }
}

/// How long a receiver gets Snappy before zstd is tried again.
const AGAIN: Duration = Duration::from_secs(6 * 60 * 60);
/// How many requests in a row a receiver that has taken zstd takes only with Snappy before it gets
/// Snappy.
const ENOUGH: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;
    use Verdict::{Later, Other, Refused, Taken};

    #[test]
    fn responses_tell_the_version() {
        type Response = (WriteVersion, u16, bool, Verdict);
        let cases: [(&[Response], WriteVersion); 10] = [
            (
                &[(Two, 204, true, Taken), (Two, 400, false, Refused), (Two, 404, false, Refused)],
                Two,
            ),
            (
                &[(Two, 204, false, Other), (One, 204, false, Taken), (One, 400, false, Refused)],
                One,
            ),
            (&[(Two, 415, false, Other), (One, 500, false, Later), (One, 200, false, Taken)], One),
            (&[(Two, 400, false, Other), (One, 204, false, Taken)], One),
            // A receiver that knows 2.0 refuses samples.
            (&[(Two, 400, true, Refused), (Two, 400, false, Refused)], Two),
            // One that knows 2.0 alone refuses the first samples.
            (&[(Two, 400, false, Other), (One, 415, false, Refused), (Two, 204, true, Taken)], Two),
            (&[(Two, 500, false, Later), (Two, 429, false, Later), (Two, 503, true, Later)], Two),
            // It is replaced by one of another version.
            (&[(Two, 204, true, Taken), (Two, 204, false, Other), (One, 204, false, Taken)], One),
            (&[(Two, 415, true, Other), (One, 204, true, Taken), (One, 415, false, Refused)], Two),
            // Two shards sent the first requests in 2.0, and the response to one came late.
            (
                &[
                    (Two, 204, false, Other),
                    (One, 204, false, Taken),
                    (Two, 204, false, Other),
                    (One, 400, false, Refused),
                ],
                One,
            ),
        ];
        for (responses, version) in cases {
            let mut negotiation = Negotiation::new(Coding::Snappy);
            for (sent, status, has_counts, verdict) in responses {
                let judged = negotiation.judge(*sent, *status, *has_counts);
                assert_eq!(judged, *verdict, "{status} in {responses:?}");
            }
            assert_eq!(negotiation.version(), version, "{responses:?}");
        }
    }

    #[test]
    fn what_was_not_read_is_told_from_what_was_refused() {
        for (coding, status, written, expected) in [
            (Coding::Zstd, 415, None, true),
            (Coding::Zstd, 400, None, true),
            (Coding::Zstd, 400, Some(0), true),
            (Coding::Zstd, 400, Some(1), false),
            (Coding::Zstd, 204, None, false),
            (Coding::Zstd, 401, None, false),
            (Coding::Zstd, 503, None, false),
            (Coding::Snappy, 415, None, false),
        ] {
            let case = format!("{coding:?} {status} {written:?}");
            assert_eq!(may_be_unread(coding, status, written), expected, "{case}");
        }
    }

    #[test]
    fn zstd_is_left_once_and_tried_again() {
        let now = Instant::now();
        let mut negotiation = Negotiation::new(Coding::Zstd);
        assert_eq!(negotiation.judge(Two, 204, false), Other);
        assert_eq!(negotiation.coding(now), Coding::Zstd);
        assert!(negotiation.took_snappy(400, now) && !negotiation.took_snappy(400, now));
        assert_eq!((negotiation.version(), negotiation.coding(now)), (One, Coding::Snappy));
        let soon = now + AGAIN - Duration::from_secs(1);
        assert_eq!(negotiation.coding(soon), Coding::Snappy);
        let later = now + AGAIN;
        assert_eq!(negotiation.coding(later), Coding::Zstd);
        assert!(negotiation.took_snappy(400, later));
        assert_eq!(negotiation.coding(later), Coding::Snappy);
    }

    #[test]
    fn a_receiver_that_has_taken_zstd_may_refuse_some_requests() {
        let now = Instant::now();
        let mut negotiation = Negotiation::new(Coding::Zstd);
        for _ in 0..10 {
            negotiation.read_zstd();
            for _ in 1..ENOUGH {
                assert!(!negotiation.took_snappy(400, now));
                assert_eq!(negotiation.coding(now), Coding::Zstd);
            }
        }
        // Another program may be at the address by now.
        assert!(negotiation.took_snappy(400, now));
        assert_eq!(negotiation.coding(now), Coding::Snappy);
        let mut negotiation = Negotiation::new(Coding::Zstd);
        negotiation.read_zstd();
        assert!(negotiation.took_snappy(415, now));
    }
}
