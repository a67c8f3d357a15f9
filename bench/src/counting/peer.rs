//! The peers, each used as its documentation recommends, with one file per library.

mod contatori;
mod fastmetrics;
mod measured;
mod metrics;
mod metrics_lib;
mod metriken;
mod opentelemetry;
mod prometheus;
mod prometheus_client;
mod prometheus_local;

pub use contatori::Contatori;
pub use fastmetrics::Fastmetrics;
pub use measured::{Measured, MeasuredParacord};
pub use metrics::Metrics;
pub use metrics_lib::{MetricsLib, MetricsLibSharded};
pub use metriken::Metriken;
pub use opentelemetry::OpenTelemetry;
pub use prometheus::{Prometheus, PrometheusStatic};
pub use prometheus_client::PrometheusClient;
pub use prometheus_local::PrometheusLocal;
