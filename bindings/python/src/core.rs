//! What all metrics are made of: the family, the labels, and the series that one is bound to.

use std::sync::Arc;

use pyo3::PyClass;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple, PyType};
use pyo3::{PyTraverseError, PyVisit};
use quipu::label::Values;
use quipu::{Description, Family, Instrument};
use quipu_segment::series::{self, Beside, Bound as Series, Schema};

use crate::error::refused;
use crate::labels::{Labels, with_texts};
use crate::segment::Segment;

/// An instrument, and the series that it counts in.
#[derive(Clone)]
pub struct Raw<I> {
    pub instrument: I,
    pub series: Series,
}

impl<I: Instrument> Instrument for Raw<I> {
    type Shared = I::Shared;

    fn describe(description: &Description, schema: &mut Schema) -> Result<(), quipu::Error> {
        I::describe(description, schema)
    }

    fn shared(family: &series::Family) -> Result<Self::Shared, quipu::Error> {
        I::shared(family)
    }

    fn bound(bound: Series, shared: &Self::Shared) -> Self {
        Self { instrument: I::bound(bound.clone(), shared), series: bound }
    }

    fn beside(shared: &Self::Shared) -> Option<Arc<dyn Beside>> {
        I::beside(shared)
    }
}

/// What a metric holds of its series.
pub trait Held: Instrument {
    /// Whether the series was removed, so that what is counted is not shown.
    fn is_removed(&self) -> bool;
}

impl<I: Instrument> Held for Raw<I> {
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

/// All series of one metric.
type Many<I> = Family<I, Values<'static>>;

/// A metric: a parent, whose series have labels; one of its children; or one without labels.
pub struct Core<I: Held> {
    /// What it is bound to; a parent is not.
    pub bound: Option<I>,
    labels: Labels,
    origin: Origin<I>,
}

/// Where a metric comes from.
enum Origin<I: Held> {
    /// It was registered.
    Segment { segment: Py<Segment>, family: Many<I>, help: String, unit: String },
    /// It is a child.
    Parent { parent: Py<PyAny>, values: Py<PyTuple> },
}

/// What a metric is made with: one that is registered, with a segment and a description.
pub struct Made<'a, 'py> {
    pub segment: &'a Bound<'py, Segment>,
    pub name: String,
    pub help: String,
    pub unit: String,
    pub labelnames: Vec<String>,
}

impl Made<'_, '_> {
    /// The description: any name that `prometheus_client` takes, counted on one line, since all
    /// threads of a process count one after the other.
    fn description(&self) -> Description {
        Description::new(self.name.clone(), self.help.clone())
            .unit(self.unit.clone())
            .labels(self.labelnames.clone())
            .striped(false)
            .verbatim()
    }
}

impl<I: Held + 'static> Core<I> {
    /// Makes a metric as a class' `__new__` is asked to: of a segment, a name and so on, or of a
    /// parent and the label values of a child.
    pub fn new<T: Metric<I>>(
        origin: &Bound<'_, PyAny>,
        name: &Bound<'_, PyAny>,
        (help, unit, labelnames): (String, String, Vec<String>),
        describe: impl FnOnce(Description) -> Description,
    ) -> PyResult<Self> {
        if let Ok(segment) = origin.cast::<Segment>() {
            let name = name.extract()?;
            return Self::register(Made { segment, name, help, unit, labelnames }, describe);
        }
        let parent = origin.cast::<T>()?;
        let values = name.cast::<PyTuple>()?.clone().unbind();
        Self::of_parent(origin, parent.get().core(), values)
    }

    /// Registers a metric.
    pub fn register(
        made: Made<'_, '_>,
        describe: impl FnOnce(Description) -> Description,
    ) -> PyResult<Self> {
        let py = made.segment.py();
        let registry = made.segment.get().registry();
        let family: Many<I> = registry.register(describe(made.description())).map_err(refused)?;
        let bound = made.labelnames.is_empty().then(|| family.with(&Values(&[])));
        let labels = Labels::new(py, &made.labelnames);
        let segment = made.segment.clone().unbind();
        let Made { help, unit, .. } = made;
        Ok(Self { bound, labels, origin: Origin::Segment { segment, family, help, unit } })
    }

    /// Makes the child of a parent.
    pub fn of_parent(
        parent: &Bound<'_, PyAny>,
        core: &Self,
        values: Py<PyTuple>,
    ) -> PyResult<Self> {
        let py = parent.py();
        let Origin::Segment { family, .. } = &core.origin else {
            return Err(PyValueError::new_err("a child has no children"));
        };
        let bound = with_texts(values.bind(py), |texts| family.with(&Values(texts)))?;
        let origin = Origin::Parent { parent: parent.clone().unbind(), values };
        Ok(Self { bound: Some(bound), labels: Labels::new(py, &[]), origin })
    }

    /// Shows the collector of garbage that a parent and its children have each other.
    pub fn traverse(&self, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.labels.traverse(visit)?;
        match &self.origin {
            Origin::Segment { segment, .. } => visit.call(segment),
            Origin::Parent { parent, values } => {
                visit.call(parent)?;
                visit.call(values)
            }
        }
    }

    /// The child of these label values.
    #[inline]
    pub fn child<'py, T: Metric<I>>(
        metric: &Bound<'py, T>,
        values: &Bound<'py, PyTuple>,
        named: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, T>> {
        let core = metric.get().core();
        if core.bound.is_some() {
            return Err(core.no_children(metric.as_any()));
        }
        let is_gone =
            |child: &Bound<'py, T>| child.get().core().bound.as_ref().is_none_or(Held::is_removed);
        core.labels.child(values, named, is_gone, |texts| make_child(metric, texts))
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

    /// The registered metric: itself, or its parent.
    fn with_root<T: Metric<I>, R>(
        &self,
        py: Python<'_>,
        with: impl FnOnce(&Many<I>, &Py<Segment>, &str, &str) -> R,
    ) -> PyResult<R> {
        match &self.origin {
            Origin::Segment { segment, family, help, unit } => {
                Ok(with(family, segment, help, unit))
            }
            Origin::Parent { parent, .. } => {
                let parent = parent.bind(py).cast::<T>()?;
                parent.get().core().with_root::<T, R>(py, with)
            }
        }
    }

    /// Its name.
    pub fn name<T: Metric<I>>(&self, py: Python<'_>) -> PyResult<String> {
        self.with_root::<T, _>(py, |family, _, _, _| family.name().to_owned())
    }

    /// Its help.
    pub fn help<T: Metric<I>>(&self, py: Python<'_>) -> PyResult<String> {
        self.with_root::<T, _>(py, |_, _, help, _| help.to_owned())
    }

    /// Its unit.
    pub fn unit<T: Metric<I>>(&self, py: Python<'_>) -> PyResult<String> {
        self.with_root::<T, _>(py, |_, _, _, unit| unit.to_owned())
    }

    /// Where its numbers are.
    pub fn segment<T: Metric<I>>(&self, py: Python<'_>) -> PyResult<Py<Segment>> {
        self.with_root::<T, _>(py, |_, segment, _, _| segment.clone_ref(py))
    }

    /// The names of its labels.
    pub fn labelnames<'py, T: Metric<I>>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        match &self.origin {
            Origin::Segment { .. } => PyTuple::new(py, &self.labels.names),
            Origin::Parent { parent, .. } => {
                parent.bind(py).cast::<T>()?.get().core().labelnames::<T>(py)
            }
        }
    }

    /// The values of its labels; of a child alone.
    pub fn labelvalues<'py>(&self, py: Python<'py>) -> Bound<'py, PyTuple> {
        match &self.origin {
            Origin::Segment { .. } => PyTuple::empty(py),
            Origin::Parent { values, .. } => values.bind(py).clone(),
        }
    }

    /// Removes the series of these labels, for all processes.
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
        let texts = self.labels.texts(values, None)?;
        self.labels.forget(metric.py());
        with_texts(&texts, |texts| family.remove(&Values(texts)))?.map_err(refused)
    }

    /// Removes the series that have all of these pairs of label names and values.
    pub fn remove_matching(&self, py: Python<'_>, pairs: &[(String, String)]) -> PyResult<u64> {
        let Origin::Segment { family, .. } = &self.origin else { return Ok(0) };
        self.labels.forget(py);
        let has = |series: &[(&str, &str)], (name, value): &(String, String)| {
            series.iter().any(|(n, v)| n == name && v == value)
        };
        family.retain(|series| !pairs.iter().all(|pair| has(series, pair))).map_err(refused)
    }
}

/// A class of metrics.
pub trait Metric<I: Held>: PyClass<Frozen = pyo3::pyclass::boolean_struct::True> + Sync {
    /// What it is made of.
    fn core(&self) -> &Core<I>;
}

/// Makes a child by the class' own `__new__`, so that it is of the same Python class as its parent.
#[cold]
fn make_child<'py, I: Held, T: Metric<I>>(
    parent: &Bound<'py, T>,
    values: &Bound<'py, PyTuple>,
) -> PyResult<Bound<'py, T>> {
    let py = parent.py();
    let class: Bound<'py, PyType> = parent.as_any().get_type();
    let new = py.get_type::<T>().getattr(pyo3::intern!(py, "__new__"))?;
    Ok(new.call1((class, parent, values))?.cast_into::<T>()?)
}

/// The methods that all metrics have, and those of one class.
macro_rules! metric {
    ($class:ident, $instrument:ty, { $($own:tt)* }) => {
        impl $crate::core::Metric<$instrument> for $class {
            #[inline]
            fn core(&self) -> &$crate::core::Core<$instrument> {
                &self.core
            }
        }

        #[pymethods]
        impl $class {
            $($own)*

            fn __traverse__(
                &self,
                visit: pyo3::PyVisit<'_>,
            ) -> Result<(), pyo3::PyTraverseError> {
                self.core.traverse(&visit)
            }

            /// The child of these label values.
            #[pyo3(signature = (*labelvalues, **labelkwargs))]
            fn labels<'py>(
                slf: &Bound<'py, Self>,
                labelvalues: &Bound<'py, pyo3::types::PyTuple>,
                labelkwargs: Option<&Bound<'py, pyo3::types::PyDict>>,
            ) -> PyResult<Bound<'py, Self>> {
                $crate::core::Core::child(slf, labelvalues, labelkwargs)
            }

            /// Removes the series of these label values.
            #[pyo3(signature = (*labelvalues))]
            fn remove(
                slf: &Bound<'_, Self>,
                labelvalues: &Bound<'_, pyo3::types::PyTuple>,
            ) -> PyResult<()> {
                slf.get().core.remove(slf.as_any(), labelvalues).map(|_| ())
            }

            /// Removes the series that have all of these pairs of label names and values.
            fn _remove_matching(
                &self,
                py: Python<'_>,
                pairs: Vec<(String, String)>,
            ) -> PyResult<u64> {
                self.core.remove_matching(py, &pairs)
            }

            /// Whether it has a value, or is the parent of what has.
            fn _is_observable(&self) -> bool {
                self.core.bound.is_some()
            }

            #[getter]
            fn _name(&self, py: Python<'_>) -> PyResult<String> {
                self.core.name::<Self>(py)
            }

            #[getter]
            fn _documentation(&self, py: Python<'_>) -> PyResult<String> {
                self.core.help::<Self>(py)
            }

            #[getter]
            fn _unit(&self, py: Python<'_>) -> PyResult<String> {
                self.core.unit::<Self>(py)
            }

            #[getter]
            fn _segment(&self, py: Python<'_>) -> PyResult<Py<$crate::segment::Segment>> {
                self.core.segment::<Self>(py)
            }

            #[getter]
            fn _labelnames<'py>(
                &self,
                py: Python<'py>,
            ) -> PyResult<Bound<'py, pyo3::types::PyTuple>> {
                self.core.labelnames::<Self>(py)
            }

            #[getter]
            fn _labelvalues<'py>(&self, py: Python<'py>) -> Bound<'py, pyo3::types::PyTuple> {
                self.core.labelvalues(py)
            }
        }
    };
}

pub(crate) use metric;
