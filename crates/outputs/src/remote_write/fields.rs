//! The header fields of requests and responses.

use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName};
use quipu_wire::remote::WriteVersion;

use super::coding::Coding;
use quipu_client::via;

/// The fields of a request, with the way that its samples have gone.
pub(super) fn of(version: WriteVersion, coding: Coding, via: &str) -> Vec<(HeaderName, &str)> {
    let is_of_victoria = version == WriteVersion::One && coding == Coding::Zstd;
    let (content_type, version) = match version {
        WriteVersion::One => ("application/x-protobuf", "0.1.0"),
        WriteVersion::Two => {
            ("application/x-protobuf;proto=io.prometheus.write.v2.Request", "2.0.0")
        }
    };
    let mut fields = vec![
        (CONTENT_ENCODING, coding.name()),
        (CONTENT_TYPE, content_type),
        (VERSION, version),
        (via::FIELD, via),
    ];
    if is_of_victoria {
        fields.push((VICTORIA_VERSION, "1"));
    }
    fields
}

const VERSION: HeaderName = HeaderName::from_static("x-prometheus-remote-write-version");
/// The version of VictoriaMetrics' protocol, which is 1.0 with zstd.
const VICTORIA_VERSION: HeaderName =
    HeaderName::from_static("x-victoriametrics-remote-write-version");

/// How many samples and histograms the receiver has written, if it says so.
pub(super) fn written(headers: &HeaderMap) -> Option<u64> {
    let count = |what: &str| {
        let value = headers.get(format!("x-prometheus-remote-write-{what}-written"))?;
        Some(value.to_str().ok()?.trim().parse::<u64>().unwrap_or(0))
    };
    let counts = ["samples", "histograms", "exemplars"].map(count);
    let sum = counts[..2].iter().flatten().fold(0_u64, |sum, count| sum.saturating_add(*count));
    counts.iter().any(Option::is_some).then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn receivers_of_2_0_say_how_much_they_wrote() {
        let of = |fields: &[(&'static str, &'static str)]| {
            let fields = fields.iter().map(|(name, value)| {
                let name = format!("X-Prometheus-Remote-Write-{name}-Written");
                (name.parse().unwrap(), value.parse().unwrap())
            });
            written(&fields.collect())
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[("Exemplars", "0")]), Some(0));
        assert_eq!(of(&[("Samples", "3"), ("Histograms", "4"), ("Exemplars", "5")]), Some(7));
        assert_eq!(of(&[("Samples", "many")]), Some(0));
    }
}
