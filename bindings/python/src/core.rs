//! The common part of all metrics: the family, the labels, and the series that a metric is bound
//! to. The macro `metric!` implements the methods that all classes share.

use std::ffi::CStr;
use std::marker::PhantomData;
use std::sync::OnceLock;

use pyo3::PyClass;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple, PyType};
use pyo3::{PyTraverseError, PyVisit};
use quipu::binding::WithSeries;
use quipu::label::Values;
use quipu::{Description, Family, Instrument};

use crate::error::{self, refused};
use crate::fastcall::{self, Arguments};
use crate::labels::{Labels, with_texts};
use crate::segment::{Segment, Source};

/// An instrument that knows whether its series was removed.
pub trait Held: Instrument {
    /// Returns whether the series was removed, in which case its counts are no longer shown.
    fn is_removed(&self) -> bool;
}

impl<I: Instrument> Held for WithSeries<I> {
    #[inline]
    fn is_removed(&self) -> bool {
        self.series.is_removed()
    }
}

impl Held for quipu::ProcessGauge {
    #[inline]
    fn is_removed(&self) -> bool {
        self.is_removed()
    }
}

/// A family whose label values are known only at run time.
type Many<I> = Family<I, Values<'static>>;

/// The state of a Python object. It is empty until `__init__` has run, and a subclass can call this
/// late or never. No Python code runs while the state is set, so no other thread waits for it, nor
/// does the child of a fork.
pub type Slot<I> = OnceLock<Core<I>>;

/// A metric: a parent, whose series carry labels; one of its children; or a metric without labels.
pub struct Core<I: Held> {
    /// The instrument of its series, or `None` for a parent.
    pub bound: Option<I>,
    labels: Labels,
    origin: Origin<I>,
}

/// The origin of a metric.
enum Origin<I: Held> {
    /// The program made the metric.
    Segment {
        segment: Py<Segment>,
        family: Many<I>,
        source: quipu::snapshot::Source,
        help: Py<PyAny>,
        unit: String,
    },
    /// The metric is a child.
    Parent { parent: Py<PyAny>, values: Py<PyTuple> },
}

/// The arguments that create a metric.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Made<'py> {
    segment: Bound<'py, Segment>,
    name: String,
    help: Bound<'py, PyAny>,
    unit: String,
    labelnames: Vec<String>,
    /// Whether this is the one metric of that name in the segment. Other processes can find such a
    /// metric by its name.
    is_named: bool,
}

impl Made<'_> {
    /// Returns the description. It allows any name that `prometheus_client` allows. The metric is
    /// not striped, because the GIL makes the threads of a process count one after the other.
    fn description(&self) -> PyResult<Description> {
        // Like in `prometheus_client`, this can be any object, such as a lazily translated string.
        let help = if self.help.is_none() {
            String::new()
        } else {
            self.help.str()?.to_string_lossy().into()
        };
        let description = Description::new(self.name.clone(), help)
            .unit(self.unit.clone())
            .labels(self.labelnames.clone())
            .striped(false)
            .verbatim();
        Ok(if self.is_named { description } else { description.apart() })
    }
}

impl<I: Held + 'static> Core<I> {
    /// Makes a metric.
    pub fn made(
        made: Made<'_>,
        describe: impl FnOnce(Description) -> Description,
    ) -> PyResult<Self> {
        let py = made.segment.py();
        let registry = made.segment.get().registry();
        let description = describe(made.description()?);
        let family: Many<I> = registry.register(description).map_err(refused)?;
        let source = family.source().map_err(refused)?;
        let bound = made.labelnames.is_empty().then(|| family.bind(&Values(&[])));
        let labels = Labels::new(py, &made.labelnames);
        let Made { segment, help, unit, .. } = made;
        let (segment, help) = (segment.unbind(), help.unbind());
        let origin = Origin::Segment { segment, family, source, help, unit };
        Ok(Self { bound, labels, origin })
    }

    /// Makes the child of a parent.
    fn of_parent(parent: &Bound<'_, PyAny>, core: &Self, values: Py<PyTuple>) -> PyResult<Self> {
        let py = parent.py();
        let Origin::Segment { family, .. } = &core.origin else {
            return Err(PyValueError::new_err("a child has no children"));
        };
        let before = family.overflowed();
        let bound = with_texts(values.bind(py), |texts| family.bind(&Values(texts)))?;
        if family.overflowed() != before {
            error::warn_overflow(py, family.name())?;
        }
        let origin = Origin::Parent { parent: parent.clone().unbind(), values };
        Ok(Self { bound: Some(bound), labels: Labels::new(py, &[]), origin })
    }

    /// Shows the garbage collector the reference cycle of a parent and its children.
    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.labels.traverse(visit)?;
        match &self.origin {
            Origin::Segment { segment, help, .. } => {
                visit.call(segment)?;
                visit.call(help)
            }
            Origin::Parent { parent, values } => {
                visit.call(parent)?;
                visit.call(values)
            }
        }
    }

    /// Breaks this cycle.
    pub fn clear(&self, py: Python<'_>) {
        self.labels.forget(py);
    }

    #[cold]
    fn no_children(&self, metric: &Bound<'_, PyAny>) -> PyErr {
        let name = metric.str().map_or_else(|_| String::new(), |name| name.to_string());
        PyValueError::new_err(match &self.origin {
            Origin::Segment { .. } => {
                format!("No label names were set when constructing {name}")
            }
            Origin::Parent { .. } => {
                format!("{name} already has labels set; can not chain calls to .labels()")
            }
        })
    }

    /// Calls `f` with the registered metric: this one, or its parent.
    fn with_root<T: Metric<I>, R>(
        &self,
        py: Python<'_>,
        with: impl FnOnce(&Self) -> R,
    ) -> PyResult<R> {
        match &self.origin {
            Origin::Segment { .. } => Ok(with(self)),
            Origin::Parent { parent, .. } => Ok(with(parent.bind(py).cast::<T>()?.get().core()?)),
        }
    }

    /// Returns one property of the registered metric.
    pub fn about<'py, T: Metric<I>>(
        &self,
        py: Python<'py>,
        what: About,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.with_root::<T, _>(py, |root| {
            let Origin::Segment { segment, family, source, help, unit } = &root.origin else {
                return Ok(py.None().into_bound(py));
            };
            Ok(match what {
                About::Name => PyString::new(py, family.name()).into_any(),
                About::Help => help.bind(py).clone(),
                About::Unit => PyString::new(py, unit).into_any(),
                About::Segment => segment.bind(py).clone().into_any(),
                About::Source => Bound::new(py, Source(source.clone()))?.into_any(),
            })
        })?
    }

    /// Returns the metric that the program made: `metric` itself, or its parent.
    pub fn root<'py>(&self, metric: &Bound<'py, PyAny>) -> Bound<'py, PyAny> {
        match &self.origin {
            Origin::Segment { .. } => metric.clone(),
            Origin::Parent { parent, .. } => parent.bind(metric.py()).clone(),
        }
    }

    /// Returns the names of its labels.
    pub fn labelnames<'py, T: Metric<I>>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        match &self.origin {
            Origin::Segment { .. } => PyTuple::new(py, &self.labels.names),
            Origin::Parent { parent, .. } => {
                parent.bind(py).cast::<T>()?.get().core()?.labelnames::<T>(py)
            }
        }
    }

    /// Returns the values of its labels; empty unless it is a child.
    pub fn labelvalues<'py>(&self, py: Python<'py>) -> Bound<'py, PyTuple> {
        match &self.origin {
            Origin::Segment { .. } => PyTuple::empty(py),
            Origin::Parent { values, .. } => values.bind(py).clone(),
        }
    }

    /// Removes the series with these label values, for all processes.
    pub fn remove(&self, metric: &Bound<'_, PyAny>, values: &Bound<'_, PyTuple>) -> PyResult<bool> {
        let Origin::Segment { family, .. } = &self.origin else {
            return Err(self.no_children(metric));
        };
        if self.bound.is_some() {
            return Err(self.no_children(metric));
        }
        if values.len() != self.labels.names.len() {
            let what = format!(
                "Incorrect label count (expected {}, got {})",
                self.labels.names.len(),
                values.str()?
            );
            return Err(PyValueError::new_err(what));
        }
        let py = metric.py();
        let values: Vec<_> = values.iter().collect();
        let texts = self.labels.texts(Arguments { py, values: &values, names: None })?;
        let texts = texts.unwrap_or(values);
        self.labels.forget(py);
        with_texts(&PyTuple::new(py, texts)?, |texts| family.remove(&Values(texts)))?
            .map_err(refused)
    }

    /// Removes the series with all of these pairs of label names and values.
    pub fn remove_matching(&self, py: Python<'_>, pairs: &[(String, String)]) -> PyResult<u64> {
        let Origin::Segment { family, .. } = &self.origin else { return Ok(0) };
        self.labels.forget(py);
        let has = |series: &[(&str, &str)], (name, value): &(String, String)| {
            series.iter().any(|(n, v)| n == name && v == value)
        };
        family.retain(|series| !pairs.iter().all(|pair| has(series, pair))).map_err(refused)
    }
}

/// A property of a metric; see [`Core::about`].
#[derive(Clone, Copy)]
pub enum About {
    Name,
    Help,
    Unit,
    Segment,
    Source,
}

/// A class of metrics.
pub trait Metric<I: Held + 'static>:
    PyClass<Frozen = pyo3::pyclass::boolean_struct::True> + Sync
{
    /// Returns the slot with the state of the object.
    fn slot(&self) -> &Slot<I>;

    /// Prepares a child. This is called once, before any other code can reference the child.
    fn adopt(&self, _parent: &Self) {}

    /// Returns the instrument that the metric is bound to.
    #[inline]
    fn bound(&self) -> Option<&I> {
        self.slot().get().and_then(|core| core.bound.as_ref())
    }

    /// Returns the state of the object, or an error before its `__init__` has run.
    fn core(&self) -> PyResult<&Core<I>> {
        self.slot().get().ok_or_else(|| {
            PyRuntimeError::new_err(
                "the metric is not initialized: call super().__init__() in the class's __init__",
            )
        })
    }

    /// Sets the state of the object, once.
    fn take(&self, core: Core<I>) -> PyResult<()> {
        self.slot().set(core).map_err(|_| {
            PyRuntimeError::new_err("the metric is already initialized: make another object")
        })
    }

    /// Returns the error of a metric that is not bound, because it carries labels, or is not
    /// initialized.
    #[cold]
    fn unbound(&self, kind: &str) -> PyErr {
        self.core().err().unwrap_or_else(|| error::no_labels(kind))
    }
}

/// Adds the method `labels` to a class.
pub fn add_labels<I: Held + 'static, T: Metric<I>>(py: Python<'_>) -> PyResult<()> {
    fastcall::add::<LabelsMethod<I, T>>(py)
}

/// The method `labels` of a class. It returns a child.
struct LabelsMethod<I, T>(PhantomData<(I, T)>);

impl<I: Held + 'static, T: Metric<I>> fastcall::Method for LabelsMethod<I, T> {
    type Class = T;
    const NAME: &'static CStr = c"labels";
    const DOC: &'static CStr = c"labels($self, *labelvalues, **labelkwargs)\n--\n\n\
        Returns the child with these label values.";

    #[inline]
    fn quick<'py>(
        metric: &Bound<'py, T>,
        arguments: Arguments<'_, 'py>,
    ) -> Option<Bound<'py, PyAny>> {
        let child = metric.get().slot().get()?.labels.find(arguments)?;
        is_shown::<I, T>(&child).then_some(child)
    }

    fn call<'py>(
        metric: &Bound<'py, T>,
        arguments: Arguments<'_, 'py>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let core = metric.get().core()?;
        if core.bound.is_some() {
            return Err(core.no_children(metric.as_any()));
        }
        let converted = core.labels.texts(arguments)?;
        let texts = converted.as_deref().unwrap_or(arguments.values);
        let cached = converted.as_ref().and_then(|texts| core.labels.cached(arguments.py, texts));
        let child = match cached.filter(is_shown::<I, T>) {
            Some(child) => child,
            None => {
                let child = make_child(metric, &PyTuple::new(arguments.py, texts)?)?.into_any();
                core.labels.cache(texts, &child);
                child
            }
        };
        if converted.is_some() && arguments.names.is_none() {
            // The next call with the same integers is as fast as one with strings.
            core.labels.cache(arguments.values, &child);
        }
        Ok(child)
    }
}

/// Returns whether the series of a cached child still exists.
#[inline]
fn is_shown<I: Held + 'static, T: Metric<I>>(child: &Bound<'_, PyAny>) -> bool {
    // SAFETY: the cache contains only children that `make_child` made.
    let child = unsafe { child.cast_unchecked::<T>() };
    child.get().bound().is_some_and(|bound| !bound.is_removed())
}

/// Makes a child with `__new__` of this class, because it must be of the same Python class as its
/// parent. The `__init__` of a subclass is not called, because it may require other arguments.
/// Instead, the child of a subclass gets a copy of its parent's attributes.
#[cold]
fn make_child<'py, I: Held + 'static, T: Metric<I>>(
    parent: &Bound<'py, T>,
    values: &Bound<'py, PyTuple>,
) -> PyResult<Bound<'py, T>> {
    let py = parent.py();
    let class: Bound<'py, PyType> = parent.as_any().get_type();
    let core = Core::of_parent(parent.as_any(), parent.get().core()?, values.clone().unbind())?;
    let new = py.get_type::<T>().getattr(pyo3::intern!(py, "__new__"))?;
    let child = new.call1((&class,))?.cast_into::<T>()?;
    child.get().take(core)?;
    child.get().adopt(parent.get());
    if class.getattr(pyo3::intern!(py, "_is_subclass"))?.is_truthy()? {
        let dict = pyo3::intern!(py, "__dict__");
        child.as_any().getattr(dict)?.call_method1("update", (parent.as_any().getattr(dict)?,))?;
    }
    Ok(child)
}

/// Implements a class: the methods that all metrics share, and its own.
macro_rules! metric {
    ($class:ident, $instrument:ty, { $($own:tt)* } $($adopt:item)?) => {
        impl $crate::core::Metric<$instrument> for $class {
            #[inline]
            fn slot(&self) -> &$crate::core::Slot<$instrument> {
                &self.core
            }

            $($adopt)?
        }

        #[pymethods]
        impl $class {
            $($own)*

            #[new]
            #[pyo3(signature = (*_args, **_kwargs))]
            fn new(
                _args: &Bound<'_, pyo3::types::PyTuple>,
                _kwargs: Option<&Bound<'_, pyo3::types::PyDict>>,
            ) -> Self {
                Self::default()
            }

            fn __traverse__(
                &self,
                visit: pyo3::PyVisit<'_>,
            ) -> Result<(), pyo3::PyTraverseError> {
                self.core.get().map_or(Ok(()), |core| core.traverse(&visit))
            }

            fn __clear__(&self, py: Python<'_>) {
                if let Some(core) = self.core.get() {
                    core.clear(py);
                }
            }

            /// Removes the series with these label values, for all processes.
            #[pyo3(signature = (*labelvalues))]
            fn remove(
                slf: &Bound<'_, Self>,
                labelvalues: &Bound<'_, pyo3::types::PyTuple>,
            ) -> PyResult<()> {
                slf.get().core()?.remove(slf.as_any(), labelvalues).map(|_| ())
            }

            /// Removes the series with all of these pairs of label names and values.
            fn _remove_matching(
                &self,
                py: Python<'_>,
                pairs: Vec<(String, String)>,
            ) -> PyResult<u64> {
                self.core()?.remove_matching(py, &pairs)
            }

            /// The metric that the program made: this one, or the parent of a child.
            #[getter]
            fn _root<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
                Ok(slf.get().core()?.root(slf.as_any()))
            }

            /// Returns whether it holds a value. A parent does not.
            fn _is_observable(&self) -> bool {
                self.bound().is_some()
            }

            #[getter]
            fn _name<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
                self.core()?.about::<Self>(py, $crate::core::About::Name)
            }

            #[getter]
            fn _documentation<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
                self.core()?.about::<Self>(py, $crate::core::About::Help)
            }

            #[getter]
            fn _unit<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
                self.core()?.about::<Self>(py, $crate::core::About::Unit)
            }

            #[getter]
            fn _segment<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
                self.core()?.about::<Self>(py, $crate::core::About::Segment)
            }

            /// The sources that a scrape reads.
            #[getter]
            fn _sources<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
                Ok(vec![self.core()?.about::<Self>(py, $crate::core::About::Source)?])
            }

            #[getter]
            fn _labelnames<'py>(
                &self,
                py: Python<'py>,
            ) -> PyResult<Bound<'py, pyo3::types::PyTuple>> {
                self.core()?.labelnames::<Self>(py)
            }

            #[getter]
            fn _labelvalues<'py>(
                &self,
                py: Python<'py>,
            ) -> PyResult<Bound<'py, pyo3::types::PyTuple>> {
                Ok(self.core()?.labelvalues(py))
            }
        }
    };
}

pub(crate) use metric;
