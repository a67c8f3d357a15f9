//! Paths of routes. `docs/openapi.yaml` describes each.

use hyper::Method;

/// A path, with the methods that it supports.
#[derive(Debug)]
pub struct Path {
    /// The path, or its beginning if a parameter follows.
    pub start: &'static str,
    /// The parameter, which is the rest of the path; empty for none.
    pub parameter: &'static str,
    /// The methods, as in `Allow`.
    pub methods: &'static str,
}

impl Path {
    /// A path that begins in this way.
    pub const fn new(start: &'static str, parameter: &'static str, methods: &'static str) -> Self {
        Self { start, parameter, methods }
    }

    /// Whether the route has the method.
    pub fn takes(&self, method: &Method) -> bool {
        self.methods.split(',').any(|name| name.trim_start() == method.as_str())
    }

    /// The parameter of this path in the path of a request; `None` if that is another path.
    pub fn parameter_in<'p>(&self, path: &'p str) -> Option<&'p str> {
        let rest = path.strip_prefix(self.start)?;
        (rest.is_empty() || !self.parameter.is_empty()).then_some(rest)
    }
}
