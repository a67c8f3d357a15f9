//! The native part of the Python package `quipu_metrics`: the segments, the metrics that count in
//! them, and the exposition. Names, checks, decorators and servers are written in Python.
//!
//! A metric without labels, or a child of a metric with labels, is bound to its series. This makes
//! counting one call and one addition to memory that all processes of the application share.

mod core;
mod counter;
mod enumeration;
mod error;
mod exemplar;
mod exposition;
mod fastcall;
mod gauge;
mod histogram;
mod info;
mod labels;
mod local_socket;
mod recording;
mod samples;
mod segment;
mod summary;
mod value;

use pyo3::prelude::*;

/// The native module. It requires the GIL: free-threaded Python turns it on for this module.
#[pymodule(gil_used = true)]
fn _quipu(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<segment::Segment>()?;
    module.add_class::<segment::Source>()?;
    module.add_class::<counter::Counter>()?;
    module.add_class::<gauge::Gauge>()?;
    module.add_class::<histogram::Histogram>()?;
    module.add_class::<summary::Summary>()?;
    module.add_class::<info::Info>()?;
    module.add_class::<enumeration::Enum>()?;
    module.add_class::<value::Value>()?;
    module.add_class::<recording::RecordingOptions>()?;
    module.add_class::<recording::Recording>()?;
    add_hot_methods(module.py())?;
    module.add("MismatchError", module.py().get_type::<error::MismatchError>())?;
    module.add("NoRoomError", module.py().get_type::<error::NoRoomError>())?;
    module.add("RecordingError", module.py().get_type::<error::RecordingError>())?;
    module.add_function(wrap_pyfunction!(segment::expose, module)?)?;
    module.add_function(wrap_pyfunction!(segment::collect, module)?)?;
    module.add_function(wrap_pyfunction!(exemplar::set_legacy, module)?)?;
    module.add_function(wrap_pyfunction!(labels::forget_children, module)?)?;
    module.add_function(wrap_pyfunction!(exposition::negotiate, module)?)?;
    module.add_class::<local_socket::BoundPath>()?;
    module.add_function(wrap_pyfunction!(local_socket::listen_at, module)?)?;
    Ok(())
}

/// Adds the methods that do not go through pyo3.
fn add_hot_methods(py: Python<'_>) -> PyResult<()> {
    core::add_labels::<_, counter::Counter>(py)?;
    core::add_labels::<_, gauge::Gauge>(py)?;
    core::add_labels::<_, histogram::Histogram>(py)?;
    core::add_labels::<_, summary::Summary>(py)?;
    core::add_labels::<_, enumeration::Enum>(py)?;
    fastcall::add::<counter::Inc>(py)?;
    fastcall::add::<gauge::Inc>(py)?;
    fastcall::add::<gauge::Dec>(py)?;
    fastcall::add::<gauge::Set>(py)?;
    fastcall::add::<histogram::Observe>(py)?;
    fastcall::add::<summary::Observe>(py)
}
