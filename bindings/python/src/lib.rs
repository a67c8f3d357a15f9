//! The native part of the Python package `quipu`: the segments, the metrics that count in them, and
//! the exposition. Names, checks, decorators and servers are written in Python.
//!
//! A metric without labels, or a child of one with labels, is bound to its series: counting is one
//! call and one addition to memory that all processes of the application share.

mod core;
mod counter;
mod enumeration;
mod error;
mod exemplar;
mod exposition;
mod gauge;
mod histogram;
mod info;
mod labels;
mod samples;
mod segment;
mod summary;
mod value;

use pyo3::prelude::*;

/// The native module.
#[pymodule]
fn _quipu(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<segment::Segment>()?;
    module.add_class::<segment::Source>()?;
    module.add_class::<counter::Counter>()?;
    module.add_class::<gauge::Gauge>()?;
    module.add_class::<histogram::Histogram>()?;
    module.add_class::<summary::Summary>()?;
    module.add_class::<info::Info>()?;
    module.add_class::<enumeration::Enum>()?;
    module.add_class::<value::Value>()?;
    module.add("MismatchError", module.py().get_type::<error::MismatchError>())?;
    module.add("NoRoomError", module.py().get_type::<error::NoRoomError>())?;
    module.add_function(wrap_pyfunction!(segment::expose, module)?)?;
    module.add_function(wrap_pyfunction!(segment::collect, module)?)?;
    module.add_function(wrap_pyfunction!(exemplar::set_legacy, module)?)?;
    module.add_function(wrap_pyfunction!(labels::forget_children, module)?)?;
    module.add_function(wrap_pyfunction!(exposition::negotiate, module)?)?;
    Ok(())
}
