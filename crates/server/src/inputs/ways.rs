//! The routes at which samples come in one by one: remote write, the import of text, and messages.

use hyper::Method;

use super::{Inputs, import, ingest, write};
use crate::http::{Reply, Request, method_not_allowed};

/// Which of the routes there are.
#[derive(Debug, Clone, Copy)]
pub struct Ways {
    /// `/api/v1/write`.
    pub remote_write: bool,
    /// `/api/v1/import/prometheus`.
    pub import: bool,
    /// `/ingest`.
    pub ingest: bool,
}

impl Ways {
    /// Whether a request is one whose body is kept.
    pub fn takes(self, method: &Method, path: &str) -> bool {
        *method == Method::POST && self.of(path).is_some()
    }

    /// The reply to a request, if it is for one of the routes.
    pub fn reply(self, inputs: &Inputs, request: &Request) -> Option<Reply> {
        let respond = self.of(request.path())?;
        Some(match *request.method() {
            Method::POST => respond(inputs, request),
            _ => method_not_allowed("POST").into(),
        })
    }

    fn of(self, path: &str) -> Option<fn(&Inputs, &Request) -> Reply> {
        match path {
            "/api/v1/write" if self.remote_write => Some(write::respond),
            "/api/v1/import/prometheus" if self.import => Some(import::respond),
            "/ingest" if self.ingest => Some(ingest::respond),
            _ => None,
        }
    }
}
