//! A segment that the processes of an application share, and the functions that read it for a
//! scrape.

use std::collections::HashSet;
use std::path::PathBuf;

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use quipu::Registry;
use quipu::snapshot::Sink;
use quipu_segment::{Error, ErrorKind, Options, SetAside};

use crate::error::NoRoomError;
use crate::exposition;
use crate::samples::Lists;

/// A segment and its families.
#[pyclass(frozen, weakref, module = "quipu_metrics._quipu")]
pub struct Segment {
    registry: Registry,
    path: Option<PathBuf>,
}

/// The handle that a scrape uses to read one metric.
#[pyclass(frozen, module = "quipu_metrics._quipu")]
pub struct Source(pub quipu::snapshot::Source);

/// The minimum limit to try for private memory, in bytes of address space.
const MIN_LIMIT: u64 = 1 << 20;

#[pymethods]
impl Segment {
    /// Returns a segment in memory that this process and its children share. If the system cannot
    /// provide such memory, returns one in private memory, with the reason.
    #[staticmethod]
    fn anonymous(limit: u64) -> PyResult<(Self, Option<String>)> {
        // Acquire the resources of a process' first lock now, because there still is a fallback.
        let made = quipu_segment::Segment::anonymous(limit)
            .and_then(|segment| segment.process().map(|_| segment));
        match made {
            Ok(segment) => Ok((Self::new(segment, None), None)),
            Err(error) => Ok((Self::private(limit)?, Some(error.to_string()))),
        }
    }

    /// Returns a segment in private memory: the child of a fork gets a copy.
    #[staticmethod]
    fn private(mut limit: u64) -> PyResult<Self> {
        loop {
            match quipu_segment::Segment::private(limit) {
                Ok(segment) => return Ok(Self::new(segment, None)),
                Err(_) if limit / 2 >= MIN_LIMIT => limit /= 2,
                Err(error) => return Err(NoRoomError::new_err(error.to_string())),
            }
        }
    }

    /// Returns a segment in a file, which any process can open by its path. A file that cannot be
    /// read is renamed and replaced; the second value is then the reason and the new name. A new
    /// file gets these permission bits, and this group.
    #[staticmethod]
    fn open(
        path: PathBuf,
        limit: u64,
        mode: Option<u32>,
        group: Option<u32>,
    ) -> PyResult<(Self, Option<String>)> {
        let names = |error: &Error| is_unreadable(error).then(|| SetAside::names(&path));
        let mut options = Options::new().limit(limit).shared();
        if let Some(bits) = mode {
            options = options.mode(bits);
        }
        if let Some(group) = group {
            options = options.group(group);
        }
        let opened = options.open_or_replace(&path, names);
        let (segment, aside) = opened.map_err(cannot_open)?;
        let why = aside.map(|a| format!("{}; it was renamed to {}", a.error, a.name.display()));
        Ok((Self::new(segment, Some(path)), why))
    }

    /// The path of the segment's file; `None` if the segment is not in a file.
    #[getter]
    fn path(&self) -> Option<PathBuf> {
        self.path.clone()
    }

    /// Frees a name so that it can be registered again.
    fn unregister(&self, name: &str) -> bool {
        self.registry.unregister(name)
    }

    /// Returns the family of that name, with its variants, as a list.
    fn find<'py>(
        &self,
        py: Python<'py>,
        name: &str,
        created: bool,
    ) -> PyResult<Bound<'py, PyList>> {
        let mut lists = Lists::new(py, created);
        // A segment that contradicts itself was refused when it was opened.
        let _ = self.registry.visit_family(name, &mut lists);
        lists.finish()
    }

    /// The number of bytes in use.
    #[getter]
    fn used(&self) -> u64 {
        self.registry.segment().used()
    }
}

impl Segment {
    fn new(segment: quipu_segment::Segment, path: Option<PathBuf>) -> Self {
        Self { registry: Registry::from_segment(segment), path }
    }

    /// Returns the registry with the families.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }
}

/// The input of a scrape: the families of a segment except the hidden ones, followed by single
/// metrics.
pub struct Shown {
    registry: Option<Registry>,
    hidden: HashSet<String>,
    sources: Vec<quipu::snapshot::Source>,
}

impl Shown {
    fn new(
        segment: Option<&Bound<'_, Segment>>,
        hidden: HashSet<String>,
        sources: Vec<Bound<'_, Source>>,
    ) -> Self {
        let registry = segment.map(|segment| segment.get().registry.clone());
        let sources = sources.iter().map(|source| source.get().0.clone()).collect();
        Self { registry, hidden, sources }
    }

    /// Passes all families to a sink.
    pub fn visit(self, sink: &mut impl Sink) {
        let Self { registry, hidden, sources } = self;
        match registry {
            Some(registry) => {
                // A segment that contradicts itself was refused when it was opened.
                let _ = registry.visit_with(|name| !hidden.contains(name), sources, sink);
            }
            None => quipu::snapshot::Source::visit(sources, sink),
        }
    }
}

/// Writes families in one of the formats. `end` is true if no other output follows.
#[pyfunction]
pub fn expose<'py>(
    py: Python<'py>,
    segment: Option<&Bound<'py, Segment>>,
    hidden: HashSet<String>,
    sources: Vec<Bound<'py, Source>>,
    form: (String, String),
    end: bool,
) -> Bound<'py, PyBytes> {
    exposition::expose(py, Shown::new(segment, hidden, sources), (&form.0, &form.1), end)
}

/// Collects families as lists.
#[pyfunction]
pub fn collect<'py>(
    py: Python<'py>,
    segment: Option<&Bound<'py, Segment>>,
    hidden: HashSet<String>,
    sources: Vec<Bound<'py, Source>>,
    created: bool,
) -> PyResult<Bound<'py, PyList>> {
    let mut lists = Lists::new(py, created);
    Shown::new(segment, hidden, sources).visit(&mut lists);
    lists.finish()
}

fn cannot_open(error: Error) -> PyErr {
    PyOSError::new_err(error.to_string())
}

/// Returns whether this library can never read the file, so you must replace it.
fn is_unreadable(error: &Error) -> bool {
    error.is_damage() || matches!(error.kind(), ErrorKind::NotASegment | ErrorKind::Version { .. })
}
