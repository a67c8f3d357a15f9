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

    A metric of this package that is made for it counts in memory of its own, which this process and
    the children share that it forks afterwards: registries are apart, whatever the names are. With
    the ``path`` of a directory, its metrics count by their names in a file there, which all
    processes share that are given the same path; so do those of the default registry, where
    ``configure`` says. What else has a method ``collect()`` is asked at each scrape.
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
        # Metrics of this package: those that are found by name in this registry's segment, and how
        # many forks there had been when each was registered; those that are elsewhere; infos, which
        # may be both. What else there is, is asked.
        self._own: Dict[object, int] = {}
        self._apart: Dict[object, None] = {}
        self._infos: Dict[object, None] = {}
        self._foreign: Dict[object, None] = {}
        self._gauges: Dict[object, None] = {}
        # Names in the segment that are not shown: they were unregistered, or have been made again
        # elsewhere.
        self._hidden = set()
        # Names of those that this process alone had: who makes one again begins at zero.
        self._gone = set()
        self._lock = threading.Lock()
        self._target_info: Optional[Dict[str, str]] = None
        self._own_segment = _segment
        if path is not None:
            self._own_segment = segments.open_segment(path, limit or segments.LIMIT)
        self.set_target_info(target_info)
        _registries.add(self)

    # Where the numbers are.

    def _replace_segment(self, segment) -> None:
        with self._lock:
            if self._own or self._infos:
                raise RuntimeError(
                    "quipu.configure() comes after the first metric; call it before any is made, or "
                    "set QUIPU_DIR in the environment"
                )
            self._own_segment = segment
            self._hidden.clear()
            self._gone.clear()

    def _named_segment(self, name):
        """The segment in which a metric of that name goes on with what is counted there under it, if
        it does."""
        return None if name in self._gone else self._own_segment

    def _make(self, name, make) -> None:
        """Makes a metric in the segment; where it cannot be there, in another one."""
        segment = self._named_segment(name)
        if segment is None:
            return segments.apart.make(make)
        try:
            return make(segment, True)
        except (_quipu.MismatchError, _quipu.NoRoomError) as error:
            is_mismatch = isinstance(error, _quipu.MismatchError)
            segments.apart.make(make)
            # In memory, it is a metric of that name that was unregistered: nothing is amiss.
            if segment.path is not None or not is_mismatch:
                segments.warn(
                    f"{error}; now it counts in memory of this process and its children",
                    name if is_mismatch else "full",
                )

    # Which metrics there are.

    def register(self, collector) -> None:
        """Adds a metric, or anything that has a method ``collect()``."""
        with self._lock:
            names = self._get_names(collector)
            duplicates = {name for name in names if name in self._names_to_collectors}
            if duplicates:
                raise DuplicateTimeseries(duplicates)
            for name in names:
                self._names_to_collectors[name] = collector
            self._collector_to_names[collector] = names
            self._sort_in(collector)

    def _sort_in(self, collector) -> None:
        name = getattr(collector, "_name", None)
        if not _is_native(collector):
            self._foreign[collector] = None
            if isinstance(getattr(collector, "_segment", None), _quipu.Segment):
                self._hidden.add(name)
            return
        if collector._type == "gauge":
            self._gauges[collector] = None
        is_own = self._own_segment is not None and collector._segment is self._own_segment
        if collector._type == "info":
            self._infos[collector] = None
        elif is_own:
            self._own[collector] = _forks
        else:
            self._apart[collector] = None
        if is_own:
            self._hidden.discard(name)
            self._gone.discard(name)
        elif self._own_segment is not None:
            # Only now: another thread may have been first with the name in this segment.
            self._hidden.add(name)

    def unregister(self, collector) -> None:
        """Removes a metric: this registry of this process shows it no more. What is counted in it
        goes on, and is there when it is registered again."""
        with self._lock:
            for name in self._collector_to_names.pop(collector):
                del self._names_to_collectors[name]
            registered = self._own.pop(collector, None)
            for some in (self._apart, self._infos, self._foreign, self._gauges):
                some.pop(collector, None)
            segment = self._own_segment
            if segment is None or getattr(collector, "_segment", None) is not segment:
                return
            self._hidden.add(collector._name)
            segment.unregister(collector._name)
            # A file is shared with processes that nobody knows of, and a fork may have left it to a
            # child.
            is_only_ours = registered is None or registered == _forks
            if segment.path is None and is_only_ours:
                self._gone.add(collector._name)

    def _check_names(self, names: Iterable[str]) -> None:
        with self._lock:
            duplicates = {name for name in names if name in self._names_to_collectors}
        if duplicates:
            raise DuplicateTimeseries(duplicates)

    def _get_names(self, collector) -> List[str]:
        if _is_native(collector):
            return names_of(collector._name, collector._type)
        describe = getattr(collector, "describe", None)
        if describe is None and self._auto_describe:
            describe = collector.collect
        if describe is None:
            return []
        return [name for metric in describe() for name in names_of(metric.name, metric.type)]

    # What a scrape shows.

    def _scraped(self):
        """What is read without asking: a segment, the names in it that are not shown, and sources."""
        with self._lock:
            hidden = set(self._hidden)
            gauges, apart, infos = list(self._gauges), list(self._apart), list(self._infos)
        ask_functions(gauges)
        return self._chosen(hidden, apart, infos)

    def _chosen(self, hidden, apart, infos):
        sources = [source for metric in apart for source in metric._sources]
        for info in infos:
            if not info._is_in(self._own_segment):
                hidden.add(info._name)
                sources += info._sources
        return self._own_segment, hidden, sources

    def _foreign_metrics(self):
        if self._target_info:
            yield self._target_info_metric()
        with self._lock:
            foreign = list(self._foreign)
        for collector in foreign:
            yield from collector.collect()

    def _collect(self, created: bool):
        for family in _quipu.collect(*self._scraped(), created):
            yield metric_of(family)
        yield from self._foreign_metrics()

    def _collect_all(self, created: bool):
        """The metrics of this package alone, those included that this process has unregistered."""
        with self._lock:
            apart, infos = list(self._apart), list(self._infos)
            gauges = list(self._gauges)
        ask_functions(gauges)
        hidden = {metric._name for metric in apart}
        for family in _quipu.collect(*self._chosen(hidden, apart, infos), created):
            yield metric_of(family)

    def _collect_names(self, names, created: bool):
        """The metrics that have samples of some of these names: no other collector is asked."""
        found: Dict[object, None] = {}
        others = set()
        with self._lock:
            if "target_info" in names and self._target_info:
                found[self] = None
            for name in names:
                collector = self._names_to_collectors.get(name)
                if collector is not None:
                    found[collector] = None
                else:
                    others.update(_stems(name))
            if self._support_collectors_without_names:
                found.update((c, None) for c, given in self._collector_to_names.items() if not given)
            others -= self._hidden
        for collector in found:
            if collector is self:
                yield self._target_info_metric()
            elif _is_native(collector):
                yield from collector._collect(created)
            else:
                yield from collector.collect()
        # What other processes have made.
        if self._own_segment is not None:
            for name in others.difference(self._names_to_collectors):
                for family in self._own_segment.find(name, created):
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
        for metric in self._registry._collect_names(self._names, wanted):
            restricted = metric._restricted_metric(self._names)
            if restricted:
                yield restricted

    def collect(self) -> Iterable[Metric]:
        """The metrics with those of their samples that have one of the names."""
        return self._collect(True)


def names_of(name: str, typ: str) -> List[str]:
    """The names that a metric takes: its own, and those of its samples."""
    return [name, *(name + suffix for suffix in _SUFFIXES.get(typ, ()))]


def _stems(name: str):
    """The names of metrics that may have samples of this name."""
    yield name
    for suffix in {suffix for suffixes in _SUFFIXES.values() for suffix in suffixes}:
        if name.endswith(suffix):
            yield name[: -len(suffix)]


def _is_native(collector) -> bool:
    """Whether it is a metric of this package that does not collect in a way of its own."""
    cls = type(collector)
    native = getattr(cls, "_native_collect", None)
    return native is not None and cls.collect is native and not collector._labelvalues


def ask_functions(metrics) -> None:
    """Asks for the values of the gauges among these that have functions."""
    for metric in metrics:
        if metric._functions:
            for child, function in list(metric._functions.values()):
                child._ask(function)


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
    # Where the fork is made outside of Python, this is all that is called.
    _before_fork()
    # A thread that the child does not have may have held a lock.
    for registry in list(_registries):
        registry._lock = threading.Lock()
    segments._warned_lock = threading.Lock()
    _quipu.forget_children()


def _before_fork() -> None:
    global _forks
    _forks += 1


# How often this process was forked, and its ancestors while they had this.
_forks = 0

if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_in_child)

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
