//! Content negotiation: selects format and compression from the headers of a request.

use super::Format;
use super::compress::Compression;
use super::escape::Escaping;

/// The result of [`negotiate`]: a format, and how names outside the legacy character set are
/// escaped.
///
/// ```
/// use quipu::exposition::{Escaping, Format, Negotiation, negotiate};
///
/// let accept = "application/openmetrics-text;version=1.0.0, text/plain;q=0.5";
/// let Negotiation { format, escaping, .. } = negotiate(accept);
/// assert_eq!((format, escaping), (Format::OpenMetrics, Escaping::Underscores));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Negotiation {
    /// The format.
    pub format: Format,
    /// The escaping scheme for names.
    pub escaping: Escaping,
}

/// Selects the format by the header `Accept`: the supported one with the greatest weight or, for
/// equal weights, the first. If you pass no supported format, the result is [`Format::Text`]. The
/// default escaping scheme is underscores.
pub fn negotiate(accept: &str) -> Negotiation {
    let mut best = (0.0, Negotiation { format: Format::Text, escaping: Escaping::default() });
    for range in accept.split(',') {
        let mut parts = range.split(';').map(str::trim);
        let media = parts.next().unwrap_or("").to_ascii_lowercase();
        let mut weight = 1.0;
        let (mut version, mut proto, mut encoding) = (String::new(), String::new(), String::new());
        let mut escaping = Escaping::default();
        for parameter in parts {
            let Some((name, value)) = parameter.split_once('=') else { continue };
            let value = value.trim().trim_matches('"');
            match name.trim().to_ascii_lowercase().as_str() {
                "q" => weight = value.parse().unwrap_or(0.0),
                "version" => version = value.to_owned(),
                "proto" => proto = value.to_owned(),
                "encoding" => encoding = value.to_owned(),
                "escaping" => escaping = Escaping::from_name(value).unwrap_or_default(),
                _ => {}
            }
        }
        let format = match (media.as_str(), version.as_str()) {
            ("application/openmetrics-text", "" | "0.0.1" | "1.0.0") => Format::OpenMetrics,
            ("application/openmetrics-text", "2.0.0") => Format::OpenMetrics2,
            ("text/plain", "1.0.0") => Format::TextUtf8,
            ("text/plain", "" | "0.0.4") | ("*/*" | "text/*", _) => Format::Text,
            ("application/vnd.google.protobuf", _)
                if proto == "io.prometheus.client.MetricFamily" && encoding == "delimited" =>
            {
                Format::Protobuf
            }
            _ => continue,
        };
        // Version 0.0.4 cannot represent quoted names, whatever the request asks for.
        let escaping = match (format, escaping) {
            (Format::Text, Escaping::AllowUtf8) => Escaping::Underscores,
            (_, escaping) => escaping,
        };
        if weight > best.0 {
            best = (weight, Negotiation { format, escaping });
        }
    }
    best.1
}

/// Selects the compression by the header `Accept-Encoding`, among those the crate was built with.
/// For equal weights, zstd precedes gzip.
pub fn negotiate_compression(accept_encoding: &str) -> Compression {
    let mut best = (0.0, Compression::Identity);
    for coding in accept_encoding.split(',') {
        let mut parts = coding.split(';').map(str::trim);
        let name = parts.next().unwrap_or("").to_ascii_lowercase();
        let weight = parts
            .find_map(|part| part.strip_prefix("q="))
            .map_or(Some(1.0), |weight| weight.parse().ok());
        let (Some(compression), Some(weight)) = (Compression::from_name(&name), weight) else {
            continue;
        };
        let is_better = weight > best.0 || (weight == best.0 && compression > best.1);
        if weight > 0.0 && is_better {
            best = (weight, compression);
        }
    }
    best.1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_headers_of_real_scrapers_get_what_they_want() {
        let protobuf = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;\
                        encoding=delimited";
        let cases = [
            // Prometheus 2.42.
            (
                "application/openmetrics-text;version=1.0.0,application/openmetrics-text;\
                 version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
                    .to_owned(),
                Format::OpenMetrics,
                Escaping::Underscores,
            ),
            // Prometheus 2.42 with native histograms.
            (
                format!(
                    "{protobuf},application/openmetrics-text;version=1.0.0;q=0.8,\
                     text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
                ),
                Format::Protobuf,
                Escaping::Underscores,
            ),
            // Prometheus 3.14.
            (
                "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,\
                 application/openmetrics-text;version=0.0.1;q=0.5,\
                 text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,\
                 text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
                    .to_owned(),
                Format::OpenMetrics,
                Escaping::AllowUtf8,
            ),
            // VictoriaMetrics 1.79.
            (
                "text/plain;version=0.0.4;q=1,*/*;q=0.1".to_owned(),
                Format::Text,
                Escaping::Underscores,
            ),
            ("text/html,*/*;q=0.8".to_owned(), Format::Text, Escaping::Underscores),
            ("".to_owned(), Format::Text, Escaping::Underscores),
            ("application/json".to_owned(), Format::Text, Escaping::Underscores),
            (
                "application/openmetrics-text; version=2.0.0; escaping=\"dots\"".to_owned(),
                Format::OpenMetrics2,
                Escaping::Dots,
            ),
            ("application/openmetrics-text".to_owned(), Format::OpenMetrics, Escaping::Underscores),
            ("text/plain;version=1.0.0".to_owned(), Format::TextUtf8, Escaping::Underscores),
            ("text/plain;q=x,;;=,q=1".to_owned(), Format::Text, Escaping::Underscores),
        ];
        for (accept, format, escaping) in cases {
            assert_eq!(negotiate(&accept), Negotiation { format, escaping }, "{accept}");
        }
    }

    #[test]
    #[cfg(all(feature = "gzip", feature = "zstd"))]
    fn the_best_compression_that_is_accepted_is_taken() {
        for (accept, expected) in [
            ("gzip", Compression::Gzip),
            ("gzip, zstd", Compression::Zstd),
            ("gzip, zstd;q=0.5", Compression::Gzip),
            ("gzip;q=0", Compression::Identity),
            ("br, deflate", Compression::Identity),
            ("", Compression::Identity),
        ] {
            assert_eq!(negotiate_compression(accept), expected, "{accept}");
        }
    }
}
