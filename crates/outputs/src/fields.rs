//! Builds the header fields of requests to receivers.

use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderName};

use super::coding::Coding;
use super::queue::Form;
use super::snapshot::Body;
use quipu_client::via;

/// Returns the header fields of a request. `via` contains the daemons that its samples passed
/// through.
pub(super) fn for_request<'v>(body: &Body, via: &'v str) -> Vec<(HeaderName, &'v str)> {
    let (content_type, version) = match body.form {
        Form::Write1 => ("application/x-protobuf", Some("0.1.0")),
        Form::Write2 => {
            ("application/x-protobuf;proto=io.prometheus.write.v2.Request", Some("2.0.0"))
        }
        Form::Points | Form::Totals => ("application/x-protobuf", None),
    };
    let mut fields = vec![(CONTENT_TYPE, content_type), (via::FIELD, via)];
    fields.extend(body.coding.name().map(|name| (CONTENT_ENCODING, name)));
    fields.extend(version.map(|version| (VERSION, version)));
    if (body.form, body.coding) == (Form::Write1, Coding::Zstd) {
        fields.push((VICTORIA_VERSION, "1"));
    }
    fields
}

const VERSION: HeaderName = HeaderName::from_static("x-prometheus-remote-write-version");
/// The version of VictoriaMetrics' protocol, which is 1.0 with zstd.
const VICTORIA_VERSION: HeaderName =
    HeaderName::from_static("x-victoriametrics-remote-write-version");
