"""Makes the metrics of ``prometheus_client`` count in a segment, which is memory that several
processes can share. Use ``install`` if your application already uses ``prometheus_client``, because
you need not change the application's code.

Each metric of ``prometheus_client`` gets a backing metric of this package, which holds its numbers.
For a metric in the default registry of ``prometheus_client``, the backing metric is in this
package's default registry, and the processes of an application share it by name. Any other metric
gets a backing metric that is not shared, except in the multi-process mode of ``prometheus_client``,
where all are shared by name. The collectors of ``prometheus_client`` read the numbers of all
processes.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, List, Optional, Tuple, Type
from typing import Union, cast

from . import metrics, recording, segments
from .backend import IS_NATIVE, _quipu
from .interfaces import CollectedMetric, Collector
from .metrics_core import Metric
from .recording import RecordingSettings
from .registry import REGISTRY, CollectorRegistry, DuplicateTimeseries, configure

if TYPE_CHECKING:
    import prometheus_client.samples

    _Backing = Union[metrics.Counter, metrics.Gauge, metrics.Summary, metrics.Histogram]

_TYPES: Dict[str, Callable[..., _Backing]] = {
    "counter": metrics.Counter,
    "gauge": metrics.Gauge,
    "summary": metrics.Summary,
    "histogram": metrics.Histogram,
}
_is_installed = False


def install(
    path: Optional[segments.Path] = None,
    limit: int = segments.LIMIT,
    *,
    mode: Optional[int] = None,
    group: Union[int, str, None] = None,
    record: Union[bool, RecordingSettings] = False,
) -> None:
    """Makes the metrics of ``prometheus_client`` count in a segment, existing ones included.

    With a path, the segment of the default registry is in a file in that directory, with these
    permission bits and this group if the file is new: see ``configure``. Call this as early as
    possible: before the server forks its workers, or in each of them with the same path.
    Afterwards, you see the counts of all processes in ``prometheus_client.generate_latest()``, its
    applications and its ``MultiProcessCollector``, and in ``quipu.generate_latest()``. With
    ``record=True``, the segment also contains a flight recorder: see ``configure``.

    Raises the errors of ``configure``, and ``ImportError`` without ``prometheus_client``.
    """
    global _is_installed
    options = recording.wanted(record)
    if path is not None:
        configure(path, limit, mode=mode, group=group)
    recording.ensure(REGISTRY._own_segment, options)
    if _is_installed:
        return
    import prometheus_client
    from prometheus_client import multiprocess, values
    from prometheus_client import metrics as theirs

    _is_installed = True
    if not IS_NATIVE:
        # No segment is shared, so `prometheus_client` keeps its own numbers.
        REGISTRY.register(_Others(prometheus_client.REGISTRY))
        return
    setattr(values, "ValueClass", _SegmentValue)
    _patch_metrics(theirs, prometheus_client.REGISTRY)
    _patch_registry(prometheus_client.CollectorRegistry, prometheus_client.REGISTRY)

    def collect(self: object) -> List[Any]:
        return [_converted(metric) for metric in REGISTRY._collect_all(_has_created(theirs))]

    setattr(multiprocess.MultiProcessCollector, "collect", collect)
    for collector in list(prometheus_client.REGISTRY._collector_to_names):
        if isinstance(collector, theirs.MetricWrapperBase) and collector._type in _TYPES:
            _carry_over(collector)
    REGISTRY.register(_Others(prometheus_client.REGISTRY))


class _Others:
    """The collectors without a backing metric in the registry of ``prometheus_client``."""

    def __init__(self, registry: prometheus_client.CollectorRegistry) -> None:
        self._registry = registry

    def describe(self) -> List[Metric]:
        return []

    def collect(self) -> Iterable[CollectedMetric]:
        for collector in list(self._registry._collector_to_names):
            if _backing(collector) is None:
                yield from collector.collect()


# Backing metrics. In this file, "theirs" means a metric of prometheus_client.


def _backing(metric: object) -> Optional[_Backing]:
    return cast("Optional[_Backing]", getattr(metric, "__dict__", {}).get("_quipu_metric"))


def _back(metric: Any, is_named: bool) -> None:
    """Creates the backing metric of one of theirs."""
    more: Dict[str, object] = {}
    typ = metric._type
    if typ == "gauge":
        more["multiprocess_mode"] = _mode(metric._multiprocess_mode)
    elif typ == "histogram":
        more["buckets"] = metric._upper_bounds
    names = list(metric._labelnames)
    # The name is complete; a counter's gets the suffix, because this package strips it again.
    name = metric._name + ("_total" if typ == "counter" else "")
    more["unit"] = metric._unit

    def make(registry: Optional[CollectorRegistry]) -> _Backing:
        return _TYPES[typ](name, metric._documentation, names, registry=registry, **more)

    if not is_named:
        made = make(None)
    else:
        try:
            made = make(REGISTRY)
        except DuplicateTimeseries:
            known: Any = REGISTRY._names_to_collectors.get(metric._name)
            is_like = type(known) is _TYPES[typ] and known._labelnames == tuple(names)
            # In their multi-process mode, all metrics with the same name share their numbers.
            made = known if is_like and segments.is_multiprocess() else make(None)
    metric._quipu_metric = made


class _Children(Dict[Tuple[str, ...], Any]):
    """The children of one of their metrics. Adding a child binds its values."""

    __slots__ = ("_parent",)

    def __init__(self, parent: Any, children: Iterable[Any] = ()) -> None:
        super().__init__(children)
        self._parent = parent

    def __setitem__(self, labelvalues: Tuple[str, ...], child: Any) -> None:
        _bind(child, self._parent._quipu_metric)
        super().__setitem__(labelvalues, child)


def _bind(metric: Any, backing: _Backing) -> None:
    """Binds the values of a child, or of a metric without labels, to the backing metric."""
    metric._quipu_metric, labelvalues = backing, metric._labelvalues
    for name, part in _PARTS[metric._type].items():
        getattr(metric, name)._bind(backing, labelvalues, part)
    for number, bucket in enumerate(getattr(metric, "_buckets", ())):
        bucket._bind(backing, labelvalues, "bucket", number, metric._upper_bounds[number])


_PARTS = {
    "counter": {"_value": "value"},
    "gauge": {"_value": "value"},
    "summary": {"_count": "count", "_sum": "sum"},
    "histogram": {"_sum": "sum"},
}


def _mode(mode: str) -> Optional[str]:
    """Returns the mode of a gauge. Outside multi-process mode, ``all`` means one value that all processes
    share, because it is their default and cannot be distinguished from a mode that you choose."""
    return None if mode in ("", "all") and not segments.is_multiprocess() else mode or "all"


class _SegmentValue(_quipu.Value):
    """A number that all processes share."""

    __slots__ = ("_source",)
    _multiprocess = False

    def __init__(self, *args: object, **kwargs: object) -> None:
        self._source: Optional[Tuple[_Backing, Tuple[str, ...], Tuple[Any, ...]]] = None

    def _bind(self, metric: _Backing, labelvalues: Tuple[str, ...], *part: object) -> None:
        self._source = (metric, labelvalues, part)
        self._rebind()

    def _rebind(self) -> None:
        if self._source is None:
            # The value belongs to no metric: give it a separate gauge.
            gauge = metrics.Gauge("alone", "", registry=None)
            self._source = (gauge, (), ("value",))
        metric, labelvalues, part = self._source
        self.attach(metric.labels(*labelvalues) if labelvalues else metric, *part)

    def get_exemplar(self) -> Optional[prometheus_client.samples.Exemplar]:
        """Returns the latest exemplar of all processes."""
        from prometheus_client.samples import Exemplar

        kept = self._exemplar()
        return Exemplar(dict(kept[0]), kept[1], kept[2]) if kept else None


def _carry_over(metric: Any) -> None:
    """Moves the numbers of a metric that was created before ``install``."""
    _back(metric, True)
    is_parent = metric._is_parent()
    for one in list(metric._metrics.values()) if is_parent else [metric]:
        before = {name: getattr(one, name).get() for name in _PARTS[metric._type]}
        buckets = [bucket.get() for bucket in getattr(one, "_buckets", ())]
        one._metric_init()
        _bind(one, metric._quipu_metric)
        for name, value in before.items():
            if value:
                number = getattr(one, name)
                (number.set if metric._type == "gauge" else number.inc)(value)
        for bucket, count in zip(getattr(one, "_buckets", ()), buckets):
            if count:
                bucket.inc(count)
    if is_parent:
        metric._metrics = _Children(metric, metric._metrics)


# Collection and removal.


def _has_created(theirs: object) -> bool:
    return bool(getattr(theirs, "_use_created", True))


def _converted(metric: Metric, like: Optional[Any] = None) -> Any:
    """Converts a collected metric of this package to one of theirs."""
    from prometheus_client.metrics_core import Metric as TheirMetric
    from prometheus_client.samples import Exemplar, Sample

    result = like or TheirMetric(metric.name, metric.documentation, metric.type, "")
    if like is None:
        result.unit = metric.unit
    result.samples = [
        Sample(
            sample.name,
            sample.labels,
            sample.value,
            None,
            # Its time is a number, because a metric of this package made it.
            Exemplar(*cast(Any, sample.exemplar)) if sample.exemplar else None,
        )
        for sample in metric.samples
    ]
    return result


def _patch_registry(
    registry_class: Type[prometheus_client.CollectorRegistry],
    default: prometheus_client.CollectorRegistry,
) -> None:
    """Mirrors registrations in their default registry to this package's default registry."""
    original = {name: getattr(registry_class, name) for name in ("register", "unregister")}

    def register(self: object, collector: Collector) -> None:
        original["register"](self, collector)
        backing = _backing(collector)
        if self is default and backing is not None:
            if backing not in REGISTRY._collector_to_names:
                try:
                    REGISTRY.register(backing)
                except DuplicateTimeseries:
                    pass

    def unregister(self: object, collector: Collector) -> None:
        original["unregister"](self, collector)
        backing = _backing(collector)
        # In multi-process mode, other processes can count in this metric.
        if self is default and backing is not None and not segments.is_multiprocess():
            if backing in REGISTRY._collector_to_names:
                REGISTRY.unregister(backing)

    for patched in (register, unregister):
        patched.__doc__ = original[patched.__name__].__doc__
        setattr(registry_class, patched.__name__, patched)


def _patch_metrics(theirs: Any, default: prometheus_client.CollectorRegistry) -> None:
    base = theirs.MetricWrapperBase
    original = {name: getattr(base, name) for name in ("__init__", "collect", "remove", "clear")}
    if hasattr(base, "remove_by_labels"):
        original["remove_by_labels"] = base.remove_by_labels

    def __init__(
        self: Any,
        name: str,
        documentation: str,
        labelnames: Iterable[str] = (),
        namespace: str = "",
        subsystem: str = "",
        unit: str = "",
        registry: Optional[prometheus_client.CollectorRegistry] = default,
        _labelvalues: Optional[Tuple[str, ...]] = None,
        **more: object,
    ) -> None:
        args = (name, documentation, labelnames, namespace, subsystem, unit)
        is_ours = self._type in _TYPES
        # Register the metric only once its numbers are set. A child gets them from its parent.
        later = registry if is_ours and not _labelvalues else None
        now = None if is_ours else registry
        original["__init__"](self, *args, registry=now, _labelvalues=_labelvalues, **more)
        if is_ours and not _labelvalues:
            _back(self, registry is default or segments.is_multiprocess())
            if self._is_parent():
                self._metrics = _Children(self)
            else:
                _bind(self, self._quipu_metric)
        if later:
            later.register(self)

    def ask_functions(metric: Any) -> None:
        children = list(metric._metrics.values()) if metric._is_parent() else [metric]
        for child in children:
            # `set_function` replaced this method.
            samples = child.__dict__.get("_child_samples")
            if samples is not None:
                child._value.set(list(samples())[0][2])

    def collect(self: Any) -> Iterable[Any]:
        found = _backing(self)
        if found is None:
            return cast(Iterable[Any], original["collect"](self))
        if self._type == "gauge":
            ask_functions(self)
        if self._labelvalues:
            found = found.labels(*self._labelvalues)
        [metric] = found.collect()
        if not _has_created(theirs):
            end = "_created"
            metric.samples = [s for s in metric.samples if s.name != metric.name + end]
        return [_converted(metric, self._get_metric())]

    def removing(name: str) -> Callable[..., None]:
        def remove(self: Any, *args: object, **kwargs: object) -> None:
            with warnings.catch_warnings():
                # The warning that removal does not work with several processes is obsolete.
                warnings.simplefilter("ignore", UserWarning)
                original[name](self, *args, **kwargs)
            found = _backing(self)
            if found is not None and self._labelnames:
                getattr(found, name)(*args, **kwargs)
                if name == "clear":
                    self._metrics = _Children(self)

        remove.__doc__ = original[name].__doc__
        return remove

    base.__init__, base.collect = __init__, collect
    for name in original:
        if name not in ("__init__", "collect"):
            setattr(base, name, removing(name))
