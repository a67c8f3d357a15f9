"""The metrics, with the signatures of ``prometheus_client``'s.

Here are names, checks and decorators. What counts is native: ``inc``, ``dec``, ``set``, ``observe``
and ``labels`` are methods of the classes in ``_quipu``.
"""

import os
import re
from typing import Dict, Iterable, List, Optional, Sequence, Union

from . import _quipu, segments
from .context_managers import ExceptionCounter, InprogressTracker, Timer
from .core import Metric
from .registry import REGISTRY, CollectorRegistry, metric_of, names_of

_METRIC_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_is_legacy = os.environ.get("PROMETHEUS_LEGACY_NAME_VALIDATION", "").lower() in ("true", "1", "t")


def enable_legacy_validation() -> None:
    """Refuses names that older versions of Prometheus do not read."""
    global _is_legacy
    _is_legacy = True


def disable_legacy_validation() -> None:
    """Takes any name."""
    global _is_legacy
    _is_legacy = False


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


class MetricWrapperBase:
    """What all metrics have."""

    __slots__ = ()
    _type = ""
    _reserved_labelnames: Sequence[str] = ()

    @classmethod
    def _register(
        cls, native, name, documentation, labelnames, namespace, subsystem, unit, registry, **more
    ):
        full = _full_name(cls._type, name, namespace, subsystem, unit)
        names = _check_labels(labelnames, cls._reserved_labelnames)

        def make(segment):
            return native.__new__(cls, segment, full, documentation, unit, names, **more)

        if registry is None:
            return make(segments.anonymous())
        if not isinstance(registry, CollectorRegistry):
            metric = make(segments.anonymous())
        else:
            registry._check_names(names_of(full, cls._type))
            metric = registry._make(full, make)
        registry.register(metric)
        return metric

    def describe(self) -> List[Metric]:
        """The metric without samples."""
        metric = Metric(self._name, self._documentation, self._type)
        metric.unit = self._unit
        return [metric]

    def collect(self) -> List[Metric]:
        """The metric with its samples, those of other processes included; a child with its own."""
        return self._collect(True)

    def _collect(self, created: bool) -> List[Metric]:
        segments.ask_functions(self._segment)
        found = [metric_of(family) for family in self._segment.collect(self._name, created)]
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

    def remove_by_labels(self, labels: Dict[str, str]) -> None:
        """Removes the series that have all of these labels, for all processes."""
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

    def _raise_if_not_observable(self) -> None:
        if not self._is_observable():
            raise ValueError(f"{self._type} metric is missing label values")

    def __str__(self) -> str:
        return f"{self._type}:{self._name}"

    def __repr__(self) -> str:
        return f"{type(self).__module__}.{type(self).__name__}({self._name})"


class Counter(_quipu.Counter, MetricWrapperBase):
    """A sum that only grows, over all processes."""

    __slots__ = ()
    _type = "counter"

    def __new__(
        cls,
        name: str,
        documentation: str,
        labelnames: Iterable[str] = (),
        namespace: str = "",
        subsystem: str = "",
        unit: str = "",
        registry: Optional[CollectorRegistry] = REGISTRY,
    ):
        return cls._register(
            _quipu.Counter, name, documentation, labelnames, namespace, subsystem, unit, registry
        )

    def count_exceptions(self, exception=Exception) -> ExceptionCounter:
        """A context manager and decorator that counts exceptions of that type."""
        self._raise_if_not_observable()
        return ExceptionCounter(self, exception)


class Gauge(_quipu.Gauge, MetricWrapperBase):
    """A value that goes up and down.

    Without a mode it is one value that all processes share. With one of ``prometheus_client``'s
    modes each process has its own, and a scrape shows what the mode says; so it is without a mode
    where the environment has ``PROMETHEUS_MULTIPROC_DIR``: the mode is ``all`` then, as there.
    """

    __slots__ = ()
    _type = "gauge"
    _MULTIPROC_MODES = frozenset(
        live + mode for live in ("", "live") for mode in ("all", "min", "max", "sum", "mostrecent")
    )

    def __new__(
        cls,
        name: str,
        documentation: str,
        labelnames: Iterable[str] = (),
        namespace: str = "",
        subsystem: str = "",
        unit: str = "",
        registry: Optional[CollectorRegistry] = REGISTRY,
        _labelvalues=None,
        multiprocess_mode: Optional[str] = None,
    ):
        mode = multiprocess_mode
        if mode is None:
            mode = "all" if segments.is_multiprocess() else "mostrecent"
        elif mode not in cls._MULTIPROC_MODES:
            raise ValueError(f"Invalid multiprocess mode: {mode}")
        elif mode.endswith("mostrecent") and cls is Gauge:
            cls = _MostRecentGauge
        return cls._register(
            _quipu.Gauge,
            name,
            documentation,
            labelnames,
            namespace,
            subsystem,
            unit,
            registry,
            mode=mode,
        )

    def track_inprogress(self) -> InprogressTracker:
        """A context manager and decorator that counts what is in progress."""
        self._raise_if_not_observable()
        return InprogressTracker(self)

    def time(self) -> Timer:
        """A context manager and decorator that sets the seconds that a block took."""
        return Timer(self, "set")

    def set_function(self, f) -> None:
        """Calls ``f`` at each scrape that this process answers, and sets what it answers."""
        self._raise_if_not_observable()
        segments.keep_function(self, f)
        self._ask(f)

    def _ask(self, function) -> None:
        try:
            self.set(float(function()))
        except Exception as error:
            segments.warn(f"the function of {self} raises {error!r}; its last value is shown")


class _MostRecentGauge(Gauge):
    """A gauge whose last value counts: to add to it makes no sense."""

    __slots__ = ()

    def inc(self, amount: float = 1) -> None:
        """Refused."""
        raise RuntimeError("inc must not be used with the mostrecent mode")

    def dec(self, amount: float = 1) -> None:
        """Refused."""
        raise RuntimeError("dec must not be used with the mostrecent mode")


_MostRecentGauge.__name__ = _MostRecentGauge.__qualname__ = "Gauge"


class Summary(_quipu.Summary, MetricWrapperBase):
    """How many observations there were, and their sum."""

    __slots__ = ()
    _type = "summary"
    _reserved_labelnames = ("quantile",)

    def __new__(
        cls,
        name: str,
        documentation: str,
        labelnames: Iterable[str] = (),
        namespace: str = "",
        subsystem: str = "",
        unit: str = "",
        registry: Optional[CollectorRegistry] = REGISTRY,
    ):
        return cls._register(
            _quipu.Summary, name, documentation, labelnames, namespace, subsystem, unit, registry
        )

    def time(self) -> Timer:
        """A context manager and decorator that observes the seconds that a block took."""
        return Timer(self, "observe")


class Histogram(_quipu.Histogram, MetricWrapperBase):
    """Counts of observations by size."""

    __slots__ = ()
    _type = "histogram"
    _reserved_labelnames = ("le",)
    DEFAULT_BUCKETS = (
        0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
        float("inf"),
    )

    def __new__(
        cls,
        name: str,
        documentation: str,
        labelnames: Iterable[str] = (),
        namespace: str = "",
        subsystem: str = "",
        unit: str = "",
        registry: Optional[CollectorRegistry] = REGISTRY,
        _labelvalues=None,
        buckets: Sequence[Union[float, str]] = DEFAULT_BUCKETS,
    ):
        bounds = [float(bound) for bound in buckets]
        if bounds != sorted(bounds):
            raise ValueError("Buckets not in sorted order")
        if bounds and bounds[-1] != float("inf"):
            bounds.append(float("inf"))
        if len(bounds) < 2:
            raise ValueError("Must have at least two buckets")
        return cls._register(
            _quipu.Histogram,
            name,
            documentation,
            labelnames,
            namespace,
            subsystem,
            unit,
            registry,
            buckets=bounds,
        )

    def time(self) -> Timer:
        """A context manager and decorator that observes the seconds that a block took."""
        return Timer(self, "observe")


class Enum(_quipu.Enum, MetricWrapperBase):
    """Which of its states is on. The first is, until another one is set."""

    __slots__ = ()
    _type = "stateset"

    def __new__(
        cls,
        name: str,
        documentation: str,
        labelnames: Sequence[str] = (),
        namespace: str = "",
        subsystem: str = "",
        unit: str = "",
        registry: Optional[CollectorRegistry] = REGISTRY,
        _labelvalues=None,
        states: Optional[Sequence[str]] = None,
    ):
        if name in labelnames:
            raise ValueError(f"Overlapping labels for Enum metric: {name}")
        if not states:
            raise ValueError(f"No states provided for Enum metric: {name}")
        return cls._register(
            _quipu.Enum,
            name,
            documentation,
            labelnames,
            namespace,
            subsystem,
            unit,
            registry,
            states=list(states),
        )


class Info(MetricWrapperBase):
    """Texts, as labels of a series that is always 1. What is set last counts, of all processes.

    It is shown from the first ``info()`` on. All children have the same names of texts: those that
    were given last. Another set of names than the first is kept in memory of this process and its
    children.
    """

    _type = "info"
    __slots__ = (
        "_name", "_documentation", "_unit", "_labelnames", "_labelvalues", "_segment", "_native",
        "_root", "_registry", "_segments", "__weakref__",
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
    ) -> None:
        self._name = _full_name(self._type, name, namespace, subsystem, unit)
        self._documentation, self._unit = documentation, unit
        self._labelnames = tuple(_check_labels(labelnames, ()))
        self._labelvalues = ()
        self._root, self._registry, self._segments = self, registry, {}
        self._native = _quipu.Info(self._name, documentation, list(self._labelnames))
        if isinstance(registry, CollectorRegistry):
            self._segment = registry._segment
        else:
            self._segment = segments.anonymous()
        if registry is not None:
            registry.register(self)

    def labels(self, *labelvalues, **labelkwargs) -> "Info":
        """The child of these label values."""
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
        child = object.__new__(type(self))
        for name in ("_name", "_documentation", "_unit", "_labelnames", "_registry"):
            setattr(child, name, getattr(self, name))
        child._native, child._segment, child._root = self._native, self._segment, self
        child._labelvalues = tuple(str(value) for value in labelvalues)
        return child

    def info(self, val: Dict[str, str]) -> None:
        """Makes these the texts."""
        self._raise_if_not_observable()
        if set(self._labelnames) & set(val):
            raise ValueError(
                f"Overlapping labels for Info metric, metric: {self._labelnames} child: {val}"
            )
        if any(text is None for text in val.values()):
            raise ValueError("Label value cannot be None")
        _check_labels(val, ())
        root, values = self._root, list(self._labelvalues)
        texts = sorted((name, str(text)) for name, text in val.items())
        names = tuple(name for name, _ in texts)
        segment = root._segments.get(names, root._segment)
        if not root._native.set(segment, values, texts):
            segment = segments.anonymous()
            root._native.set(segment, values, texts)
        root._segments[names] = segment
        root._go_on_in(segment)

    def _go_on_in(self, segment) -> None:
        """Shows what this segment has, and not what another one has."""
        if segment is self._segment:
            return
        self._segment, registry = segment, self._registry
        if not isinstance(registry, CollectorRegistry):
            return
        if segment is registry._own_segment:
            registry._hidden.discard(self._name)
            return
        registry._hidden.add(self._name)
        if registry._segment.path is not None:
            segments.warn(
                f"the info {self._name!r} is there with other names of texts; now it is in "
                "memory of this process and its children"
            )

    def remove(self, *labelvalues) -> None:
        """Removes the texts of these label values, for all processes."""
        if not self._labelnames:
            raise ValueError(f"No label names were set when constructing {self}")
        if len(labelvalues) != len(self._labelnames):
            raise ValueError(
                f"Incorrect label count (expected {len(self._labelnames)}, got {labelvalues})"
            )
        self._remove_matching([(n, str(v)) for n, v in zip(self._labelnames, labelvalues)])

    def _remove_matching(self, pairs) -> None:
        self._native.remove(pairs)

    def _is_observable(self) -> bool:
        return not self._labelnames or bool(self._labelvalues)

