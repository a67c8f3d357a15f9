//! The methods that programs call most: `labels`, `inc`, `dec`, `set` and `observe`.
//!
//! CPython passes the arguments of these methods as an array, and checks the class of the object.
//! pyo3 would read the array by a table of parameters, or into a tuple and a dictionary, check the
//! class again, and keep a count of nested calls: this takes longer than counting.

use std::ffi::{CStr, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use pyo3::exceptions::PyTypeError;
use pyo3::panic::PanicException;
use pyo3::prelude::*;
use pyo3::pyclass::boolean_struct::True;
use pyo3::types::{PyFloat, PyInt, PyString, PyTuple};
use pyo3::{PyClass, ffi};

/// The arguments of a call.
#[derive(Clone, Copy)]
pub struct Arguments<'a, 'py> {
    pub py: Python<'py>,
    /// The positional arguments, followed by the named ones.
    pub values: &'a [Bound<'py, PyAny>],
    /// The names of the named arguments.
    pub names: Option<Borrowed<'a, 'py, PyTuple>>,
}

impl<'a, 'py> Arguments<'a, 'py> {
    /// Returns the positional arguments.
    pub fn positional(self) -> &'a [Bound<'py, PyAny>] {
        let named = self.names.map_or(0, |names| names.len());
        &self.values[..self.values.len() - named]
    }

    /// Returns the named arguments with their names.
    pub fn named(self) -> impl Iterator<Item = (Bound<'py, PyAny>, &'a Bound<'py, PyAny>)> {
        let names = self.names.into_iter().flat_map(|names| names.to_owned().into_iter());
        names.zip(&self.values[self.positional().len()..])
    }

    /// Returns the arguments for these parameters.
    #[cold]
    fn read(
        self,
        method: &str,
        parameters: &[&str],
    ) -> PyResult<Vec<Option<&'a Bound<'py, PyAny>>>> {
        let wrong = |what: String| Err(PyTypeError::new_err(format!("{method}() {what}")));
        let (most, given) = (parameters.len(), self.positional().len());
        if given > most {
            return wrong(format!("takes {most} positional arguments but {given} were given"));
        }
        let mut found: Vec<_> = self.positional().iter().map(Some).collect();
        found.resize(most, None);
        for (name, value) in self.named() {
            let name = name.cast::<PyString>()?.to_string_lossy();
            let Some(index) = parameters.iter().position(|parameter| *parameter == name) else {
                return wrong(format!("got an unexpected keyword argument '{name}'"));
            };
            if found[index].replace(value).is_some() {
                return wrong(format!("got multiple values for argument '{name}'"));
            }
        }
        Ok(found)
    }
}

/// A method of a class.
pub trait Method {
    type Class: PyClass<Frozen = True> + Sync;
    const NAME: &'static CStr;
    /// The signature and the documentation, in the form that `inspect` reads.
    const DOC: &'static CStr;

    /// Handles the common case; returns `None` to leave the call to [`Method::call`]. This must run
    /// no Python code.
    fn quick<'py>(
        this: &Bound<'py, Self::Class>,
        arguments: Arguments<'_, 'py>,
    ) -> Option<Bound<'py, PyAny>>;

    /// Handles any case.
    fn call<'py>(
        this: &Bound<'py, Self::Class>,
        arguments: Arguments<'_, 'py>,
    ) -> PyResult<Bound<'py, PyAny>>;
}

/// Adds a method to its class.
pub fn add<M: Method>(py: Python<'_>) -> PyResult<()> {
    let class = py.get_type::<M::Class>();
    // The class keeps the definition until the end of the process, because classes of native
    // modules live until then.
    let definition = Box::leak(Box::new(ffi::PyMethodDef {
        ml_name: M::NAME.as_ptr(),
        ml_meth: ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords: method::<M> },
        ml_flags: (ffi::METH_FASTCALL | ffi::METH_KEYWORDS) as c_int,
        ml_doc: M::DOC.as_ptr(),
    }));
    // SAFETY: the definition lives forever, and its function matches the signature of its flags.
    // The call returns a new reference, or null with an exception.
    let descriptor = unsafe {
        let descriptor = ffi::PyDescr_NewMethod(class.as_type_ptr(), definition);
        Bound::from_owned_ptr_or_err(py, descriptor)?
    };
    class.setattr(PyString::new(py, &M::NAME.to_string_lossy()), descriptor)
}

/// The function that CPython calls.
///
/// # Safety
///
/// The same as for a function of a `PyMethodDef` with the flags `METH_FASTCALL | METH_KEYWORDS`, in
/// a class that is `M::Class`.
unsafe extern "C" fn method<M: Method>(
    this: *mut ffi::PyObject,
    values: *const *mut ffi::PyObject,
    positional: ffi::Py_ssize_t,
    names: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: the interpreter calls while attached. It has checked the class of the object, and
    // keeps all of these objects for the duration of the call. The names are a tuple or null. A
    // `Bound` is one pointer. The array can be null if it is empty.
    let (this, arguments) = unsafe {
        let py = Python::assume_attached();
        let this = Borrowed::from_ptr(py, this).cast_unchecked::<M::Class>();
        let names =
            Borrowed::from_ptr_or_opt(py, names).map(|names| names.cast_unchecked::<PyTuple>());
        let count = positional as usize + names.map_or(0, |names| names.len());
        let values = match count {
            0 => &[],
            _ => std::slice::from_raw_parts(values.cast::<Bound<'_, PyAny>>(), count),
        };
        (this, Arguments { py, values, names })
    };
    match M::quick(&this, arguments) {
        Some(result) => result.into_ptr(),
        None => any_case::<M>(&this, arguments),
    }
}

#[cold]
fn any_case<'py, M: Method>(
    this: &Bound<'py, M::Class>,
    arguments: Arguments<'_, 'py>,
) -> *mut ffi::PyObject {
    let run = || {
        let result = catch_unwind(AssertUnwindSafe(|| M::call(this, arguments)));
        let panicked = || PanicException::new_err("quipu panicked: please report it");
        match result.unwrap_or_else(|_| Err(panicked())) {
            Ok(value) => value.into_ptr(),
            Err(error) => {
                error.restore(arguments.py);
                ptr::null_mut()
            }
        }
    };
    // This tells pyo3 that the thread is attached, so it releases dropped objects at once. Unlike
    // `attach`, this can be used in the finalizers that run when the interpreter ends. SAFETY: the
    // interpreter made this call, so the thread is attached.
    unsafe { Python::attach_unchecked(|_| run()) }
}

/// Returns a number of exactly the types `float` or `int`. The general conversion takes 20 ns more
/// for an `int`, because it makes a `float` first.
#[inline]
fn number(value: &Bound<'_, PyAny>) -> Option<f64> {
    if let Ok(float) = value.cast_exact::<PyFloat>() {
        return Some(float.value());
    }
    let int = value.cast_exact::<PyInt>().ok()?;
    // SAFETY: it is an `int`.
    let number = unsafe { ffi::PyLong_AsDouble(int.as_ptr()) };
    if number == -1.0 {
        // Either the number is -1, or it is too large.
        drop(PyErr::take(value.py()));
        return None;
    }
    Some(number)
}

/// A method that takes a number, and optionally an exemplar.
pub trait Counting {
    type Class: PyClass<Frozen = True> + Sync;
    const NAME: &'static CStr;
    const DOC: &'static CStr;
    /// The names of the parameters: the number, then the exemplar if the method takes one.
    const PARAMETERS: &'static [&'static str];
    /// The default of the number.
    const DEFAULT: Option<f64>;

    /// Counts. If this fails for another reason than the exemplar, the number was not counted.
    fn count(
        metric: &Self::Class,
        amount: f64,
        exemplar: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()>;
}

impl<C: Counting> Method for C {
    type Class = C::Class;
    const NAME: &'static CStr = C::NAME;
    const DOC: &'static CStr = C::DOC;

    #[inline]
    fn quick<'py>(
        this: &Bound<'py, Self::Class>,
        arguments: Arguments<'_, 'py>,
    ) -> Option<Bound<'py, PyAny>> {
        if arguments.names.is_some() {
            return None;
        }
        // Two calls, because the first passes a constant.
        let result = match arguments.values {
            [] => C::count(this.get(), C::DEFAULT?, None),
            [amount] => C::count(this.get(), number(amount)?, None),
            _ => return None,
        };
        result.ok()?;
        Some(arguments.py.None().into_bound(arguments.py))
    }

    fn call<'py>(
        this: &Bound<'py, Self::Class>,
        arguments: Arguments<'_, 'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let method = C::NAME.to_string_lossy();
        let found = arguments.read(&method, C::PARAMETERS)?;
        let amount = match (found[0], C::DEFAULT) {
            (Some(amount), _) => amount.extract()?,
            (None, Some(amount)) => amount,
            (None, None) => {
                let parameter = C::PARAMETERS[0];
                let what =
                    format!("{method}() missing 1 required positional argument: '{parameter}'");
                return Err(PyTypeError::new_err(what));
            }
        };
        let exemplar = found.get(1).copied().flatten().filter(|exemplar| !exemplar.is_none());
        C::count(this.get(), amount, exemplar)?;
        Ok(arguments.py.None().into_bound(arguments.py))
    }
}
