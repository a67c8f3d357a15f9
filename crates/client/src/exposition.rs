//! A page with metrics in Prometheus' text format or in OpenMetrics, with its detected format.

use quipu_wire::remote::exposition::text::TextFormat;

use crate::media::Media;

/// A page with metrics.
#[derive(Debug)]
pub struct Text {
    /// The content of the page.
    pub bytes: Vec<u8>,
    /// The format of the page.
    pub format: TextFormat,
    /// The content type of the response; empty if the server sent none.
    pub content_type: Option<String>,
}

impl Text {
    /// Wraps a page with this content type.
    pub fn of_type(bytes: Vec<u8>, content_type: String) -> Self {
        Self {
            bytes,
            format: text_format(Media::new(&content_type)),
            content_type: Some(content_type),
        }
    }

    /// Wraps a page and detects its format: OpenMetrics if any line is invalid in Prometheus'
    /// format.
    pub fn of_bytes(bytes: Vec<u8>) -> Self {
        let mut lines = bytes.split(|byte| *byte == b'\n');
        let format = match lines.any(is_openmetrics) {
            true => TextFormat::OpenMetrics,
            false => TextFormat::Prometheus,
        };
        Self { bytes, format, content_type: None }
    }
}

/// Returns the format for this media type.
pub fn text_format(media: Media<'_>) -> TextFormat {
    match media.is("application/openmetrics-text") {
        true => TextFormat::OpenMetrics,
        false => TextFormat::Prometheus,
    }
}

fn is_openmetrics(line: &[u8]) -> bool {
    let kinds = [&b" info"[..], b" stateset", b" unknown", b" gaugehistogram"];
    line == b"# EOF"
        || line.starts_with(b"# UNIT ")
        || line.starts_with(b"# TYPE ") && kinds.iter().any(|kind| line.ends_with(kind))
}
