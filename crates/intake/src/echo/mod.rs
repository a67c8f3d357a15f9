//! `POST /echo`: lines of `name value`, each of which is a gauge. It is the shortest input, so that
//! tests show how much an input needs.

use quipu::intake::{Given, Mode};
use quipu_wire::remote::{Cut, LineBuffer};

use super::requests::{BodyInput, Context, Input, Inputs, Pieces, Result};
use quipu_http::Request;

/// Lines that are being taken.
pub(super) struct Echo(LineBuffer);

impl BodyInput for Echo {
    const INPUT: Input = Input::named("echo");

    fn new(_: &Inputs, _: &Request) -> Result<Self> {
        Ok(Self(LineBuffer::new(MAX_LINE)))
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

/// The bytes of a line.
const MAX_LINE: usize = 1 << 10;

fn take(context: &mut Context<'_>, cut: Cut<'_>) {
    let Cut::Lines(lines) = cut else {
        return context.tally.refused("line_too_long", format_args!("a line is longer than 1 KiB"));
    };
    let mut intake = context.intake();
    for line in String::from_utf8_lossy(lines).lines() {
        let pair = line.split_once(' ').and_then(|(name, value)| Some((name, value.parse().ok()?)));
        let Some((name, value)) = pair else {
            context.tally.refused("malformed", format_args!("{line:?} is not a name and a value"));
            continue;
        };
        let (shared, metric) = (context.inputs.shared(), context.inputs.metric(name));
        match shared.take(&mut intake, metric, &[], &Given::Gauge(value), Mode::Set, None) {
            Ok(()) => context.tally.took(1),
            Err(why) => context.tally.refused(why.reason(), format_args!("{name}: {why}")),
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
    use quipu_http::Reply;

    use super::*;
    use crate::push::{self, Gauges, Push};
    use crate::refusals::Refusals;
    use crate::{LIST, Options, Shared, otlp};

    /// The inputs of a thread, without limits and rules.
    fn inputs(registry: &Registry) -> Inputs {
        let total: &AtomicU64 = Box::leak(Box::default());
        let refusals = Refusals::new(registry, total).unwrap();
        let push = push::Settings {
            enabled: false,
            access: quipu_http::Access::default(),
            checks: false,
            admin: false,
            groups: 0,
            mode: push::Mode::Replace,
            gauges: Gauges::Set,
            add_jobs: Vec::new(),
            expiry: None,
        };
        let translation = quipu_translate::otlp::Translation::NoTranslation;
        let otlp = otlp::Options { enabled: false, translation, promote: Vec::new() };
        let options = Options { sample_rates: [None; 2], expiry: None, otlp, body_bytes: 100 };
        let push = Push::new(push, Default::default());
        let shared = Box::leak(Box::new(Shared::new(&options, refusals, push, None)));
        Inputs::new(Intake::new(registry, Limits::default()).unwrap(), shared)
    }

    /// Sends a body to the route of the list. Returns the status and the text of the response.
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
    fn a_folder_and_a_row_make_an_input() {
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
        assert_eq!(send(&inputs, "br", b"").0, StatusCode::UNSUPPORTED_MEDIA_TYPE);
        assert_eq!(send(&inputs, "", &[b'\n'; 101]).0, StatusCode::PAYLOAD_TOO_LARGE);
        let page = registry.text();
        for line in ["a 5", "b 2.5", "quipu_input_samples_total{input=\"echo\"} 3"] {
            assert!(page.contains(&format!("\n{line}\n")), "{line}: {page}");
        }
    }
}
