//! The flight recorder of a segment. Its thread belongs to the library: this thread never runs
//! Python code, and never waits for the GIL.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;

use crate::error::RecordingError;
use crate::segment::Segment;

/// The metrics to record, and the memory limit.
#[pyclass(frozen, module = "quipu_metrics._quipu")]
pub struct RecordingOptions(quipu::RecordingOptions);

#[pymethods]
impl RecordingOptions {
    #[new]
    fn new(interval: f64, bytes: u64, series: usize, families: Vec<String>) -> PyResult<Self> {
        let interval = Duration::try_from_secs_f64(interval).map_err(|_| {
            RecordingError::new_err(format!(
                "an interval of {interval} seconds for the flight recorder is out of range: use \
                 0.001 to 3600"
            ))
        })?;
        let options = quipu::RecordingOptions::new();
        let options =
            options.interval(interval).max_bytes(bytes).max_series(series).families(families);
        options.check().map_err(RecordingError::new_err)?;
        Ok(Self(options))
    }
}

/// A thread that records, until it is closed.
#[pyclass(frozen, module = "quipu_metrics._quipu")]
pub struct Recording {
    /// `None` once the recording is closed. This mutex is locked only while holding the GIL,
    /// because the forking thread holds the GIL, too.
    running: Mutex<Option<quipu::Recording>>,
}

#[pymethods]
impl Recording {
    #[new]
    fn new(segment: &Bound<'_, Segment>, options: &Bound<'_, RecordingOptions>) -> PyResult<Self> {
        let (registry, options) = (segment.get().registry(), &options.get().0);
        // Releases the GIL, because another process can hold the lock under which the recording is
        // made.
        let recording = segment.py().detach(|| registry.record(options)).map_err(refused)?;
        Ok(Self { running: Mutex::new(Some(recording)) })
    }

    /// Ends the thread permanently.
    fn close(&self, py: Python<'_>) {
        let recording = self.running().take();
        // Releases the GIL, because the thread ends only after its tick.
        py.detach(|| drop(recording));
    }

    /// Ends the thread until `resume`. Returns whether it has ended.
    fn pause(&self) -> bool {
        self.running().as_mut().is_none_or(|recording| recording.pause().is_ok())
    }

    /// Starts the thread again after a pause, and in a child of a fork.
    fn resume(&self) -> PyResult<()> {
        self.running().as_mut().map_or(Ok(()), quipu::Recording::resume).map_err(refused)
    }

    /// Whether this process writes, and not another one that shares the file.
    #[getter]
    fn is_writing(&self) -> bool {
        self.running().as_ref().is_some_and(quipu::Recording::is_writing)
    }
}

impl Recording {
    fn running(&self) -> MutexGuard<'_, Option<quipu::Recording>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn refused(error: quipu::Error) -> PyErr {
    RecordingError::new_err(error.to_string())
}
