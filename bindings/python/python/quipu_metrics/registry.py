"""The registry: the metrics that a scrape shows, and the segment that holds their numbers."""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, Iterator, List, Optional, Set, Tuple
from typing import Union, cast

from . import recording, segments
from .backend import _quipu
from .interfaces import Collector
from .metrics_core import Metric
from .recording import Recording, RecordingError, RecordingSettings
from .samples import Exemplar, Sample

if TYPE_CHECKING:
    from typing_extensions import TypeGuard

    from .metrics import Gauge, Info, MetricWrapperBase

    # The arguments of the native part for a scrape: a segment, the names in it to omit, and sources
    # of other metrics.
    _Scraped = Tuple[Optional[_quipu.Segment], Set[str], List[_quipu.Source]]

_SUFFIXES = {
    "counter": ("_total", "_created"),
    "summary": ("_sum", "_count", "_created"),
    "histogram": ("_bucket", "_sum", "_count", "_created"),
    "gaugehistogram": ("_bucket", "_gsum", "_gcount"),
    "info": ("_info",),
}

_registries: "weakref.WeakSet[CollectorRegistry]" = weakref.WeakSet()


class DuplicateTimeseries(ValueError):
    """Raised for a metric if the registry already contains one of its names."""

    def __init__(self, duplicates: Set[str]) -> None:
        super().__init__(f"Duplicated timeseries in CollectorRegistry: {duplicates}")
        self.duplicates = duplicates


class CollectorRegistry:
    """A set of metrics that are scraped together.

    A metric of this package counts in memory that this process shares with the children that it
    forks afterwards. Registries are independent: two metrics with the same name in different
    registries share no numbers. With ``path``, a directory, metrics are shared by name, in a file
    there, with all processes that use the same path. You can set ``limit``, ``mode`` and ``group``
    like in ``configure``. Metrics of the default registry are shared by name in the memory that
    ``configure`` chooses. Any other object with a method ``collect()`` is called at each scrape.
    """

    def __init__(
        self,
        auto_describe: bool = False,
        target_info: Optional[Dict[str, str]] = None,
        support_collectors_without_names: bool = False,
        *,
        path: Optional[segments.Path] = None,
        limit: Optional[int] = None,
        mode: Optional[int] = None,
        group: Union[int, str, None] = None,
        _segment: Optional[_quipu.Segment] = None,
    ) -> None:
        self._auto_describe = auto_describe
        self._support_collectors_without_names = support_collectors_without_names
        self._collector_to_names: Dict[Collector, List[str]] = {}
        self._names_to_collectors: Dict[str, Collector] = {}
        # `_own` contains the metrics of this package in this registry's segment, where processes
        # find them by name, each with the number of forks at its registration. `_apart` contains
        # metrics of this package in other segments, and `_infos` can be in both. `_foreign`
        # contains all other collectors, which are called at each scrape.
        self._own: Dict[Collector, int] = {}
        self._apart: Dict[MetricWrapperBase, None] = {}
        self._infos: Dict[Info, None] = {}
        self._foreign: Dict[Collector, None] = {}
        self._gauges: Dict[Gauge, None] = {}
        # Names in the segment that are not shown, because their metrics were unregistered, or
        # created again elsewhere.
        self._hidden: Set[str] = set()
        # Names of unregistered metrics that only this process used: a new metric with such a name
        # starts at zero.
        self._gone: Set[str] = set()
        self._lock = threading.Lock()
        self._target_info: Optional[Dict[str, str]] = None
        self._own_segment = _segment
        if path is not None:
            self._own_segment = segments.open_segment(
                path, limit or segments.LIMIT, mode, group
            )
        self.set_target_info(target_info)
        _registries.add(self)

    # The segment that holds the numbers.

    def _replace_segment(self, segment: _quipu.Segment) -> None:
        with self._lock:
            if self._own or self._infos:
                raise RuntimeError(
                    "quipu.configure() was called after a metric was made: call it before any is "
                    "made, or set QUIPU_DIR in the environment"
                )
            before, self._own_segment = self._own_segment, segment
            self._hidden.clear()
            self._gone.clear()
        recording.close(before)

    def _named_segment(self, name: str) -> Optional[_quipu.Segment]:
        """Returns the segment where a metric of that name continues from its count, or None if it
        starts at zero elsewhere."""
        return None if name in self._gone else self._own_segment

    def _make(self, name: str, make: Callable[..., None]) -> None:
        """Creates a metric in this registry's segment. If the segment is full, or contains a metric
        with this name but other labels or settings, creates the metric in a separate segment."""
        segment = self._named_segment(name)
        if segment is None:
            return segments.apart.make(make)
        try:
            return make(segment, True)
        except (_quipu.MismatchError, _quipu.NoRoomError) as error:
            is_mismatch = isinstance(error, _quipu.MismatchError)
            segments.apart.make(make)
            # In anonymous memory, the mismatch is with an unregistered metric, so there is no
            # reason to warn.
            if segment.path is not None or not is_mismatch:
                segments.warn(
                    f"{error}; it now counts in memory of only this process and its children",
                    name if is_mismatch else "full",
                )

    # Registration.

    def register(self, collector: Collector) -> None:
        """Adds a metric, or any object with a method ``collect()``.

        Raises ``DuplicateTimeseries`` if the registry already contains one of its names.
        """
        with self._lock:
            names = self._get_names(collector)
            duplicates = {name for name in names if name in self._names_to_collectors}
            if duplicates:
                raise DuplicateTimeseries(duplicates)
            for name in names:
                self._names_to_collectors[name] = collector
            self._collector_to_names[collector] = names
            self._sort_in(collector)

    def _sort_in(self, collector: Collector) -> None:
        if not _is_native(collector):
            self._foreign[collector] = None
            if isinstance(getattr(collector, "_segment", None), _quipu.Segment):
                self._hidden.add(getattr(collector, "_name"))
            return
        name = collector._name
        if collector._type == "gauge":
            self._gauges[cast("Gauge", collector)] = None
        is_own = self._own_segment is not None and collector._segment is self._own_segment
        if collector._type == "info":
            self._infos[cast("Info", collector)] = None
        elif is_own:
            self._own[collector] = _forks
        else:
            self._apart[collector] = None
        if is_own:
            self._hidden.discard(name)
            self._gone.discard(name)
        elif self._own_segment is not None:
            # Hide the name only now, because another thread can be the first to use it in this
            # segment.
            self._hidden.add(name)

    def unregister(self, collector: Collector) -> None:
        """Removes a metric: this registry no longer shows it in this process. The metric continues
        to count, and you see its numbers when you register it again."""
        with self._lock:
            for name in self._collector_to_names.pop(collector):
                del self._names_to_collectors[name]
            registered = self._own.pop(collector, None)
            others: List[Dict[Any, None]] = [self._apart, self._infos, self._foreign, self._gauges]
            for some in others:
                some.pop(collector, None)
            segment = self._own_segment
            if segment is None:
                return
            is_in_segment = getattr(collector, "_segment", None) is segment
            if not is_in_segment:
                return
            name = getattr(collector, "_name")
            self._hidden.add(name)
            segment.unregister(name)
            # Unknown processes can share a file, and a child can inherit the metric by a fork.
            is_only_ours = registered is None or registered == _forks
            if segment.path is None and is_only_ours:
                self._gone.add(name)

    def _check_names(self, names: Iterable[str]) -> None:
        with self._lock:
            duplicates = {name for name in names if name in self._names_to_collectors}
        if duplicates:
            raise DuplicateTimeseries(duplicates)

    def _get_names(self, collector: Collector) -> List[str]:
        if _is_native(collector):
            return names_of(collector._name, collector._type)
        describe = getattr(collector, "describe", None)
        if describe is None and self._auto_describe:
            describe = collector.collect
        if describe is None:
            return []
        return [name for metric in describe() for name in names_of(metric.name, metric.type)]

    # Scrapes.

    def _scraped(self) -> _Scraped:
        """Calls the functions of gauges, and returns the arguments of the native part for a scrape."""
        with self._lock:
            hidden = set(self._hidden)
            gauges, apart, infos = list(self._gauges), list(self._apart), list(self._infos)
        ask_functions(gauges)
        return self._chosen(hidden, apart, infos)

    def _chosen(
        self, hidden: Set[str], apart: Iterable[MetricWrapperBase], infos: Iterable[Info]
    ) -> _Scraped:
        sources = [source for metric in apart for source in metric._sources]
        for info in infos:
            if not info._is_in(self._own_segment):
                hidden.add(info._name)
                sources += info._sources
        return self._own_segment, hidden, sources

    def _foreign_metrics(self) -> Iterator[Metric]:
        if self._target_info:
            yield self._target_info_metric()
        with self._lock:
            foreign = list(self._foreign)
        for collector in foreign:
            yield from _collected(collector)

    def _collect(self, created: bool) -> Iterator[Metric]:
        for family in _quipu.collect(*self._scraped(), created):
            yield metric_of(family)
        yield from self._foreign_metrics()

    def _collect_all(self, created: bool) -> Iterator[Metric]:
        """Returns only the metrics of this package, including metrics that this process
        unregistered."""
        with self._lock:
            apart, infos = list(self._apart), list(self._infos)
            gauges = list(self._gauges)
        ask_functions(gauges)
        hidden = {metric._name for metric in apart}
        for family in _quipu.collect(*self._chosen(hidden, apart, infos), created):
            yield metric_of(family)

    def _collect_names(self, names: Set[str], created: bool) -> Iterator[Metric]:
        """Returns the metrics with samples of these names. No other collector is called."""
        found: Dict[Collector, None] = {}
        others: Set[str] = set()
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
                yield from _collected(collector)
        # Add metrics that only other processes created.
        if self._own_segment is not None:
            for name in others.difference(self._names_to_collectors):
                for family in self._own_segment.find(name, created):
                    yield metric_of(family)

    def collect(self) -> Iterable[Metric]:
        """Returns the metrics with their samples, including metrics that other processes made."""
        return self._collect(True)

    def get_sample_value(
        self, name: str, labels: Optional[Dict[str, str]] = None
    ) -> Optional[float]:
        """Returns the value of a sample, or None.

        Use it only in tests, because it collects the whole registry.
        """
        labels = labels or {}
        for metric in self.collect():
            for sample in metric.samples:
                if sample.name == name and sample.labels == labels:
                    return sample.value
        return None

    def restricted_registry(self, names: Iterable[str]) -> RestrictedRegistry:
        """Returns a view that shows only the samples with these names."""
        return RestrictedRegistry(names, self)

    # The flight recorder.

    def record(
        self,
        interval: float = 1.0,
        *,
        bytes: int = 4 << 20,
        series: int = 1000,
        families: Iterable[str] = (),
    ) -> Recording:
        """Records the metrics every ``interval`` seconds. After a crash, even a SIGKILL, you can
        see the seconds before it by ``quipu inspect --history FILE``.

        Takes ``bytes`` of the segment, 16 KiB to 64 MiB, at once; when they are full, the oldest
        sixteenth makes room. Records at most ``series`` series, 1 to 16,384, of the metrics named
        in ``families``, or of all. ``interval`` can be 0.001 to 3600.

        This continues until you close it or the process ends, and in children of forks. If several
        processes that share the numbers record, one of them writes, and another one takes over when
        it ends. Counting is not slowed down. Metrics that are not in the registry's segment are not
        recorded, for example metrics of other libraries, and functions of gauges between scrapes.

        Raises ``RecordingError``, a ``ValueError``, for options out of range, if there is no room
        or no thread, and for a registry without a segment.
        """
        options = recording.checked(interval, bytes, series, families)
        if self._own_segment is None:
            raise RecordingError(
                "the metrics of this registry are found by no other process, and cannot be "
                "recorded: make the registry with path=, or use the default registry"
            )
        return Recording(self._own_segment, options)

    @property
    def recording(self) -> Optional[Recording]:
        """The open recording of the metrics, such as the recording of ``configure``, or None."""
        return recording.of(self._own_segment)

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
        """Returns the labels of the metric ``target_info``."""
        return self._target_info

    def _target_info_metric(self) -> Metric:
        metric = Metric("target", "Target metadata", "info")
        metric.add_sample("target_info", dict(self._target_info or {}), 1)
        return metric


class RestrictedRegistry:
    """A view of a registry that shows only the samples with some names."""

    def __init__(self, names: Iterable[str], registry: CollectorRegistry) -> None:
        self._names = set(names)
        self._registry = registry

    def _collect(self, created: bool) -> Iterator[Metric]:
        wanted = created or any(name.endswith("_created") for name in self._names)
        for metric in self._registry._collect_names(self._names, wanted):
            restricted = metric._restricted_metric(self._names)
            if restricted:
                yield restricted

    def collect(self) -> Iterable[Metric]:
        """Returns the metrics with only the samples whose name is in the view."""
        return self._collect(True)


def _collected(collector: Collector) -> Iterable[Metric]:
    # Metrics of `prometheus_client` provide the same attributes and methods.
    return cast(Iterable[Metric], collector.collect())


def names_of(name: str, typ: str) -> List[str]:
    """Returns the names that a metric occupies: its own, and the names of its samples."""
    return [name, *(name + suffix for suffix in _SUFFIXES.get(typ, ()))]


def _stems(name: str) -> Iterator[str]:
    """Returns the names of metrics that can contain samples of this name."""
    yield name
    for suffix in {suffix for suffixes in _SUFFIXES.values() for suffix in suffixes}:
        if name.endswith(suffix):
            yield name[: -len(suffix)]


def _is_native(collector: object) -> TypeGuard[MetricWrapperBase]:
    """Returns whether it is a metric of this package, not a child, with the original
    ``collect``."""
    cls = type(collector)
    native = getattr(cls, "_native_collect", None)
    is_own = native is not None and getattr(cls, "collect") is native
    return is_own and not getattr(collector, "_labelvalues")


def ask_functions(metrics: Iterable[MetricWrapperBase]) -> None:
    """Sets each gauge with a function to the result of that function."""
    for metric in metrics:
        if metric._functions:
            for child, function in list(metric._functions.values()):
                child._ask(function)


def metric_of(family: _quipu._Family) -> Metric:
    """Converts a family that the native part returned."""
    name, documentation, typ, unit, samples = family
    metric = Metric(name, documentation, typ)
    metric.unit = unit
    metric.samples = [
        Sample(name, labels, value, None, Exemplar(*exemplar) if exemplar else None)
        for name, labels, value, exemplar in samples
    ]
    return metric


def _before_fork() -> None:
    _count_fork()
    recording.pause()


def _in_child() -> None:
    # A fork outside of Python, such as uWSGI's, calls only this function.
    _count_fork()
    # A thread that does not exist in the child can be the owner of a lock.
    for registry in list(_registries):
        registry._lock = threading.Lock()
    segments._warned_lock = threading.Lock()
    _quipu.forget_children()
    recording.resume()


def _count_fork() -> None:
    global _forks
    _forks += 1


# Grows with each fork, in the parent and in the child, so a changed number means that a child may
# have inherited the metrics.
_forks = 0

if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=recording.resume, after_in_child=_in_child
    )

REGISTRY = CollectorRegistry(
    auto_describe=True, _segment=segments.open_segment(segments.configured_path())
)


def configure(
    path: Optional[segments.Path] = None,
    limit: int = segments.LIMIT,
    *,
    mode: Optional[int] = None,
    group: Union[int, str, None] = None,
    record: Union[bool, RecordingSettings] = False,
) -> None:
    """Chooses the memory of the default registry's numbers. Call this before you create a metric.

    Without a path, the numbers are in memory that this process shares with the children that it
    forks afterwards. With the path of a directory, they are in a file there. All processes with the
    same path share this file, and it outlives them. ``limit`` is the maximum size in bytes.
    ``mode`` is the permission bits of a new file, by default 0o600 independent of the umask;
    ``group`` is the ID or the name of its group. A user without the right to write the file cannot
    count there. With ``record=True``, or a dict of the arguments of ``CollectorRegistry.record``,
    the numbers are recorded; if there is no room for this, it warns. An earlier recording of the
    default registry ends.

    Raises ``RuntimeError`` if the default registry already contains a metric, and ``ValueError``
    for a mode, a group or options of ``record`` that are out of range.
    """
    options = recording.wanted(record)
    REGISTRY._replace_segment(segments.open_segment(path, limit, mode, group))
    recording.ensure(REGISTRY._own_segment, options)
