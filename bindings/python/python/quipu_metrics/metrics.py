"""The metrics, with the signatures of ``prometheus_client``.

This module contains names, checks and decorators. The methods that count are native: ``inc``,
``dec``, ``set``, ``observe`` and ``labels`` belong to the classes in ``_quipu``.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Callable, Dict, Iterable, List, Literal, Optional, Sequence, Set
from typing import Tuple, Type, Union, cast

from . import segments
from .backend import _quipu
from .context_managers import ExceptionCounter, InprogressTracker, Timer
from .metrics_core import Metric
from .registry import REGISTRY, CollectorRegistry, ask_functions, metric_of, names_of

if TYPE_CHECKING:
    from typing_extensions import Self

    _Mode = Literal[
        "all", "liveall", "min", "livemin", "max", "livemax", "sum", "livesum", "mostrecent",
        "livemostrecent",
    ]

_METRIC_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_is_legacy = os.environ.get("PROMETHEUS_LEGACY_NAME_VALIDATION", "").lower() in ("true", "1", "t")
_quipu.set_legacy(_is_legacy)


def enable_legacy_validation() -> None:
    """Refuses the names of metrics and labels that older versions of Prometheus cannot parse."""
    global _is_legacy
    _is_legacy = True
    _quipu.set_legacy(True)


def disable_legacy_validation() -> None:
    """Accepts any name of a metric or label. This is the default."""
    global _is_legacy
    _is_legacy = False
    _quipu.set_legacy(False)


def _full_name(typ: str, name: str, namespace: str, subsystem: str, unit: str) -> str:
    if not name:
        raise ValueError("Metric name should not be empty")
    full = "_".join(part for part in (namespace, subsystem, name) if part)
    if typ == "counter" and full.endswith("_total"):
        full = full[: -len("_total")]
    if unit and not full.endswith("_" + unit):
        full += "_" + unit
    if unit and typ in ("info", "stateset"):
        raise ValueError(f"Metric name is of a type that cannot have a unit: {full}")
    if not full or (_is_legacy and not _METRIC_NAME.fullmatch(full)):
        raise ValueError(f"invalid metric name {full}")
    return full


def _check_labels(labelnames: Iterable[str], reserved: Sequence[str]) -> List[str]:
    if isinstance(labelnames, str):
        labelnames = tuple(labelnames)
    names = list(labelnames)
    for name in names:
        if _is_legacy and not _LABEL_NAME.fullmatch(name):
            raise ValueError(f"Invalid label metric name: {name}")
        if name.startswith("__") or name in reserved:
            raise ValueError(f"Reserved label metric name: {name}")
    return names


def _number(
    metric: MetricWrapperBase, part: str, number: int = 0, bound: float = 0.0
) -> _quipu.Value:
    metric._raise_if_not_observable()
    value = _quipu.Value()
    value.attach(metric, part, number, bound)
    return value


class _Children(Dict[Tuple[str, ...], "MetricWrapperBase"]):
    def __init__(
        self, metric: MetricWrapperBase, children: Dict[Tuple[str, ...], MetricWrapperBase]
    ) -> None:
        super().__init__(children)
        self._metric = metric

    def clear(self) -> None:
        """Removes all children, from the metric, too."""
        super().clear()
        self._metric.clear()


class MetricWrapperBase:
    """The methods that all metrics share."""

    __slots__ = ()
    _type = ""
    _reserved_labelnames: Sequence[str] = ()
    # The native half of a metric defines these attributes.
    _name: str
    _documentation: str
    _unit: str
    _segment: Optional[_quipu.Segment]
    _sources: List[_quipu.Source]
    _labelnames: Tuple[str, ...]
    _labelvalues: Tuple[str, ...]
    _root: Self
    labels: Callable[..., MetricWrapperBase]
    _make: Callable[..., None]
    _remove_matching: Callable[[Sequence[Tuple[str, str]]], Optional[int]]
    _is_observable: Callable[[], bool]
    # Whether the class is defined outside of this module. Its `__init__` can then set attributes.
    _is_subclass = False
    # The functions of a gauge, which are called at a scrape, with their children by label values.
    _functions: Optional[Dict[Tuple[str, ...], Tuple[Gauge, Callable[[], float]]]] = None

    def __init_subclass__(cls, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        cls._is_subclass = cls.__module__ != __name__

    def _init(
        self,
        name: str,
        documentation: str,
        labelnames: Iterable[str],
        namespace: str,
        subsystem: str,
        unit: str,
        registry: Optional[CollectorRegistry],
        *more: object,
    ) -> None:
        full = _full_name(self._type, name, namespace, subsystem, unit)
        names = _check_labels(labelnames, self._reserved_labelnames)

        def make(segment: _quipu.Segment, is_named: bool = False) -> None:
            made: Dict[str, object] = {
                "segment": segment,
                "name": full,
                "help": documentation,
                "unit": unit,
                "labelnames": names,
                "is_named": is_named,
            }
            self._make(made, *more)

        if isinstance(registry, CollectorRegistry):
            registry._check_names(names_of(full, self._type))
            registry._make(full, make)
        else:
            segments.apart.make(make)
        if registry is not None:
            registry.register(self)

    def describe(self) -> List[Metric]:
        """Returns the metric without samples."""
        metric = Metric(self._name, self._documentation, self._type)
        metric.unit = self._unit
        return [metric]

    def collect(self) -> List[Metric]:
        """Returns the metric with its samples, including the samples of other processes.

        A child returns only its own samples.
        """
        return self._collect(True)

    def _collect(self, created: bool) -> List[Metric]:
        ask_functions([self._root])
        found = [
            metric_of(family) for family in _quipu.collect(None, set(), self._sources, created)
        ]
        if not found:
            return self.describe()
        values = dict(zip(self._labelnames, self._labelvalues))
        if values:
            samples = found[0].samples
            found[0].samples = [
                sample._replace(labels={k: v for k, v in sample.labels.items() if k not in values})
                for sample in samples
                if values.items() <= sample.labels.items()
            ]
        return found

    # A registry calls `collect` only if a subclass overrides it.
    _native_collect = collect

    def remove_by_labels(self, labels: Dict[str, str]) -> None:
        """Removes the series with all of these labels, for all processes.

        Raises ``ValueError`` for a label that this metric does not define.
        """
        if not self._labelnames:
            raise ValueError(f"No label names were set when constructing {self}")
        if not isinstance(labels, dict):
            raise TypeError("labels must be a dict of {label_name: label_value}")
        invalid = [name for name in labels if name not in self._labelnames]
        if invalid:
            raise ValueError(f"Unknown label names: {invalid}; expected {self._labelnames}")
        if labels:
            self._remove_matching([(name, str(value)) for name, value in labels.items()])

    def clear(self) -> None:
        """Removes all series, for all processes."""
        if self._labelnames and not self._labelvalues:
            self._remove_matching([])

    @property
    def _metrics(self) -> Dict[Tuple[str, ...], MetricWrapperBase]:
        """The children of all processes by their label values, for tests."""
        if not self._labelnames or self._labelvalues:
            raise AttributeError(f"{self} has no children")
        found: Dict[Tuple[str, ...], None] = {}
        for sample in self._collect(False)[0].samples:
            if all(name in sample.labels for name in self._labelnames):
                values = tuple(sample.labels[name] for name in self._labelnames)
                found[values] = None
        return _Children(self, {values: self.labels(*values) for values in found})

    def _raise_if_not_observable(self) -> None:
        if not self._is_observable():
            raise ValueError(f"{self._type} metric is missing label values")

    def __str__(self) -> str:
        return f"{self._type}:{self._name}"

    def __repr__(self) -> str:
        return f"{type(self).__module__}.{type(self).__name__}({self._name})"


class Counter(_quipu.Counter, MetricWrapperBase):
    """A sum over all processes, which only increases."""

    _type = "counter"

    def __init__(
        self,
        name: str,
        documentation: str,
        labelnames: Iterable[str] = (),
        namespace: str = "",
        subsystem: str = "",
        unit: str = "",
        registry: Optional[CollectorRegistry] = REGISTRY,
    ) -> None:
        self._init(name, documentation, labelnames, namespace, subsystem, unit, registry)

    @property
    def _value(self) -> _quipu.Value:
        """The number, for tests."""
        return _number(self, "value")

    def count_exceptions(
        self, exception: Union[Type[BaseException], Tuple[Type[BaseException], ...]] = Exception
    ) -> ExceptionCounter:
        """Returns a context manager and decorator that counts exceptions of that type."""
        self._raise_if_not_observable()
        return ExceptionCounter(self, exception)


class Gauge(_quipu.Gauge, MetricWrapperBase):
    """A value that goes up and down.

    Without a mode, it is one value that all processes share. With one of the modes of
    ``prometheus_client``, each process sets its own value, and the mode chooses the values that a
    scrape shows. If ``PROMETHEUS_MULTIPROC_DIR`` is set, the default mode is ``all``, like in
    ``prometheus_client``.
    """

    _type = "gauge"
    _MULTIPROC_MODES = frozenset(
        live + mode for live in ("", "live") for mode in ("all", "min", "max", "sum", "mostrecent")
    )

    def __init__(
        self,
        name: str,
        documentation: str,
        labelnames: Iterable[str] = (),
        namespace: str = "",
        subsystem: str = "",
        unit: str = "",
        registry: Optional[CollectorRegistry] = REGISTRY,
        _labelvalues: Optional[Sequence[str]] = None,
        multiprocess_mode: Optional[_Mode] = None,
    ) -> None:
        mode: Optional[str] = multiprocess_mode
        if mode is None:
            mode = "all" if segments.is_multiprocess() else "mostrecent"
        elif mode not in self._MULTIPROC_MODES:
            raise ValueError(f"Invalid multiprocess mode: {mode}")
        # Adding to a gauge that the program declared as the most recent value makes no sense.
        is_set_only = multiprocess_mode is not None and mode.endswith("mostrecent")
        more = (mode, is_set_only)
        self._init(name, documentation, labelnames, namespace, subsystem, unit, registry, *more)

    @property
    def _value(self) -> _quipu.Value:
        """The number, for tests."""
        return _number(self, "value")

    def track_inprogress(self) -> InprogressTracker:
        """Returns a context manager and decorator that counts the blocks in progress."""
        self._raise_if_not_observable()
        return InprogressTracker(self)

    def time(self) -> Timer:
        """Returns a context manager and decorator that sets a block's duration in seconds."""
        return Timer(self, "set")

    def set_function(self, f: Callable[[], float]) -> None:
        """Sets the gauge to the result of ``f``, now and at each scrape of this process."""
        self._raise_if_not_observable()
        root = self._root
        if root._functions is None:
            root._functions = {}
        root._functions[self._labelvalues] = (self, f)
        self._ask(f)

    def _ask(self, function: Callable[[], float]) -> None:
        try:
            self.set(float(function()))
        except Exception as error:
            segments.warn(f"the function of {self} raises {error!r}; its last value is shown")


class Summary(_quipu.Summary, MetricWrapperBase):
    """The number of observations, and their sum."""

    _type = "summary"
    _reserved_labelnames = ("quantile",)

    def __init__(
        self,
        name: str,
        documentation: str,
        labelnames: Iterable[str] = (),
        namespace: str = "",
        subsystem: str = "",
        unit: str = "",
        registry: Optional[CollectorRegistry] = REGISTRY,
    ) -> None:
        self._init(name, documentation, labelnames, namespace, subsystem, unit, registry)

    @property
    def _count(self) -> _quipu.Value:
        """The number of observations, for tests."""
        return _number(self, "count")

    @property
    def _sum(self) -> _quipu.Value:
        """The sum, for tests."""
        return _number(self, "sum")

    def time(self) -> Timer:
        """Returns a context manager and decorator that observes a block's duration in seconds."""
        return Timer(self, "observe")


class Histogram(_quipu.Histogram, MetricWrapperBase):
    """Counts of observations in buckets by size."""

    _type = "histogram"
    _reserved_labelnames = ("le",)
    DEFAULT_BUCKETS = (
        0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
        float("inf"),
    )

    def __init__(
        self,
        name: str,
        documentation: str,
        labelnames: Iterable[str] = (),
        namespace: str = "",
        subsystem: str = "",
        unit: str = "",
        registry: Optional[CollectorRegistry] = REGISTRY,
        _labelvalues: Optional[Sequence[str]] = None,
        buckets: Sequence[Union[float, str]] = DEFAULT_BUCKETS,
    ) -> None:
        bounds = [float(bound) for bound in buckets]
        if bounds != sorted(bounds):
            raise ValueError("Buckets not in sorted order")
        if bounds and bounds[-1] != float("inf"):
            bounds.append(float("inf"))
        if len(bounds) < 2:
            raise ValueError("Must have at least two buckets")
        self._init(name, documentation, labelnames, namespace, subsystem, unit, registry, bounds)
        self._bounds = bounds

    @property
    def _sum(self) -> _quipu.Value:
        """The sum, for tests."""
        return _number(self, "sum")

    @property
    def _upper_bounds(self) -> List[float]:
        return self._root._bounds

    @property
    def _buckets(self) -> List[_quipu.Value]:
        """The count of each bucket, for tests."""
        bounds = enumerate(self._upper_bounds)
        return [_number(self, "bucket", number, bound) for number, bound in bounds]

    def time(self) -> Timer:
        """Returns a context manager and decorator that observes a block's duration in seconds."""
        return Timer(self, "observe")


class Enum(_quipu.Enum, MetricWrapperBase):
    """One of several states. The first state is on until you set another one."""

    _type = "stateset"

    def __init__(
        self,
        name: str,
        documentation: str,
        labelnames: Sequence[str] = (),
        namespace: str = "",
        subsystem: str = "",
        unit: str = "",
        registry: Optional[CollectorRegistry] = REGISTRY,
        _labelvalues: Optional[Sequence[str]] = None,
        states: Optional[Sequence[str]] = None,
    ) -> None:
        if name in labelnames:
            raise ValueError(f"Overlapping labels for Enum metric: {name}")
        if not states:
            raise ValueError(f"No states provided for Enum metric: {name}")
        states = list(states)
        self._init(name, documentation, labelnames, namespace, subsystem, unit, registry, states)

    @property
    def _value(self) -> Optional[int]:
        """The index of the state, for tests."""
        return self._index()


class Info(MetricWrapperBase):
    """Key-value pairs, as labels of a series that is always 1. The last process to set them wins.

    It is shown after the first ``info()``. If another process uses this metric with different keys,
    the pairs of this process are in memory that only it and its children can read.
    """

    _type = "info"

    def __init__(
        self,
        name: str,
        documentation: str,
        labelnames: Iterable[str] = (),
        namespace: str = "",
        subsystem: str = "",
        unit: str = "",
        registry: Optional[CollectorRegistry] = REGISTRY,
    ) -> None:
        self._name = _full_name(self._type, name, namespace, subsystem, unit)
        self._documentation, self._unit = documentation, unit
        self._labelnames = tuple(_check_labels(labelnames, ()))
        self._labelvalues = ()
        self._root = cast("Self", self)
        self._children: Dict[Tuple[str, ...], Self] = {}
        self._value: Dict[str, str] = {}
        help = "" if documentation is None else str(documentation)
        self._native = _quipu.Info(self._name, help, list(self._labelnames))
        self._segment = None
        if isinstance(registry, CollectorRegistry):
            registry._check_names(names_of(self._name, self._type))
            self._segment = registry._named_segment(self._name)
        if registry is not None:
            registry.register(self)

    def labels(self, *labelvalues: object, **labelkwargs: object) -> Self:
        """Returns the child with these label values, by position or by name.

        Raises ``ValueError`` unless there is one value for each label of the metric.
        """
        if not self._labelnames:
            raise ValueError(f"No label names were set when constructing {self}")
        if self._labelvalues:
            raise ValueError(f"{self} already has labels set; can not chain calls to .labels()")
        if labelvalues and labelkwargs:
            raise ValueError("Can't pass both *args and **kwargs")
        if labelkwargs:
            if sorted(labelkwargs) != sorted(self._labelnames):
                raise ValueError("Incorrect label names")
            labelvalues = tuple(labelkwargs[name] for name in self._labelnames)
        if len(labelvalues) != len(self._labelnames):
            raise ValueError("Incorrect label count")
        texts = tuple(str(value) for value in labelvalues)
        child = self._children.get(texts)
        if child is None:
            child = object.__new__(type(self))
            child.__dict__.update(self.__dict__)
            child._labelvalues, child._value = texts, {}
            child = self._children.setdefault(texts, child)
        return child

    def info(self, val: Dict[str, str]) -> None:
        """Replaces the key-value pairs.

        Raises ``ValueError`` for a key that is the name of a label, and for a value that is None.
        """
        self._raise_if_not_observable()
        if set(self._labelnames) & set(val):
            raise ValueError(
                f"Overlapping labels for Info metric, metric: {self._labelnames} child: {val}"
            )
        if any(text is None for text in val.values()):
            raise ValueError("Label value cannot be None")
        _check_labels(val, ())
        values = list(self._labelvalues)
        texts = sorted((name, str(text)) for name, text in val.items())
        named, was_named = self._segment, self._native.is_named

        def make(apart: _quipu.Segment) -> None:
            self._native.set(named, apart, values, texts)

        segments.apart.make(make)
        self._value = dict(val)
        is_first = was_named and not self._native.is_named
        if is_first and named is not None and named.path is not None:
            segments.warn(
                f"the info {self._name!r} exists with different keys; those of this process are in "
                "memory of only it and its children"
            )

    def _is_in(self, segment: Optional[_quipu.Segment]) -> bool:
        """Returns whether all its series are in this segment, found by its name."""
        return segment is not None and segment is self._segment and self._native.is_named

    @property
    def _sources(self) -> List[_quipu.Source]:  # type: ignore[override]
        return self._native.sources

    def remove(self, *labelvalues: object) -> None:
        """Removes the series with these label values, for all processes."""
        if not self._labelnames:
            raise ValueError(f"No label names were set when constructing {self}")
        if len(labelvalues) != len(self._labelnames):
            raise ValueError(
                f"Incorrect label count (expected {len(self._labelnames)}, got {labelvalues})"
            )
        self._remove_matching([(n, str(v)) for n, v in zip(self._labelnames, labelvalues)])

    def _remove_matching(self, pairs: Sequence[Tuple[str, str]]) -> None:
        self._native.remove(pairs)
        for values in list(self._children):
            own = dict(zip(self._labelnames, values))
            if all(own.get(name) == value for name, value in pairs):
                self._children.pop(values, None)

    def _is_observable(self) -> bool:
        return not self._labelnames or bool(self._labelvalues)
