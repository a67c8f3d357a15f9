//! Paths of routes. `docs/openapi.yaml` describes each path.

use hyper::Method;

/// A path with its supported methods.
#[derive(Debug)]
pub struct Path {
    /// The path, or its beginning if a parameter follows.
    pub start: &'static str,
    /// The parameter, which is the rest of the path; empty for none.
    pub parameter: &'static str,
    /// The methods, written as in `Allow`.
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
