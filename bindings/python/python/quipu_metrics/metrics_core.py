"""Metrics with their samples: the results of ``collect()``.

The classes provide the interface of the classes in ``prometheus_client.metrics_core``. Your
collector can return metrics of either library, because only their attributes are used.
"""

from typing import Collection, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from .samples import Exemplar, NativeHistogram, Sample, Timestamp

METRIC_TYPES = (
    "counter", "gauge", "summary", "histogram", "gaugehistogram", "unknown", "info", "stateset",
)


class Metric:
    """A metric with its samples."""

    def __init__(self, name: str, documentation: str, typ: str, unit: str = "") -> None:
        if unit and not name.endswith("_" + unit):
            name += "_" + unit
        if not name:
            raise ValueError("metric name is empty: give the metric a name")
        if typ == "untyped":
            typ = "unknown"
        if typ not in METRIC_TYPES:
            raise ValueError("Invalid metric type: " + typ)
        self.name = name
        self.documentation = documentation
        self.unit = unit
        self.type = typ
        self.samples: List[Sample] = []

    def add_sample(
        self,
        name: str,
        labels: Dict[str, str],
        value: float,
        timestamp: Optional[Union[float, Timestamp]] = None,
        exemplar: Optional[Exemplar] = None,
        native_histogram: Optional[NativeHistogram] = None,
    ) -> None:
        """Adds a sample."""
        self.samples.append(Sample(name, labels, value, timestamp, exemplar, native_histogram))

    def _restricted_metric(self, names: Collection[str]) -> Optional["Metric"]:
        samples = [sample for sample in self.samples if sample[0] in names]
        if not samples:
            return None
        metric = Metric(self.name, self.documentation, self.type)
        metric.unit, metric.samples = self.unit, samples
        return metric

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Metric) and vars(self) == vars(other)

    def __repr__(self) -> str:
        return (
            f"Metric({self.name}, {self.documentation}, {self.type}, {self.unit}, {self.samples})"
        )


# The time of a sample; and a bucket: its bound as a string, its cumulative count, and an exemplar.
_Time = Optional[Union[float, Timestamp]]
_Bucket = Union[Tuple[str, float], Tuple[str, float, Optional[Exemplar]]]


class _Family(Metric):
    _typ = ""

    def __init__(
        self, name: str, documentation: str, labels: Optional[Sequence[str]] = None, unit: str = ""
    ) -> None:
        super().__init__(name, documentation, self._typ, unit)
        self._labelnames = tuple(labels or ())

    def _labels(self, values: Sequence[str], more: Sequence[Tuple[str, str]] = ()) -> Dict[str, str]:
        return dict([*zip(self._labelnames, values), *more])


def _only_one(value: object, labels: object) -> None:
    if labels is not None and value is not None:
        raise ValueError("Can only specify at most one of value and labels.")


class UnknownMetricFamily(_Family):
    """A metric of unknown type, for a collector.

    Give it either the ``value`` of its only sample, or the names of its ``labels``, and then add a
    sample for each set of label values. You can use all families like this.
    """

    _typ = "unknown"

    def __init__(
        self,
        name: str,
        documentation: str,
        value: Optional[float] = None,
        labels: Optional[Sequence[str]] = None,
        unit: str = "",
    ) -> None:
        _only_one(value, labels)
        super().__init__(name, documentation, labels, unit)
        if value is not None:
            self.add_metric([], value)

    def add_metric(self, labels: Sequence[str], value: float, timestamp: _Time = None) -> None:
        """Adds a sample with these label values."""
        self.add_sample(self.name, self._labels(labels), value, timestamp)


UntypedMetricFamily = UnknownMetricFamily


class GaugeMetricFamily(UnknownMetricFamily):
    """A gauge, for a collector."""

    _typ = "gauge"


class CounterMetricFamily(_Family):
    """A counter, for a collector."""

    _typ = "counter"

    def __init__(
        self,
        name: str,
        documentation: str,
        value: Optional[float] = None,
        labels: Optional[Sequence[str]] = None,
        created: Optional[float] = None,
        unit: str = "",
        exemplar: Optional[Exemplar] = None,
    ) -> None:
        _only_one(value, labels)
        if name.endswith("_total"):
            name = name[: -len("_total")]
        super().__init__(name, documentation, labels, unit)
        if value is not None:
            self.add_metric([], value, created, exemplar=exemplar)

    def add_metric(
        self,
        labels: Sequence[str],
        value: float,
        created: Optional[float] = None,
        timestamp: _Time = None,
        exemplar: Optional[Exemplar] = None,
    ) -> None:
        """Adds a series with these label values. ``created`` is the Unix time of its start."""
        self.add_sample(self.name + "_total", self._labels(labels), value, timestamp, exemplar)
        if created is not None:
            self.add_sample(self.name + "_created", self._labels(labels), created, timestamp)


class SummaryMetricFamily(_Family):
    """A summary without quantiles, for a collector."""

    _typ = "summary"

    def __init__(
        self,
        name: str,
        documentation: str,
        count_value: Optional[int] = None,
        sum_value: Optional[float] = None,
        labels: Optional[Sequence[str]] = None,
        unit: str = "",
    ) -> None:
        if (sum_value is None) != (count_value is None):
            raise ValueError("count_value and sum_value must be provided together.")
        _only_one(count_value, labels)
        super().__init__(name, documentation, labels, unit)
        if count_value is not None and sum_value is not None:
            self.add_metric([], count_value, sum_value)

    def add_metric(
        self, labels: Sequence[str], count_value: int, sum_value: float, timestamp: _Time = None
    ) -> None:
        """Adds a series with these label values."""
        self.add_sample(self.name + "_count", self._labels(labels), count_value, timestamp)
        self.add_sample(self.name + "_sum", self._labels(labels), sum_value, timestamp)


class _BucketFamily(_Family):
    _count, _sum = "_count", "_sum"

    def _init(
        self,
        name: str,
        documentation: str,
        buckets: Optional[Sequence[_Bucket]],
        sum_value: Optional[float],
        labels: Optional[Sequence[str]],
        unit: str,
    ) -> None:
        if sum_value is not None and buckets is None:
            raise ValueError("sum value cannot be provided without buckets.")
        _only_one(buckets, labels)
        _Family.__init__(self, name, documentation, labels, unit)
        if buckets is not None:
            self._add_buckets([], buckets, sum_value, None)

    def _add_buckets(
        self,
        labels: Sequence[str],
        buckets: Sequence[_Bucket],
        sum_value: Optional[float],
        timestamp: _Time,
    ) -> None:
        for bucket in buckets:
            bound, value = bucket[:2]
            exemplar = bucket[2] if len(bucket) == 3 else None
            sample_labels = self._labels(labels, [("le", bound)])
            self.add_sample(self.name + "_bucket", sample_labels, value, timestamp, exemplar)
        if sum_value is not None:
            count = buckets[-1][1]
            self.add_sample(self.name + self._count, self._labels(labels), count, timestamp)
            self.add_sample(self.name + self._sum, self._labels(labels), sum_value, timestamp)


class HistogramMetricFamily(_BucketFamily):
    """A histogram, for a collector.

    A bucket is a tuple of its upper bound as a string, the number of observations up to this bound,
    and, if there is one, an exemplar. The last bound is ``"+Inf"``.
    """

    _typ = "histogram"

    def __init__(
        self,
        name: str,
        documentation: str,
        buckets: Optional[Sequence[_Bucket]] = None,
        sum_value: Optional[float] = None,
        labels: Optional[Sequence[str]] = None,
        unit: str = "",
    ) -> None:
        self._init(name, documentation, buckets, sum_value, labels, unit)

    def add_metric(
        self,
        labels: Sequence[str],
        buckets: Sequence[_Bucket],
        sum_value: Optional[float],
        timestamp: _Time = None,
    ) -> None:
        """Adds a series with these label values. Without a sum, it consists of only the buckets."""
        self._add_buckets(labels, buckets, sum_value, timestamp)


class GaugeHistogramMetricFamily(_BucketFamily):
    """A histogram whose counts can decrease, for a collector."""

    _typ = "gaugehistogram"
    _count, _sum = "_gcount", "_gsum"

    def __init__(
        self,
        name: str,
        documentation: str,
        buckets: Optional[Sequence[_Bucket]] = None,
        gsum_value: Optional[float] = None,
        labels: Optional[Sequence[str]] = None,
        unit: str = "",
    ) -> None:
        self._init(name, documentation, buckets, gsum_value, labels, unit)

    def add_metric(
        self,
        labels: Sequence[str],
        buckets: Sequence[_Bucket],
        gsum_value: Optional[float],
        timestamp: _Time = None,
    ) -> None:
        """Adds a series with these label values. Without a sum, it consists of only the buckets."""
        self._add_buckets(labels, buckets, gsum_value, timestamp)


class InfoMetricFamily(_Family):
    """Key-value pairs as labels of a sample that is always 1, for a collector."""

    _typ = "info"

    def __init__(
        self,
        name: str,
        documentation: str,
        value: Optional[Mapping[str, str]] = None,
        labels: Optional[Sequence[str]] = None,
    ) -> None:
        _only_one(value, labels)
        super().__init__(name, documentation, labels)
        if value is not None:
            self.add_metric([], value)

    def add_metric(
        self, labels: Sequence[str], value: Mapping[str, str], timestamp: _Time = None
    ) -> None:
        """Adds a series with these label values and key-value pairs."""
        sample_labels = self._labels(labels, list(value.items()))
        self.add_sample(self.name + "_info", sample_labels, 1, timestamp)


class StateSetMetricFamily(_Family):
    """Named states, each on or off, for a collector."""

    _typ = "stateset"

    def __init__(
        self,
        name: str,
        documentation: str,
        value: Optional[Mapping[str, bool]] = None,
        labels: Optional[Sequence[str]] = None,
    ) -> None:
        _only_one(value, labels)
        super().__init__(name, documentation, labels)
        if value is not None:
            self.add_metric([], value)

    def add_metric(
        self, labels: Sequence[str], value: Mapping[str, bool], timestamp: _Time = None
    ) -> None:
        """Adds a series with these label values and states."""
        for state, enabled in sorted(value.items()):
            sample_labels = self._labels(labels, [(self.name, state)])
            self.add_sample(self.name, sample_labels, 1 if enabled else 0, timestamp)
