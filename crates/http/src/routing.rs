//! The paths of routes and their methods. `docs/openapi.yaml` documents each path.

use hyper::Method;

/// A path with its supported methods.
#[derive(Debug)]
pub struct Path {
    /// The path, or the part before the parameter.
    pub start: &'static str,
    /// The name of the parameter, which is the rest of the path; empty if there is none.
    pub parameter: &'static str,
    /// The supported methods, in the format of the header `Allow`.
    pub methods: &'static str,
}

impl Path {
    /// Creates a path that begins with `start`.
    pub const fn new(start: &'static str, parameter: &'static str, methods: &'static str) -> Self {
        Self { start, parameter, methods }
    }

    /// Returns whether the route supports the method.
    pub fn takes(&self, method: &Method) -> bool {
        self.methods.split(',').any(|name| name.trim_start() == method.as_str())
    }

    /// Returns the parameter in the path of a request, or `None` if the request is for another
    /// path.
    pub fn parameter_in<'p>(&self, path: &'p str) -> Option<&'p str> {
        let rest = path.strip_prefix(self.start)?;
        (rest.is_empty() || !self.parameter.is_empty()).then_some(rest)
    }
}
