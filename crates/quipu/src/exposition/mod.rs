//! Exposition: encodes snapshots in the formats that scrapers read.
//!
//! | format | content type | read by |
//! |---|---|---|
//! | [`Format::Text`] | `text/plain; version=0.0.4` | all scrapers |
//! | [`Format::TextUtf8`] | `text/plain; version=1.0.0` | Prometheus 3 |
//! | [`Format::OpenMetrics`] | `application/openmetrics-text; version=1.0.0` | Prometheus 2.5 |
//! | [`Format::OpenMetrics2`] | `application/openmetrics-text; version=2.0.0` | Prometheus 3, with its feature `openmetrics2` |
//! | [`Format::Protobuf`] | `application/vnd.google.protobuf; ...` | Prometheus |
//!
//! Protobuf and OpenMetrics 2.0 support native histograms and start times; these two and
//! OpenMetrics 1.0 support exemplars and units. The specifications:
//! <https://prometheus.io/docs/instrumenting/exposition_formats/>,
//! <https://prometheus.io/docs/specs/om/open_metrics_spec/>,
//! <https://prometheus.io/docs/specs/om/open_metrics_spec_2_0/>. Version 2.0 of OpenMetrics is a
//! release candidate and may change: it is used only if a scraper asks for that version, and as the
//! parser of Prometheus 3.16 reads it.

mod compress;
mod encoder;
mod escape;
mod known;
mod line;
mod negotiate;
mod number;
mod page;
mod parts;
mod protobuf;
mod shown;
mod style;
mod text;

pub use compress::Compression;
pub use encoder::Encoder;
pub use escape::Escaping;
pub(crate) use escape::{is_legacy_label, underscored_label, underscored_name};
pub use negotiate::{Negotiation, negotiate, negotiate_compression};
pub use page::{Omissions, Rule};

// The daemon and the stores use these. They may change in any version.
#[doc(hidden)]
pub use compress::Compressor;
#[doc(hidden)]
pub use escape::{escape_name, is_legacy_name};
#[doc(hidden)]
pub use number::bound_label;
#[doc(hidden)]
pub use shown::{ShownNames, counter_stem, unit_of};

/// The format of an encoded snapshot. You can get it from the `Accept` header of a request with
/// [`negotiate`](fn@negotiate).
///
/// ```
/// use quipu::exposition::{Escaping, Format};
///
/// let content_type = Format::OpenMetrics.content_type(Escaping::default());
/// assert!(content_type.starts_with("application/openmetrics-text; version=1.0.0"));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Format {
    /// Prometheus' format of version 0.0.4.
    #[default]
    Text,
    /// Prometheus' format of version 1.0.0, where quoted names can be any UTF-8.
    TextUtf8,
    /// OpenMetrics 1.0.0.
    OpenMetrics,
    /// OpenMetrics 2.0.0, a draft.
    OpenMetrics2,
    /// Messages `io.prometheus.client.MetricFamily`, each prefixed with its length.
    Protobuf,
}

impl Format {
    /// Returns the value of the `Content-Type` header.
    pub fn content_type(self, escaping: Escaping) -> String {
        let plain = match self {
            // Readers of this version do not know the parameter; the escaping is always the
            // default.
            Self::Text => return "text/plain; version=0.0.4; charset=utf-8".into(),
            Self::TextUtf8 => "text/plain; version=1.0.0; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::OpenMetrics2 => "application/openmetrics-text; version=2.0.0; charset=utf-8",
            Self::Protobuf => {
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; \
                 encoding=delimited"
            }
        };
        format!("{plain}; escaping={}", escaping.as_str())
    }
}
