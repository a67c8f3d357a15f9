//! Converts the library's errors to Python exceptions, and issues its warnings.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

pyo3::create_exception!(
    _quipu,
    MismatchError,
    PyValueError,
    "The segment has a metric of that name with other labels or settings."
);

pyo3::create_exception!(
    _quipu,
    NoRoomError,
    PyValueError,
    "The segment or the system has no memory left for a metric."
);

pyo3::create_exception!(
    quipu_metrics,
    RecordingError,
    PyValueError,
    "The flight recorder cannot record: an option is out of range, or there is no room or no thread."
);

/// Converts an error to a `ValueError` or a subclass, like `prometheus_client`.
pub fn refused(error: quipu::Error) -> PyErr {
    if error.is_mismatch() {
        return MismatchError::new_err(error.to_string());
    }
    if error.is_of_segment() {
        return NoRoomError::new_err(error.to_string());
    }
    PyValueError::new_err(error.to_string())
}

/// Warns, once for each metric, that its new series are counted as one.
#[cold]
pub fn warn_overflow(py: Python<'_>, name: &str) -> PyResult<()> {
    let what = format!(
        "there is no room for more series of {name:?}; they are counted as one, with the label \
         quipu_overflow=\"true\": use fewer label values, shorter ones, or a higher limit"
    );
    let warn = py.import("quipu_metrics.segments")?.getattr("warn")?;
    warn.call1((what,)).map(drop)
}

/// Returns the error of counting in a metric with labels without giving any.
#[cold]
pub fn no_labels(kind: &str) -> PyErr {
    PyValueError::new_err(format!("{kind} metric is missing label values"))
}
