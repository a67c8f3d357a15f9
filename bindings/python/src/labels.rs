//! `labels(...)`: finds the child for some label values, or makes it.
//!
//! Children are cached by the tuple of their label values. Strings cache their hashes, so the hash
//! of a tuple is cheap, and finding a child costs less than making one.

use std::sync::atomic::{AtomicU32, Ordering};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use pyo3::{PyClass, PyTraverseError, PyTypeInfo, PyVisit};

/// The label names of a metric, and its cached children. A metric without labels has neither.
pub struct Labels {
    pub names: Vec<Py<PyString>>,
    /// The children by tuples of exactly `str`: an object of another type may be equal to a `str`
    /// and yet convert to another text.
    children: Py<PyDict>,
    /// The [`EPOCH`] in which the children were cached.
    epoch: AtomicU32,
}

/// Incremented when all cached children become invalid: after a fork, the parent process holds the
/// records of their series.
static EPOCH: AtomicU32 = AtomicU32::new(0);
/// The most children that are cached. When there are more, the cache is emptied; children are found
/// again by the labels of their series.
const MAX_CHILDREN: usize = 4096;

/// Makes every metric look up its children again: called in the child of a fork.
#[pyfunction]
pub fn forget_children() {
    EPOCH.fetch_add(1, Ordering::Relaxed);
}

impl Labels {
    pub fn new(py: Python<'_>, names: &[String]) -> Self {
        let names = names.iter().map(|name| PyString::intern(py, name).unbind()).collect();
        let epoch = AtomicU32::new(EPOCH.load(Ordering::Relaxed));
        Self { names, children: PyDict::new(py).unbind(), epoch }
    }

    /// Returns the child with these label values. `make` makes a missing one from the values as
    /// texts; `is_gone` returns whether the series of a child was removed.
    #[inline]
    pub fn child<'py, T: PyClass + PyTypeInfo>(
        &self,
        values: &Bound<'py, PyTuple>,
        named: Option<&Bound<'py, PyDict>>,
        is_gone: impl Fn(&Bound<'py, T>) -> bool,
        make: impl FnOnce(&Bound<'py, PyTuple>) -> PyResult<Bound<'py, T>>,
    ) -> PyResult<Bound<'py, T>> {
        let py = values.py();
        let texts;
        let is_plain = named.is_none()
            && values.len() == self.names.len()
            && !self.names.is_empty()
            && values.iter_borrowed().all(|value| value.is_exact_instance_of::<PyString>());
        let texts = if is_plain {
            values
        } else {
            texts = self.texts(values, named)?;
            &texts
        };
        let children = self.children.bind(py);
        if self.epoch.load(Ordering::Relaxed) == EPOCH.load(Ordering::Relaxed) {
            if let Some(found) = children.get_item(texts)? {
                // SAFETY: the dictionary is private, and holds only what `make` made. A program
                // that gets it from the garbage collector and changes it could break any object.
                let found = unsafe { found.cast_into_unchecked::<T>() };
                if !is_gone(&found) {
                    return Ok(found);
                }
            }
        } else {
            self.forget(py);
        }
        if children.len() >= MAX_CHILDREN {
            children.clear();
        }
        let made = make(texts)?;
        children.set_item(texts, &made)?;
        Ok(made)
    }

    /// Returns the values as texts, in the order of the label names.
    #[cold]
    pub fn texts<'py>(
        &self,
        values: &Bound<'py, PyTuple>,
        named: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let py = values.py();
        let Some(named) = named.filter(|named| !named.is_empty()) else {
            if values.len() != self.names.len() {
                return Err(PyValueError::new_err("Incorrect label count"));
            }
            let texts: Vec<_> = values.iter().map(|v| text(&v)).collect::<PyResult<_>>()?;
            return PyTuple::new(py, texts);
        };
        if !values.is_empty() {
            return Err(PyValueError::new_err("Can't pass both *args and **kwargs"));
        }
        let wrong = || PyValueError::new_err("Incorrect label names");
        if named.len() != self.names.len() {
            return Err(wrong());
        }
        let texts: Vec<_> = self
            .names
            .iter()
            .map(|name| text(&named.get_item(name)?.ok_or_else(wrong)?))
            .collect::<PyResult<_>>()?;
        PyTuple::new(py, texts)
    }

    /// Shows the children to the garbage collector, which clears their dictionary by itself.
    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.children)
    }

    /// Empties the cache.
    pub fn forget(&self, py: Python<'_>) {
        self.children.bind(py).clear();
        self.epoch.store(EPOCH.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// Returns `str(value)` as an object of exactly the type `str`.
fn text<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyString>> {
    let text = value.str()?;
    if text.is_exact_instance_of::<PyString>() {
        return Ok(text);
    }
    Ok(PyString::new(value.py(), &text.to_string_lossy()))
}

/// Calls `with` with the texts of a tuple. Lone surrogates, which are not UTF-8, are replaced.
pub fn with_texts<R>(values: &Bound<'_, PyTuple>, with: impl FnOnce(&[&str]) -> R) -> PyResult<R> {
    let texts: Vec<Bound<'_, PyString>> =
        values.iter().map(|value| Ok(value.cast_into::<PyString>()?)).collect::<PyResult<_>>()?;
    let texts: Vec<_> = texts.iter().map(|text| text.to_string_lossy()).collect();
    let texts: Vec<&str> = texts.iter().map(AsRef::as_ref).collect();
    Ok(with(&texts))
}
