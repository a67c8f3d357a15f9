"""What a scrape reads: metrics and their samples.

The classes have the interface of those in ``prometheus_client.core``. A collector may return
metrics of either library: only their attributes are used.
"""

from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

METRIC_TYPES = (
    "counter", "gauge", "summary", "histogram", "gaugehistogram", "unknown", "info", "stateset",
)


class Timestamp:
    """Seconds and nanoseconds since 1970."""

    __slots__ = ("sec", "nsec")

    def __init__(self, sec: float, nsec: float) -> None:
        self.sec, self.nsec = int(sec), int(nsec)

    def __float__(self) -> float:
        return self.sec + self.nsec / 1e9

    def __str__(self) -> str:
        return f"{self.sec}.{self.nsec:09d}"

    def __repr__(self) -> str:
        return f"Timestamp({self.sec}, {self.nsec})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Timestamp):
            return NotImplemented
        return (self.sec, self.nsec) == (other.sec, other.nsec)

    def __hash__(self) -> int:
        return hash((self.sec, self.nsec))


class Exemplar(NamedTuple):
    """Labels that identify one observation, such as a trace ID, with its value and time."""

    labels: Dict[str, str]
    value: float
    timestamp: Optional[Union[float, Timestamp]] = None


class Sample(NamedTuple):
    """One number of a metric."""

    name: str
    labels: Dict[str, str]
    value: float
    timestamp: Optional[Union[float, Timestamp]] = None
    exemplar: Optional[Exemplar] = None
    native_histogram: Optional[object] = None


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
        native_histogram: Optional[object] = None,
    ) -> None:
        """Adds a sample."""
        self.samples.append(Sample(name, labels, value, timestamp, exemplar, native_histogram))

    def _restricted_metric(self, names: "set[str]") -> Optional["Metric"]:
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
    """A metric of unknown type, for a collector."""

    _typ = "unknown"

    def __init__(self, name, documentation, value=None, labels=None, unit=""):
        _only_one(value, labels)
        super().__init__(name, documentation, labels, unit)
        if value is not None:
            self.add_metric([], value)

    def add_metric(self, labels, value, timestamp=None):
        self.add_sample(self.name, self._labels(labels), value, timestamp)


UntypedMetricFamily = UnknownMetricFamily


class GaugeMetricFamily(UnknownMetricFamily):
    """A gauge, for a collector."""

    _typ = "gauge"


class CounterMetricFamily(_Family):
    """A counter, for a collector."""

    _typ = "counter"

    def __init__(
        self, name, documentation, value=None, labels=None, created=None, unit="", exemplar=None
    ):
        _only_one(value, labels)
        if name.endswith("_total"):
            name = name[: -len("_total")]
        super().__init__(name, documentation, labels, unit)
        if value is not None:
            self.add_metric([], value, created, exemplar=exemplar)

    def add_metric(self, labels, value, created=None, timestamp=None, exemplar=None):
        self.add_sample(self.name + "_total", self._labels(labels), value, timestamp, exemplar)
        if created is not None:
            self.add_sample(self.name + "_created", self._labels(labels), created, timestamp)


class SummaryMetricFamily(_Family):
    """A summary, for a collector."""

    _typ = "summary"

    def __init__(
        self, name, documentation, count_value=None, sum_value=None, labels=None, unit=""
    ):
        if (sum_value is None) != (count_value is None):
            raise ValueError("count_value and sum_value must be provided together.")
        _only_one(count_value, labels)
        super().__init__(name, documentation, labels, unit)
        if count_value is not None:
            self.add_metric([], count_value, sum_value)

    def add_metric(self, labels, count_value, sum_value, timestamp=None):
        self.add_sample(self.name + "_count", self._labels(labels), count_value, timestamp)
        self.add_sample(self.name + "_sum", self._labels(labels), sum_value, timestamp)


class HistogramMetricFamily(_Family):
    """A histogram, for a collector."""

    _typ = "histogram"
    _count, _sum = "_count", "_sum"

    def __init__(self, name, documentation, buckets=None, sum_value=None, labels=None, unit=""):
        if sum_value is not None and buckets is None:
            raise ValueError("sum value cannot be provided without buckets.")
        _only_one(buckets, labels)
        super().__init__(name, documentation, labels, unit)
        if buckets is not None:
            self.add_metric([], buckets, sum_value)

    def add_metric(self, labels, buckets, sum_value, timestamp=None):
        for bucket in buckets:
            bound, value = bucket[:2]
            exemplar = bucket[2] if len(bucket) == 3 else None
            sample_labels = self._labels(labels, [("le", bound)])
            self.add_sample(self.name + "_bucket", sample_labels, value, timestamp, exemplar)
        if sum_value is not None:
            count = buckets[-1][1]
            self.add_sample(self.name + self._count, self._labels(labels), count, timestamp)
            self.add_sample(self.name + self._sum, self._labels(labels), sum_value, timestamp)


class GaugeHistogramMetricFamily(HistogramMetricFamily):
    """A histogram whose counts may decrease, for a collector."""

    _typ = "gaugehistogram"
    _count, _sum = "_gcount", "_gsum"

    def __init__(self, name, documentation, buckets=None, gsum_value=None, labels=None, unit=""):
        super().__init__(name, documentation, buckets, gsum_value, labels, unit)

    def add_metric(self, labels, buckets, gsum_value, timestamp=None):
        super().add_metric(labels, buckets, gsum_value, timestamp)


class InfoMetricFamily(_Family):
    """An info, for a collector."""

    _typ = "info"

    def __init__(self, name, documentation, value=None, labels=None):
        _only_one(value, labels)
        super().__init__(name, documentation, labels)
        if value is not None:
            self.add_metric([], value)

    def add_metric(self, labels, value, timestamp=None):
        sample_labels = self._labels(labels, list(value.items()))
        self.add_sample(self.name + "_info", sample_labels, 1, timestamp)


class StateSetMetricFamily(_Family):
    """A set of states, for a collector."""

    _typ = "stateset"

    def __init__(self, name, documentation, value=None, labels=None):
        _only_one(value, labels)
        super().__init__(name, documentation, labels)
        if value is not None:
            self.add_metric([], value)

    def add_metric(self, labels, value, timestamp=None):
        for state, enabled in sorted(value.items()):
            sample_labels = self._labels(labels, [(self.name, state)])
            self.add_sample(self.name, sample_labels, 1 if enabled else 0, timestamp)
