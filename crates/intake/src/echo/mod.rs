//! `POST /echo`: a minimal input, as a model for new inputs. It stores lines of `name value` as
//! gauges.
//!
//! Its tests show the three parts of an input: this folder, a row in the list of inputs, and a row
//! in their settings.

use quipu::intake::{InputValue, Mode};
use quipu_wire::remote::{Cut, LineBuffer};

use super::requests::{BodyInput, Context, Input, Inputs, Pieces, Result};
use quipu_http::Request;
use quipu_process::flags;
use quipu_process::settings::{Unusable, in_range};
use quipu_process::size::Size;

/// A request with lines, in progress.
pub(super) struct EchoRequest(LineBuffer);

impl BodyInput for EchoRequest {
    const INPUT: Input = Input::named("echo");

    fn new(inputs: &Inputs, _: &Request) -> Result<Self> {
        Ok(Self(LineBuffer::new(inputs.shared().options.echo)))
    }

    fn step(&mut self, body: &mut Pieces, context: &mut Context<'_>) -> Result<bool> {
        let has_ended =
            body.each(context.begun, |bytes| self.0.push(bytes, |cut| take(context, cut)))?;
        if has_ended {
            self.0.finish(|cut| take(context, cut));
        }
        Ok(has_ended)
    }
}

flags! {
    /// The settings of this input.
    pub struct EchoFlags {
        /// Maximum bytes of a line [default: 1024]
        #[arg(long, value_name = "BYTES")]
        echo_line_bytes: Size<usize> = Size(1 << 10),
    }
}

impl EchoFlags {
    /// Returns the maximum length of a line in bytes.
    ///
    /// # Errors
    /// Fails for a number out of its bounds.
    pub fn resolve(&self) -> std::result::Result<usize, Unusable> {
        in_range("echo-line-bytes", self.echo_line_bytes, 1, 1 << 20)
    }
}

fn take(context: &mut Context<'_>, cut: Cut<'_>) {
    let Cut::Lines(lines) = cut else {
        return context.outcome.refuse("line_too_long", format_args!("a line is too long"));
    };
    let mut intake = context.intake();
    for line in String::from_utf8_lossy(lines).lines() {
        let pair = line.split_once(' ').and_then(|(name, value)| Some((name, value.parse().ok()?)));
        let Some((name, value)) = pair else {
            context.outcome.refuse("malformed", format_args!("{line:?} is not a name and a value"));
            continue;
        };
        let (shared, metric) = (context.inputs.shared(), context.inputs.metric(name));
        match shared.take(&mut intake, metric, &[], &InputValue::Gauge(value), Mode::Set, None) {
            Ok(()) => context.outcome.count_taken(1),
            Err(refused) => {
                context.outcome.refuse(refused.reason(), format_args!("{name}: {refused}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::atomic::AtomicU64;
    use std::time::Instant;

    use hyper::StatusCode;
    use hyper::body::Bytes;
    use quipu::Registry;
    use quipu::intake::{Intake, Limits};
    use quipu_http::{Access, Reply};

    use super::*;
    use crate::refusals::Refusals;
    use crate::settings::InputFlags;
    use crate::{LIST, Shared};

    /// Creates the inputs of a thread, without limits and rules.
    fn inputs(registry: &Registry) -> Inputs {
        let total: &AtomicU64 = Box::leak(Box::default());
        let refusals = Refusals::new(registry, total).unwrap();
        let settings = "input-body-bytes = 100\necho-line-bytes = 10\npush = \"off\"";
        let flags = InputFlags::from_toml(settings).unwrap().or(InputFlags::defaults());
        let options = flags.resolve().unwrap();
        let (access, flags) = (Access::default(), Default::default());
        let shared = Box::leak(Box::new(Shared::new(options, refusals, None, access, flags)));
        Inputs::new(Intake::new(registry, Limits::default()).unwrap(), shared)
    }

    /// Sends a body to the route in the list. Returns the status and the body of the response.
    fn send(inputs: &Inputs, coding: &str, body: &[u8]) -> (StatusCode, String) {
        let head = hyper::Request::post("/echo").header("Content-Encoding", coding);
        let (head, ()) = head.body(()).unwrap().into_parts();
        let request = Request::new(head, Bytes::copy_from_slice(body), Instant::now(), None);
        let routes = LIST.iter().flat_map(|input| input.routes);
        let route = routes.rev().find(|route| route.path.start == "/echo").unwrap();
        let response = match (route.respond)(inputs, &request) {
            Reply::Now(response) => response,
            Reply::Steps(mut steps) => {
                std::iter::repeat_with(|| steps.step()).flatten().next().unwrap()
            }
        };
        (response.status(), String::from_utf8(response.body().to_vec()).unwrap())
    }

    #[test]
    fn a_folder_and_two_rows_make_an_input_with_a_setting() {
        let registry = Registry::new();
        let inputs = inputs(&registry);
        let (status, text) = send(&inputs, "identity", b"a 1\nb 2.5\nc\n");
        assert_eq!(status, StatusCode::BAD_REQUEST);
        assert_eq!(text, "2 taken, 1 refused:\n\"c\" is not a name and a value\n");
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        gzip.write_all(b"a 5\n").unwrap();
        let gzip = gzip.finish().unwrap();
        assert_eq!(send(&inputs, "gzip", &gzip).0, StatusCode::NO_CONTENT);
        assert_eq!(send(&inputs, "gzip", b"a 7\n").0, StatusCode::BAD_REQUEST);
        let long = send(&inputs, "identity", b"long_name 1\n");
        assert_eq!(
            long,
            (StatusCode::BAD_REQUEST, "0 taken, 1 refused:\na line is too long\n".to_owned())
        );
        assert_eq!(send(&inputs, "br", b"").0, StatusCode::UNSUPPORTED_MEDIA_TYPE);
        assert_eq!(send(&inputs, "", &[b'\n'; 101]).0, StatusCode::PAYLOAD_TOO_LARGE);
        let page = registry.text();
        for line in ["a 5", "b 2.5", "quipu_input_samples_total{input=\"echo\"} 3"] {
            assert!(page.contains(&format!("\n{line}\n")), "{line}: {page}");
        }
    }
}
