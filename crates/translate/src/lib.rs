//! Changes samples on their way in or out: the relabelling and aggregation rules of users, and the
//! translation of OTLP names.

pub mod otlp;
pub mod rules;
