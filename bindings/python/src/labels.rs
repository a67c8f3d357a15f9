//! `labels(...)`: from the arguments to the child that is bound to their series.
//!
//! Children are kept by the tuple of their label values. A tuple's hash is made of those that its
//! texts have cached, so that finding a child costs less than making one.

use std::sync::atomic::{AtomicU32, Ordering};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use pyo3::{PyClass, PyTraverseError, PyTypeInfo, PyVisit};

/// The label names of a metric, and its children. A metric without labels has none.
pub struct Labels {
    pub names: Vec<Py<PyString>>,
    /// By tuples of texts, of exactly that type: what is equal to a text but of another type may
    /// have another text.
    children: Py<PyDict>,
    /// The [`EPOCH`] that they are of.
    epoch: AtomicU32,
}

/// Changes when no child that is kept is right any more: in a child of a fork, a series' record is
/// held by its parent.
static EPOCH: AtomicU32 = AtomicU32::new(0);
/// When there are more children, all are forgotten: they are found again by the series' labels.
const MOST_CHILDREN: usize = 4096;

/// Makes every metric find its children anew: called in a child of a fork.
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

    /// The child of these values; `make` makes one that is not there, of the values as texts, and
    /// `is_gone` tells of one whether its series was removed.
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
                // SAFETY: the dictionary is given to nobody, and only what `make` made is put into it.
                // Who takes it out of the collector's lists to change it may break any object.
                let found = unsafe { found.cast_into_unchecked::<T>() };
                if !is_gone(&found) {
                    return Ok(found);
                }
            }
        } else {
            self.forget(py);
        }
        if children.len() >= MOST_CHILDREN {
            children.clear();
        }
        let made = make(texts)?;
        children.set_item(texts, &made)?;
        Ok(made)
    }

    /// The values in the order of the names, as texts.
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

    /// Shows the children to the collector of garbage, which empties their dictionary by itself.
    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.children)
    }

    /// Forgets all children.
    pub fn forget(&self, py: Python<'_>) {
        self.children.bind(py).clear();
        self.epoch.store(EPOCH.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// `str(value)`, as exactly a `str`.
fn text<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyString>> {
    let text = value.str()?;
    if text.is_exact_instance_of::<PyString>() {
        return Ok(text);
    }
    Ok(PyString::new(value.py(), &text.to_string_lossy()))
}

/// Calls `with` with the texts of a tuple. What is no UTF-8, a lone surrogate, is replaced.
pub fn with_texts<R>(values: &Bound<'_, PyTuple>, with: impl FnOnce(&[&str]) -> R) -> PyResult<R> {
    let texts: Vec<Bound<'_, PyString>> =
        values.iter().map(|value| Ok(value.cast_into::<PyString>()?)).collect::<PyResult<_>>()?;
    let texts: Vec<_> = texts.iter().map(|text| text.to_string_lossy()).collect();
    let texts: Vec<&str> = texts.iter().map(AsRef::as_ref).collect();
    Ok(with(&texts))
}
