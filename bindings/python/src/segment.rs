//! Where the numbers are: a segment that the processes of an application share; and what a scrape
//! reads there.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};
use quipu::Registry;
use quipu::snapshot::Sink;
use quipu_segment::{Error, ErrorKind, Options};

use crate::error::NoRoomError;
use crate::exposition;
use crate::samples::Lists;

/// A segment, and the families in it.
#[pyclass(frozen, weakref, module = "quipu._quipu")]
pub struct Segment {
    registry: Registry,
    path: Option<PathBuf>,
}

/// What a scrape reads of one metric.
#[pyclass(frozen, module = "quipu._quipu")]
pub struct Source(pub quipu::snapshot::Source);

/// The least address range that private memory is tried with.
const LEAST_LIMIT: u64 = 1 << 20;

#[pymethods]
impl Segment {
    /// A segment in memory that this process and its children share; or in private memory, where
    /// the system has no such memory, or gives no more of it, with the reason.
    #[staticmethod]
    fn anonymous(limit: u64) -> PyResult<(Self, Option<String>)> {
        // What a process takes on its first use of a lock is taken now, when there is a way out.
        let made = quipu_segment::Segment::anonymous(limit)
            .and_then(|segment| segment.process().map(|_| segment));
        match made {
            Ok(segment) => Ok((Self::new(segment, None), None)),
            Err(error) => Ok((Self::private(limit)?, Some(error.to_string()))),
        }
    }

    /// A segment in private memory: a child has a copy.
    #[staticmethod]
    fn private(mut limit: u64) -> PyResult<Self> {
        loop {
            match quipu_segment::Segment::private(limit) {
                Ok(segment) => return Ok(Self::new(segment, None)),
                Err(_) if limit / 2 >= LEAST_LIMIT => limit /= 2,
                Err(error) => return Err(NoRoomError::new_err(error.to_string())),
            }
        }
    }

    /// A segment in a file, which every process may open that is given its name. A file that cannot
    /// be read is set aside, and said to be.
    #[staticmethod]
    fn open(path: PathBuf, limit: u64) -> PyResult<(Self, Option<String>)> {
        let names = |error: &Error| is_unreadable(error).then(|| names_aside(&path));
        let opened = Options::new().limit(limit).shared().open_or_replace(&path, names);
        let (segment, aside) = opened.map_err(cannot_open)?;
        let why = aside.map(|aside| format!("{}; now it is {}", aside.error, aside.name.display()));
        Ok((Self::new(segment, Some(path)), why))
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

    /// The family of that name as a list of none or one.
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

    /// The bytes in use.
    #[getter]
    fn used(&self) -> u64 {
        self.registry.segment().used()
    }
}

impl Segment {
    fn new(segment: quipu_segment::Segment, path: Option<PathBuf>) -> Self {
        Self { registry: Registry::on(segment), path }
    }

    /// The families.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }
}

/// What a scrape reads: the families of a segment but for those that are not to be shown, and then
/// others one by one.
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

    /// Gives all to a sink.
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

/// Families in one of the formats. `end` says whether nothing comes after it.
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

/// Families as lists.
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

/// Whether the file is none that this library can read, now or later.
fn is_unreadable(error: &Error) -> bool {
    error.is_damage() || matches!(error.kind(), ErrorKind::NotASegment | ErrorKind::Version { .. })
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
