"""``prometheus_client``'s own metrics on a segment, for an application that uses it already.

Its metrics keep their numbers in objects of a value class. ``install`` gives it one whose numbers are
in the segment of this package's default registry, and has its collectors read what all processes
counted there. The application's code stays as it is.
"""

import os
import threading
import warnings

from . import _quipu, metrics, segments
from .registry import REGISTRY, CollectorRegistry, DuplicateTimeseries, configure

_backing = {}
_backing_lock = threading.RLock()
# The parts of a histogram that is being made: its buckets are known when the last one is.
_making = threading.local()
_TYPES = {
    "counter": metrics.Counter,
    "gauge": metrics.Gauge,
    "summary": metrics.Summary,
    "histogram": metrics.Histogram,
}
_is_installed = False


def _in_child() -> None:
    # A thread that the child does not have may have held it.
    global _backing_lock
    _backing_lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


def install(path=None, limit: int = segments.LIMIT) -> None:
    """Puts the metrics of ``prometheus_client`` onto a segment, those that are there already, too.

    With a path, the segment is in a file in that directory: see ``configure``. Call it as early as
    can be: before the server forks its workers, or in each of them with the same path. Afterwards
    ``prometheus_client.generate_latest()``, its applications and its ``MultiProcessCollector`` show
    what all processes counted, and so does ``quipu.generate_latest()``.
    """
    global _is_installed
    if path is not None:
        configure(path, limit)
    if _is_installed:
        return
    import prometheus_client
    from prometheus_client import multiprocess, values
    from prometheus_client import metrics as theirs

    _is_installed = True
    values.ValueClass = _value_class()
    _patch_metrics(theirs)

    def collect(self):
        return [_converted(metric) for metric in REGISTRY._collect_own(_has_created(theirs))]

    multiprocess.MultiProcessCollector.collect = collect
    for collector in list(prometheus_client.REGISTRY._collector_to_names):
        if isinstance(collector, theirs.MetricWrapperBase) and collector._type in _TYPES:
            _carry_over(collector)
    REGISTRY.register(_Others(prometheus_client.REGISTRY, theirs))


class _Others:
    """What the registry of ``prometheus_client`` has that is on no segment."""

    def __init__(self, registry, theirs):
        self._registry, self._theirs = registry, theirs

    def describe(self):
        return []

    def collect(self):
        for collector in list(self._registry._collector_to_names):
            if not (
                isinstance(collector, self._theirs.MetricWrapperBase) and collector._type in _TYPES
            ):
                yield from collector.collect()


# The value class.


def _metric(typ, name, labelnames, documentation, **more):
    """The metric of this package that has the numbers of one of theirs."""
    key = (typ, name, tuple(labelnames))
    with _backing_lock:
        found = _backing.get(key)
        if found is None:
            make = _TYPES[typ]
            try:
                found = make(name, documentation, labelnames, **more)
            except DuplicateTimeseries:
                found = make(name, documentation, labelnames, registry=None, **more)
            _backing[key] = found
        return found


def _mode(mode):
    """The mode of a gauge. One that says nothing is one value for all, where they are not in what
    they call multi-process mode: ``all`` is their default."""
    return None if mode in ("", "all") and not segments.is_multiprocess() else mode or "all"


def _value_class():
    from prometheus_client.samples import Exemplar

    class SegmentValue(_quipu.Value):
        """A number that all processes share."""

        __slots__ = ("_source",)
        _multiprocess = False

        def __init__(
            self,
            typ,
            metric_name,
            name,
            labelnames,
            labelvalues,
            help_text="",
            multiprocess_mode="",
            **kwargs,
        ):
            labelnames, labelvalues = list(labelnames), list(labelvalues)
            if typ == "gauge":
                metric = _metric(
                    typ, metric_name, labelnames, help_text, multiprocess_mode=_mode(multiprocess_mode)
                )
                self._bind(metric, labelvalues, "value")
            elif typ == "counter":
                self._bind(_metric(typ, metric_name, labelnames, help_text), labelvalues, "value")
            elif typ == "summary":
                part = "count" if name.endswith("_count") else "sum"
                self._bind(_metric(typ, metric_name, labelnames, help_text), labelvalues, part)
            elif labelnames[len(labelvalues) - 1 :] == ["le"] and name.endswith("_bucket"):
                self._bucket(metric_name, labelnames[:-1], labelvalues, help_text)
            else:
                _making.sum = self

        def _bucket(self, name, labelnames, labelvalues, documentation):
            *labelvalues, bound = labelvalues
            buckets = _making.__dict__.setdefault("buckets", [])
            buckets.append((self, float(bound)))
            if float(bound) != float("inf"):
                return
            total, _making.sum, _making.buckets = _making.sum, None, []
            bounds = [bound for _, bound in buckets]
            metric = _metric("histogram", name, labelnames, documentation, buckets=bounds)
            total._bind(metric, labelvalues, "sum")
            for number, (value, bound) in enumerate(buckets):
                value._bind(metric, labelvalues, "bucket", number, bound)

        def _bind(self, metric, labelvalues, *part):
            self._source = (metric, labelvalues, part)
            self._rebind()

        def _rebind(self):
            metric, labelvalues, part = self._source
            self.attach(metric.labels(*labelvalues) if labelvalues else metric, *part)

        def get_exemplar(self):
            """The last exemplar, of whichever process."""
            kept = self._exemplar()
            return Exemplar(dict(kept[0]), kept[1], kept[2]) if kept else None

    return SegmentValue


def _carry_over(metric) -> None:
    """Moves the numbers of a metric that was made before."""
    observable = metric._metrics.values() if metric._is_parent() else [metric]
    for one in list(observable):
        names = [name for name in ("_value", "_sum", "_count") if hasattr(one, name)]
        before = {name: getattr(one, name).get() for name in names}
        buckets = [bucket.get() for bucket in getattr(one, "_buckets", ())]
        one._metric_init()
        for name, value in before.items():
            if value:
                number = getattr(one, name)
                (number.set if metric._type == "gauge" else number.inc)(value)
        for bucket, count in zip(getattr(one, "_buckets", ()), buckets):
            if count:
                bucket.inc(count)


# What their metrics read, and what they remove.


def _has_created(theirs) -> bool:
    return getattr(theirs, "_use_created", True)


def _converted(metric, like=None):
    """A metric of this package as one of theirs."""
    from prometheus_client.metrics_core import Metric
    from prometheus_client.samples import Exemplar, Sample

    result = like or Metric(metric.name, metric.documentation, metric.type, "")
    if like is None:
        result.unit = metric.unit
    result.samples = [
        Sample(
            sample.name,
            sample.labels,
            sample.value,
            None,
            Exemplar(*sample.exemplar) if sample.exemplar else None,
        )
        for sample in metric.samples
    ]
    return result


def _found(metric):
    """The metric of this package behind one of theirs. Other processes may have made its series
    where this one has none."""
    with _backing_lock:
        found = _backing.get((metric._type, metric._name, tuple(metric._labelnames)))
    if found is None and metric._is_parent():
        more = {}
        if metric._type == "gauge":
            more["multiprocess_mode"] = _mode(metric._multiprocess_mode)
        elif metric._type == "histogram":
            more["buckets"] = metric._kwargs.get("buckets") or metric._upper_bounds
        found = _metric(
            metric._type, metric._name, metric._labelnames, metric._documentation, **more
        )
    return found


def _patch_metrics(theirs) -> None:
    base = theirs.MetricWrapperBase
    original = {name: getattr(base, name) for name in ("collect", "remove", "clear")}
    if hasattr(base, "remove_by_labels"):
        original["remove_by_labels"] = base.remove_by_labels

    def ask_functions(metric):
        children = list(metric._metrics.values()) if metric._is_parent() else [metric]
        for child in children:
            # A function takes the place of the method.
            samples = child.__dict__.get("_child_samples")
            if samples is not None:
                child._value.set(list(samples())[0][2])

    def collect(self):
        found = _found(self) if self._type in _TYPES else None
        if found is None:
            return original["collect"](self)
        if self._type == "gauge":
            ask_functions(self)
        if self._labelvalues:
            found = found.labels(*self._labelvalues)
        [metric] = found.collect()
        if not _has_created(theirs):
            end = "_created"
            metric.samples = [s for s in metric.samples if s.name != metric.name + end]
        return [_converted(metric, self._get_metric())]

    def removing(name):
        def remove(self, *args, **kwargs):
            with warnings.catch_warnings():
                # That it does not work with several processes is true no more.
                warnings.simplefilter("ignore", UserWarning)
                original[name](self, *args, **kwargs)
            found = _found(self) if self._type in _TYPES else None
            if found is not None and self._labelnames:
                getattr(found, name)(*args, **kwargs)

        remove.__doc__ = original[name].__doc__
        return remove

    base.collect = collect
    for name in original:
        if name != "collect":
            setattr(base, name, removing(name))
