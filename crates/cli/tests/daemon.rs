//! Runs the daemon like a user: the real binary, started for each test, over real sockets.
//!
//! These tests do not call the library. They can observe the daemon only through its responses, its
//! log, the state file and exit codes.

#![allow(clippy::unwrap_used, reason = "functions of tests may fail by panicking")]

mod common;

#[path = "daemon/agent.rs"]
mod agent;

#[path = "daemon/browsers.rs"]
mod browsers;
#[path = "daemon/compression.rs"]
mod compression;
#[path = "daemon/contract.rs"]
mod contract;
#[path = "daemon/crash.rs"]
mod crash;
#[path = "daemon/expiry.rs"]
mod expiry;
#[path = "daemon/full.rs"]
mod full;
#[path = "common/generated.rs"]
mod generated;
#[path = "daemon/graphite.rs"]
mod graphite;
#[path = "daemon/hanging.rs"]
mod hanging;
#[path = "daemon/headers.rs"]
mod headers;
#[path = "daemon/imports.rs"]
mod imports;
#[path = "daemon/influx.rs"]
mod influx;
#[path = "daemon/ingests.rs"]
mod ingests;
#[path = "daemon/kept.rs"]
mod kept;
#[path = "daemon/keys.rs"]
mod keys;
#[path = "daemon/known.rs"]
mod known;
#[path = "daemon/logs.rs"]
mod logs;
#[path = "daemon/metrics.rs"]
mod metrics;
#[path = "daemon/metrics_page.rs"]
mod metrics_page;
#[path = "daemon/names.rs"]
mod names;
#[path = "daemon/openapi.rs"]
mod openapi;
#[path = "daemon/otlp.rs"]
mod otlp;
#[path = "daemon/otlp_deltas.rs"]
mod otlp_deltas;
#[path = "daemon/otlp_output.rs"]
mod otlp_output;
#[path = "daemon/otlp_resources.rs"]
mod otlp_resources;
#[path = "daemon/outputs.rs"]
mod outputs;
#[path = "daemon/pages.rs"]
mod pages;
#[path = "daemon/push.rs"]
mod push;
#[path = "common/python.rs"]
mod python;
#[path = "daemon/queues.rs"]
mod queues;
#[path = "daemon/readers.rs"]
mod readers;
#[path = "daemon/reading.rs"]
mod reading;
#[path = "daemon/recording.rs"]
mod recording;
#[path = "daemon/refusals.rs"]
mod refusals;
#[path = "daemon/releases.rs"]
mod releases;
#[path = "daemon/rules.rs"]
mod rules;
#[path = "daemon/scraping.rs"]
mod scraping;
#[path = "daemon/settings.rs"]
mod settings;
#[path = "daemon/shards.rs"]
mod shards;
#[path = "daemon/shutdown.rs"]
mod shutdown;
#[path = "daemon/snapshot.rs"]
mod snapshot;
#[path = "daemon/spots.rs"]
mod spots;
#[path = "daemon/starts.rs"]
mod starts;
#[path = "daemon/state_file.rs"]
mod state_file;
#[path = "daemon/statsd.rs"]
mod statsd;
#[path = "../../quipu/tests/judges/textparse.rs"]
mod textparse;
#[path = "common/worker.rs"]
mod worker;
#[path = "daemon/writes.rs"]
mod writes;
#[path = "daemon/written_exemplars.rs"]
mod written_exemplars;
