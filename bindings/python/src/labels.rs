//! `labels(...)`: finds the child for some label values, or makes it.
//!
//! Children are cached by the label values of the call, if each is exactly a `str` or an `int`,
//! because these are immutable, equal values give equal strings, and hashing and comparing them
//! runs no Python code. In most calls, a value is the same object as before, and a `str` caches its
//! hash, so finding a child takes no conversion and no allocation.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU32, Ordering};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyInt, PyString, PyTuple};
use pyo3::{PyTraverseError, PyVisit, ffi};

use crate::fastcall::Arguments;

/// The label names of a metric, and its cached children. Both are empty for a metric without
/// labels.
pub struct Labels {
    pub names: Vec<Py<PyString>>,
    children: UnderGil<Children>,
}

/// Incremented when all cached children become invalid. This happens after a fork, because the
/// parent process holds the records of their series.
static EPOCH: AtomicU32 = AtomicU32::new(0);
/// The maximum number of entries of a cache. A fuller cache is emptied; children can be found again
/// by the labels of their series. So a cache keeps at most this number of objects alive for each
/// label.
const MAX_CHILDREN: usize = 4096;

/// Makes every metric look up its children again: called in the child of a fork.
#[pyfunction]
pub fn forget_children() {
    EPOCH.fetch_add(1, Ordering::Relaxed);
}

impl Labels {
    pub fn new(py: Python<'_>, names: &[String]) -> Self {
        let names = names.iter().map(|name| PyString::intern(py, name).unbind()).collect();
        Self { names, children: UnderGil::default() }
    }

    /// Returns the cached child for the label values of a call.
    #[inline]
    pub fn find<'py>(&self, arguments: Arguments<'_, 'py>) -> Option<Bound<'py, PyAny>> {
        self.cached(arguments.py, self.in_order(arguments)?)
    }

    /// Returns the label values of a call if they are given in the order of the label names.
    #[inline]
    fn in_order<'a, 'py>(&self, arguments: Arguments<'a, 'py>) -> Option<&'a [Bound<'py, PyAny>]> {
        let are_in_order = match arguments.names {
            None => true,
            // The names in a call are interned, as ours are.
            Some(names) => {
                names.len() == arguments.values.len()
                    && names.iter_borrowed().zip(&self.names).all(|(a, b)| a.is(b))
            }
        };
        are_in_order.then_some(arguments.values)
    }

    /// Returns the cached child for these values.
    #[inline]
    pub fn cached<'py>(
        &self,
        py: Python<'py>,
        values: &[Bound<'py, PyAny>],
    ) -> Option<Bound<'py, PyAny>> {
        let hash = hash(values)?;
        self.children.with(py, |children| {
            let entry = children.entries.get(children.index(hash, values))?.as_ref()?;
            let is_valid = children.epoch == EPOCH.load(Ordering::Relaxed);
            is_valid.then(|| entry.child.bind(py).clone())
        })
    }

    /// Caches a child for these values, unless one of them is of another type than `str` and `int`.
    pub fn cache<'py>(&self, values: &[Bound<'py, PyAny>], child: &Bound<'py, PyAny>) {
        let Some(hash) = hash(values) else { return };
        // Dropping a child can run any code, so the child is dropped when the cache is consistent
        // again.
        let dropped = self.children.with(child.py(), |children| {
            let epoch = EPOCH.load(Ordering::Relaxed);
            let is_full = children.count >= MAX_CHILDREN || children.epoch != epoch;
            let all = is_full.then(|| std::mem::take(children));
            children.epoch = epoch;
            (all, children.insert(hash, values, child))
        });
        drop(dropped);
    }

    /// Returns the label values of a call as strings, in the order of the label names; `None` if
    /// they are strings in this order already.
    #[cold]
    pub fn texts<'py>(
        &self,
        arguments: Arguments<'_, 'py>,
    ) -> PyResult<Option<Vec<Bound<'py, PyAny>>>> {
        let values = arguments.positional();
        let named = arguments.values.len() - values.len();
        if named != 0 && !values.is_empty() {
            return Err(PyValueError::new_err("Can't pass both *args and **kwargs"));
        }
        if arguments.values.len() != self.names.len() {
            let what = if named == 0 { "Incorrect label count" } else { "Incorrect label names" };
            return Err(PyValueError::new_err(what));
        }
        if let Some(values) = self.in_order(arguments) {
            if values.iter().all(|value| value.is_exact_instance_of::<PyString>()) {
                return Ok(None);
            }
            return values.iter().map(text).collect::<PyResult<_>>().map(Some);
        }
        let named = PyDict::new(arguments.py);
        for (name, value) in arguments.named() {
            named.set_item(name, value)?;
        }
        let wrong = || PyValueError::new_err("Incorrect label names");
        let text_of = |name| text(&named.get_item(name)?.ok_or_else(wrong)?);
        self.names.iter().map(text_of).collect::<PyResult<_>>().map(Some)
    }

    /// Shows the children to the garbage collector.
    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        // If the children are in use, the collector sees fewer references, and then frees nothing.
        let Ok(children) = self.children.0.try_borrow() else { return Ok(()) };
        children.entries.iter().flatten().try_for_each(|entry| visit.call(&entry.child))
    }

    /// Empties the cache.
    pub fn forget(&self, py: Python<'_>) {
        drop(self.children.with(py, std::mem::take));
    }
}

/// A hash table with linear probing. You can replace an entry or remove all entries, but you cannot
/// remove a single entry.
#[derive(Default)]
struct Children {
    /// The entries. At most three quarters of them are in use. Their number is a power of two, or
    /// zero.
    entries: Box<[Option<Entry>]>,
    count: usize,
    /// The [`EPOCH`] of the children.
    epoch: u32,
}

/// A child, and the label values of its key.
struct Entry {
    /// The hash of the values.
    hash: usize,
    values: Box<[Py<PyAny>]>,
    child: Py<PyAny>,
}

impl Children {
    /// Returns the index of the entry with these values, or of the free one where it belongs. This
    /// index is out of bounds if there are no entries.
    #[inline]
    fn index(&self, hash: usize, values: &[Bound<'_, PyAny>]) -> usize {
        let mask = self.entries.len().wrapping_sub(1);
        let mut index = hash & mask;
        while let Some(Some(entry)) = self.entries.get(index)
            && !(entry.hash == hash && are_same(&entry.values, values))
        {
            index = (index + 1) & mask;
        }
        index
    }

    /// Inserts a child, and returns the entry that it replaces.
    fn insert(
        &mut self,
        hash: usize,
        values: &[Bound<'_, PyAny>],
        child: &Bound<'_, PyAny>,
    ) -> Option<Entry> {
        if self.count >= self.entries.len() / 4 * 3 {
            self.grow();
        }
        let index = self.index(hash, values);
        let values = values.iter().map(|value| value.clone().unbind()).collect();
        let replaced =
            self.entries[index].replace(Entry { hash, values, child: child.clone().unbind() });
        self.count += usize::from(replaced.is_none());
        replaced
    }

    fn grow(&mut self) {
        let length = (self.entries.len() * 2).max(8);
        let more = std::iter::repeat_with(|| None).take(length).collect();
        for entry in std::mem::replace(&mut self.entries, more).into_iter().flatten() {
            let mut index = entry.hash & (length - 1);
            while self.entries[index].is_some() {
                index = (index + 1) & (length - 1);
            }
            self.entries[index] = Some(entry);
        }
    }
}

/// Returns the hash of these values; `None` if one is of another type than `str` and `int`.
#[inline]
fn hash(values: &[Bound<'_, PyAny>]) -> Option<usize> {
    // The multiplier is the one in rustc's FxHash. The low bits, which choose an entry, depend only
    // on the low bits of the values, so the last step mixes in the high bits.
    let combined = values.iter().try_fold(0_u64, |hash, value| {
        let is_known =
            value.is_exact_instance_of::<PyString>() || value.is_exact_instance_of::<PyInt>();
        let next = if is_known { value.hash().ok()? } else { return None };
        Some((hash.rotate_left(5) ^ next as u64).wrapping_mul(0x517c_c1b7_2722_0a95))
    })?;
    Some((combined ^ combined >> 32) as usize)
}

/// Returns whether these are the same label values. All are exactly of the types `str` and `int`.
#[inline]
fn are_same(kept: &[Py<PyAny>], values: &[Bound<'_, PyAny>]) -> bool {
    kept.len() == values.len()
        && kept
            .iter()
            .zip(values)
            .all(|(kept, value)| kept.is(value) || is_equal(kept.bind(value.py()), value))
}

fn is_equal(a: &Bound<'_, PyAny>, b: &Bound<'_, PyAny>) -> bool {
    match (a.is_exact_instance_of::<PyString>(), b.is_exact_instance_of::<PyString>()) {
        // SAFETY: both are `str`, so the comparison cannot fail.
        (true, true) => unsafe { ffi::PyUnicode_Compare(a.as_ptr(), b.as_ptr()) == 0 },
        // At the limit of recursion, this fails. Then the child can still be found by its series.
        (false, false) => a.eq(b).unwrap_or(false),
        _ => false,
    }
}

/// Returns `str(value)` as an object of exactly the type `str`.
fn text<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let text = value.str()?;
    if text.is_exact_instance_of::<PyString>() {
        return Ok(text.into_any());
    }
    Ok(PyString::new(value.py(), &text.to_string_lossy()).into_any())
}

/// Calls `with` with the strings of a tuple. Lone surrogates, which are not UTF-8, are replaced.
pub fn with_texts<R>(values: &Bound<'_, PyTuple>, with: impl FnOnce(&[&str]) -> R) -> PyResult<R> {
    let texts: Vec<Bound<'_, PyString>> =
        values.iter().map(|value| Ok(value.cast_into::<PyString>()?)).collect::<PyResult<_>>()?;
    let texts: Vec<_> = texts.iter().map(|text| text.to_string_lossy()).collect();
    let texts: Vec<&str> = texts.iter().map(AsRef::as_ref).collect();
    Ok(with(&texts))
}

/// A value that the GIL protects, because a mutex would take 10 ns.
#[derive(Default)]
struct UnderGil<T>(RefCell<T>);

// SAFETY: the value is used only in `with`, which requires the token of an attached thread, and by
// the garbage collector. The module declares that it requires the GIL, so at most one thread is
// attached; this thread stays attached during `with`.
unsafe impl<T: Send> Sync for UnderGil<T> {}

impl<T> UnderGil<T> {
    /// Calls `with` with the value. This closure must not run Python code, which could call this
    /// method again, or release the GIL.
    #[inline]
    fn with<R>(&self, _: Python<'_>, with: impl FnOnce(&mut T) -> R) -> R {
        with(&mut self.0.borrow_mut())
    }
}
