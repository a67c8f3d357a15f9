"""The registry: which metrics a scrape shows, and the segment that has their numbers."""

import os
import threading
import weakref
from typing import Dict, Iterable, List, Optional

from . import _quipu, segments
from .core import Exemplar, Metric, Sample

_SUFFIXES = {
    "counter": ("_total", "_created"),
    "summary": ("_sum", "_count", "_created"),
    "histogram": ("_bucket", "_sum", "_count", "_created"),
    "gaugehistogram": ("_bucket", "_gsum", "_gcount"),
    "info": ("_info",),
}

_registries: "weakref.WeakSet[CollectorRegistry]" = weakref.WeakSet()


class DuplicateTimeseries(ValueError):
    """A metric whose names another one has already."""

    def __init__(self, duplicates):
        super().__init__(f"Duplicated timeseries in CollectorRegistry: {duplicates}")
        self.duplicates = duplicates


class CollectorRegistry:
    """A set of metrics that are scraped together.

    Metrics of this package that are registered here count in its segment, which the processes of an
    application share. What else has a method ``collect()`` is asked at each scrape.
    """

    def __init__(
        self,
        auto_describe: bool = False,
        target_info: Optional[Dict[str, str]] = None,
        support_collectors_without_names: bool = False,
        *,
        path: Optional[str] = None,
        limit: Optional[int] = None,
        _segment=None,
    ) -> None:
        self._auto_describe = auto_describe
        self._support_collectors_without_names = support_collectors_without_names
        self._collector_to_names: Dict[object, List[str]] = {}
        self._names_to_collectors: Dict[str, object] = {}
        # Families in the segment that are not shown: they were unregistered, or have been made
        # anew with other settings.
        self._hidden = set()
        # Segments of metrics that cannot be in this one.
        self._spares = []
        self._lock = threading.Lock()
        self._target_info: Optional[Dict[str, str]] = None
        self._own_segment = _segment
        self._limit = limit or segments.SMALL_LIMIT
        if path is not None:
            self._own_segment = segments.open_segment(path, self._limit)
        self.set_target_info(target_info)
        _registries.add(self)

    # Where the numbers are.

    @property
    def _segment(self):
        if self._own_segment is None:
            self._own_segment = segments.anonymous(self._limit)
        return self._own_segment

    def _replace_segment(self, segment) -> None:
        with self._lock:
            if any(self._is_own(collector) for collector in self._collector_to_names):
                raise RuntimeError(
                    "quipu.configure() comes after the first metric; call it before any is made, or "
                    "set QUIPU_DIR in the environment"
                )
            self._own_segment = segment

    def _is_own(self, collector) -> bool:
        segment = getattr(collector, "_segment", None)
        return segment is not None and segment is self._own_segment

    def _make(self, name, make):
        """Makes a metric in the segment; where it cannot be there, in another one."""
        try:
            return make(self._segment)
        except ValueError as error:
            metric = self._make_apart(make)
            # After another metric of that name was unregistered, nothing is amiss.
            is_mismatch = isinstance(error, _quipu.MismatchError)
            if self._segment.path is not None or not is_mismatch:
                segments.warn(
                    f"{error}; now it counts in memory of this process and its children",
                    name if is_mismatch else "full",
                )
            return metric

    def _make_apart(self, make):
        for segment in self._spares:
            try:
                return make(segment)
            except ValueError:
                pass
        segment = segments.anonymous()
        # What no segment takes is refused by this one too.
        metric = make(segment)
        self._spares.append(segment)
        return metric

    # Which metrics there are.

    def register(self, collector) -> None:
        """Adds a metric, or anything that has a method ``collect()``."""
        with self._lock:
            names = self._get_names(collector)
            duplicates = set(self._names_to_collectors).intersection(names)
            if duplicates:
                raise DuplicateTimeseries(duplicates)
            for name in names:
                self._names_to_collectors[name] = collector
            self._collector_to_names[collector] = names
            if self._is_own(collector):
                self._hidden.discard(collector._name)
            elif getattr(collector, "_segment", None) in self._spares:
                # Only now: another thread may have been first with the name in this segment.
                self._hidden.add(collector._name)

    def unregister(self, collector) -> None:
        """Removes a metric. If its numbers are in this registry's segment, they go, for all
        processes; should the name be registered again, it begins at zero."""
        with self._lock:
            for name in self._collector_to_names.pop(collector):
                del self._names_to_collectors[name]
            if self._is_own(collector):
                self._hidden.add(collector._name)
                collector._remove_matching([])
                self._own_segment.unregister(collector._name)
                segments.forget_functions(self._own_segment, collector._name)
            elif getattr(collector, "_segment", None) in self._spares:
                collector._remove_matching([])
                collector._segment.unregister(collector._name)

    def _check_names(self, names: Iterable[str]) -> None:
        with self._lock:
            duplicates = set(self._names_to_collectors).intersection(names)
        if duplicates:
            raise DuplicateTimeseries(duplicates)

    def _get_names(self, collector) -> List[str]:
        describe = getattr(collector, "describe", None)
        if describe is None and self._auto_describe:
            describe = collector.collect
        if describe is None:
            return []
        return [name for metric in describe() for name in names_of(metric.name, metric.type)]

    # What a scrape shows.

    def _foreign(self) -> List[object]:
        """What is asked for its samples."""
        with self._lock:
            return [c for c in self._collector_to_names if not self._is_own(c)]

    def _foreign_metrics(self):
        if self._target_info:
            yield self._target_info_metric()
        yield from self._asked(False)

    def _asked(self, created: bool):
        for collector in self._foreign():
            if isinstance(getattr(collector, "_segment", None), _quipu.Segment):
                # A metric of this package, in another segment.
                yield from collector._collect(created)
            else:
                yield from collector.collect()

    def _collect(self, created: bool):
        if self._target_info:
            yield self._target_info_metric()
        if self._own_segment is not None:
            segments.ask_functions(self._own_segment)
            yield from self._families(self._own_segment, created, self._hidden)
        yield from self._asked(created)

    def _collect_own(self, created: bool):
        """The metrics of this package alone."""
        for segment in (self._own_segment, *self._spares):
            if segment is not None:
                hidden = self._hidden if segment is self._own_segment else ()
                yield from self._families(segment, created, hidden)

    @staticmethod
    def _families(segment, created, hidden):
        for family in segment.collect(None, created):
            if family[0] not in hidden:
                yield metric_of(family)

    def collect(self) -> Iterable[Metric]:
        """The metrics with their samples, those that other processes made included."""
        return self._collect(True)

    def get_sample_value(
        self, name: str, labels: Optional[Dict[str, str]] = None
    ) -> Optional[float]:
        """The value of a sample; None where there is none. It is for tests: it reads all."""
        labels = labels or {}
        for metric in self.collect():
            for sample in metric.samples:
                if sample.name == name and sample.labels == labels:
                    return sample.value
        return None

    def restricted_registry(self, names: Iterable[str]) -> "RestrictedRegistry":
        """A view that shows only the samples of these names."""
        return RestrictedRegistry(names, self)

    # Labels of the target.

    def set_target_info(self, labels: Optional[Dict[str, str]]) -> None:
        """Sets the labels of the metric ``target_info``."""
        with self._lock:
            if labels:
                if not self._target_info and "target_info" in self._names_to_collectors:
                    raise ValueError("CollectorRegistry already contains a target_info metric")
                self._names_to_collectors["target_info"] = self
            elif self._target_info:
                self._names_to_collectors.pop("target_info", None)
            self._target_info = labels

    def get_target_info(self) -> Optional[Dict[str, str]]:
        """The labels of the metric ``target_info``."""
        return self._target_info

    def _target_info_metric(self) -> Metric:
        metric = Metric("target", "Target metadata", "info")
        metric.add_sample("target_info", dict(self._target_info or {}), 1)
        return metric


class RestrictedRegistry:
    """What a registry shows of some names."""

    def __init__(self, names: Iterable[str], registry: CollectorRegistry) -> None:
        self._names = set(names)
        self._registry = registry

    def _collect(self, created: bool):
        wanted = created or any(name.endswith("_created") for name in self._names)
        for metric in self._registry._collect(wanted):
            restricted = metric._restricted_metric(self._names)
            if restricted:
                yield restricted

    def collect(self) -> Iterable[Metric]:
        """The metrics with those of their samples that have one of the names."""
        return self._collect(True)


def names_of(name: str, typ: str) -> List[str]:
    """The names that a metric takes: its own, and those of its samples."""
    return [name, *(name + suffix for suffix in _SUFFIXES.get(typ, ()))]


def metric_of(family) -> Metric:
    """A metric of what the native part answers."""
    name, documentation, typ, unit, samples = family
    metric = Metric(name, documentation, typ)
    metric.unit = unit
    metric.samples = [
        Sample(name, labels, value, None, Exemplar(*exemplar) if exemplar else None)
        for name, labels, value, exemplar in samples
    ]
    return metric


def _in_child() -> None:
    # A thread that the child does not have may have held a lock.
    for registry in list(_registries):
        registry._lock = threading.Lock()
    segments._warned_lock = threading.Lock()
    _quipu.forget_children()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)

REGISTRY = CollectorRegistry(
    auto_describe=True, _segment=segments.open_segment(segments.configured_path())
)


def configure(path: Optional[str] = None, limit: int = segments.LIMIT) -> None:
    """Chooses where the numbers of the default registry are, before the first metric is made.

    Without a path they are in memory that this process shares with the children that it forks from
    then on. With the path of a directory they are in a file there, which all processes share that
    are given the same path; it outlives them. ``limit`` is the bytes up to which it may grow.
    """
    REGISTRY._replace_segment(segments.open_segment(path, limit))
