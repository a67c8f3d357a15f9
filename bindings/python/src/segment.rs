//! Where the numbers are: a segment that the processes of an application share.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use pyo3::{PyTraverseError, PyVisit};
use quipu::Registry;
use quipu_segment::{Error, Flaw, Options};

use crate::exposition;
use crate::samples::Lists;

/// A segment, and the families in it.
#[pyclass(frozen, weakref, module = "quipu._quipu")]
pub struct Segment {
    registry: Registry,
    path: Option<PathBuf>,
    /// Gauges whose values are asked for: here, so that they live as long as the segment does.
    #[pyo3(get)]
    _functions: Py<PyDict>,
}

#[pymethods]
impl Segment {
    /// A segment in memory that this process and its children share; or in private memory, where
    /// the system has no such memory, with the reason.
    #[staticmethod]
    fn anonymous(py: Python<'_>, limit: u64) -> PyResult<(Self, Option<String>)> {
        let (segment, why) = match quipu_segment::Segment::anonymous(limit) {
            Ok(segment) => (segment, None),
            Err(error) => match quipu_segment::Segment::private(limit) {
                Ok(segment) => {
                    let why = format!("{error}; the numbers are of each process' own");
                    (segment, Some(why))
                }
                Err(error) => return Err(PyValueError::new_err(error.to_string())),
            },
        };
        Ok((Self::new(py, segment, None), why))
    }

    /// A segment in a file, which every process may open that is given its name. A file that cannot
    /// be read is set aside, and said to be.
    #[staticmethod]
    fn open(py: Python<'_>, path: PathBuf, limit: u64) -> PyResult<(Self, Option<String>)> {
        let options = || Options::new().limit(limit).shared().open_or_create(&path);
        let (segment, why) = match options() {
            Ok(segment) => (segment, None),
            Err(error) if is_unreadable(&error) => {
                // Where another process was quicker, its file is there by now.
                let aside = quipu_segment::Segment::set_aside(&path, names_aside(&path));
                let segment = options().map_err(cannot_open)?;
                (segment, aside.ok().map(|name| format!("{error}; now it is {}", name.display())))
            }
            Err(error) => return Err(cannot_open(error)),
        };
        Ok((Self::new(py, segment, Some(path)), why))
    }

    /// The file.
    #[getter]
    fn path(&self) -> Option<PathBuf> {
        self.path.clone()
    }

    /// Frees a name, so that it can be registered again.
    fn unregister(&self, name: &str) -> bool {
        self.registry.unregister(name)
    }

    /// Everything in one of the formats, but for the families that are not to be shown.
    #[pyo3(signature = (format, escaping, hidden, end = true))]
    fn expose<'py>(
        &self,
        py: Python<'py>,
        format: &str,
        escaping: &str,
        hidden: HashSet<String>,
        end: bool,
    ) -> Bound<'py, PyBytes> {
        exposition::expose(py, self, (format, escaping), hidden, end)
    }

    /// The families, or the one of that name, as lists.
    #[pyo3(signature = (name = None, created = false))]
    fn collect<'py>(
        &self,
        py: Python<'py>,
        name: Option<String>,
        created: bool,
    ) -> PyResult<Bound<'py, PyList>> {
        let mut lists = Lists::new(py, name.clone(), created);
        // A segment that contradicts itself was refused when it was opened.
        let _ = match name {
            Some(name) => self.registry.visit_family(&name, &mut lists).map(drop),
            None => self.registry.visit(&mut lists),
        };
        lists.finish()
    }

    /// The bytes in use.
    #[getter]
    fn used(&self) -> u64 {
        self.registry.segment().used()
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self._functions)
    }
}

impl Segment {
    fn new(py: Python<'_>, segment: quipu_segment::Segment, path: Option<PathBuf>) -> Self {
        Self { registry: Registry::on(segment), path, _functions: PyDict::new(py).unbind() }
    }

    /// The families.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }
}

fn cannot_open(error: Error) -> PyErr {
    pyo3::exceptions::PyOSError::new_err(error.to_string())
}

/// Whether the file is none that this library can read, now or later.
fn is_unreadable(error: &Error) -> bool {
    error.is_damage() || matches!(error.flaw(), Flaw::NotASegment | Flaw::Version { .. })
}

/// The names that a file may get when it is set aside.
fn names_aside(path: &Path) -> impl Iterator<Item = PathBuf> {
    let path = path.to_owned();
    (1..=100).map(move |i| {
        let mut name = path.clone().into_os_string();
        name.push(format!(".aside-{i}"));
        PathBuf::from(name)
    })
}
