//! Changes to samples on their way in or out: rules of users, and the names of OTLP.

pub mod otlp;
pub mod rules;
