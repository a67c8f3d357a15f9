//! The table of routes: which paths and methods there are. `docs/openapi.yaml` describes each.

use hyper::Method;

/// What a request is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// Counts this request.
    Count,
    /// The rate of `Count`.
    Rate,
    /// The rate of a key.
    KeyRate,
    /// Counts events of a key.
    Hit,
    /// The keys with the most events.
    Top,
    /// A scrape.
    Metrics,
    /// A group of pushed metrics.
    Group,
    /// The list of groups.
    Groups,
    /// The status that Pushgateway's API shows.
    Status,
    /// Removes all groups.
    Wipe,
    /// Remote write.
    RemoteWrite,
    /// Text in Prometheus' format.
    Import,
    /// Lines of InfluxDB.
    Influx,
    /// Metrics by OTLP.
    Otlp,
    /// Messages.
    Ingest,
    /// What was refused last.
    Refused,
    /// Whether the daemon is there.
    Health,
}

/// A row of the table.
#[derive(Debug)]
pub struct Row {
    /// The path, or its beginning if a parameter follows.
    pub start: &'static str,
    /// The parameter, which is the rest of the path; empty for none.
    pub parameter: &'static str,
    /// The methods, as in `Allow`.
    pub methods: &'static str,
    /// The route that requests to it are counted under.
    pub route: Route,
}

impl Row {
    const fn new(
        start: &'static str,
        parameter: &'static str,
        methods: &'static str,
        route: Route,
    ) -> Self {
        Self { start, parameter, methods, route }
    }

    /// Whether the route has the method.
    pub fn takes(&self, method: &Method) -> bool {
        self.methods.split(',').any(|name| name.trim_start() == method.as_str())
    }
}

impl Route {
    /// Whether its requests bring metrics in their bodies.
    pub fn brings_metrics(self) -> bool {
        use Route::{Group, Import, Influx, Ingest, Otlp, RemoteWrite};
        matches!(self, Group | RemoteWrite | Import | Influx | Otlp | Ingest)
    }
}

/// Finds the row of a path, and what the path has as its parameter.
pub fn find(path: &str) -> Option<(&'static Row, &str)> {
    ROWS.iter().find_map(|row| {
        let rest = path.strip_prefix(row.start)?;
        (rest.is_empty() || !row.parameter.is_empty()).then_some((row, rest))
    })
}

/// The table. The busiest routes are first.
pub static ROWS: [Row; 20] = [
    Row::new("/", "", READ, Route::Count),
    Row::new("/rate", "", READ, Route::Rate),
    Row::new("/rate/", "{key}", READ, Route::KeyRate),
    Row::new("/hit/", "{key}", "POST", Route::Hit),
    Row::new("/top", "", READ, Route::Top),
    Row::new("/metrics", "", READ, Route::Metrics),
    Row::new("/metrics/job/", "{job}", "PUT, POST, DELETE", Route::Group),
    Row::new("/metrics/job@base64/", "{job}", "PUT, POST, DELETE", Route::Group),
    Row::new("/api/v1/metrics", "", "GET, HEAD, OPTIONS", Route::Groups),
    Row::new("/api/v1/status", "", "GET, HEAD, OPTIONS", Route::Status),
    Row::new("/api/v1/admin/wipe", "", "PUT", Route::Wipe),
    Row::new("/api/v1/write", "", "POST", Route::RemoteWrite),
    Row::new("/api/v1/import/prometheus", "", "POST", Route::Import),
    Row::new("/write", "", "POST", Route::Influx),
    Row::new("/api/v2/write", "", "POST", Route::Influx),
    Row::new("/v1/metrics", "", "POST", Route::Otlp),
    Row::new("/ingest", "", "POST", Route::Ingest),
    Row::new("/refused", "", READ, Route::Refused),
    Row::new("/-/healthy", "", READ, Route::Health),
    Row::new("/-/ready", "", READ, Route::Health),
];

const READ: &str = "GET, HEAD";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_one_row_and_a_parameter() {
        for (path, expected) in [
            ("/", Some((Route::Count, ""))),
            ("/rate", Some((Route::Rate, ""))),
            ("/rate/", Some((Route::KeyRate, ""))),
            ("/rate/a/b", Some((Route::KeyRate, "a/b"))),
            ("/metrics", Some((Route::Metrics, ""))),
            ("/metrics/job/a/b/c", Some((Route::Group, "a/b/c"))),
            ("/metrics/job@base64/YQ", Some((Route::Group, "YQ"))),
            ("/metrics/job", None),
            ("/metrics/x", None),
            ("/rates", None),
            ("//", None),
            ("*", None),
            ("", None),
        ] {
            let found = find(path).map(|(row, rest)| (row.route, rest));
            assert_eq!(found, expected, "{path}");
        }
    }
}
