"""Samples: the numbers of a metric that a scrape shows, with their labels.

The classes provide the interface of the classes in ``prometheus_client.samples``.
"""

from typing import Dict, NamedTuple, Optional, Sequence, Union


class Timestamp:
    """A time with a resolution of a nanosecond, as seconds and nanoseconds since 1970."""

    __slots__ = ("sec", "nsec")

    def __init__(self, sec: float, nsec: float) -> None:
        if not 0 <= nsec < 1e9:
            raise ValueError(f"nanoseconds {nsec} are out of range: use 0 to 999999999")
        self.sec: int = int(sec)
        self.nsec: int = int(-nsec if sec < 0 else nsec)

    def __float__(self) -> float:
        return self.sec + self.nsec / 1e9

    def __str__(self) -> str:
        return f"{self.sec}.{abs(self.nsec):09d}"

    def __repr__(self) -> str:
        return f"Timestamp({self.sec}, {self.nsec})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Timestamp):
            return NotImplemented
        return (self.sec, self.nsec) == (other.sec, other.nsec)

    def __lt__(self, other: "Timestamp") -> bool:
        return (self.sec, self.nsec) < (other.sec, other.nsec)

    def __gt__(self, other: "Timestamp") -> bool:
        return (self.sec, self.nsec) > (other.sec, other.nsec)

    def __hash__(self) -> int:
        return hash((self.sec, self.nsec))


class Exemplar(NamedTuple):
    """Labels that identify one observation, such as a trace ID, with its value and time."""

    labels: Dict[str, str]
    value: float
    timestamp: Optional[Union[float, Timestamp]] = None


class BucketSpan(NamedTuple):
    """Adjacent buckets of a native histogram.

    ``offset`` is the number of empty buckets before them (in the first span, the index of the first
    bucket), and ``length`` is the number of buckets.
    """

    offset: int
    length: int


class NativeHistogram(NamedTuple):
    """A histogram whose buckets grow exponentially, for the sample of a collector.

    Each delta is the count of a bucket minus the count of the bucket before. You see native
    histograms in OpenMetrics 2; OpenMetrics 1 omits their samples.
    """

    count_value: float
    sum_value: float
    schema: int
    zero_threshold: float
    zero_count: float
    pos_spans: Optional[Sequence[BucketSpan]] = None
    neg_spans: Optional[Sequence[BucketSpan]] = None
    pos_deltas: Optional[Sequence[int]] = None
    neg_deltas: Optional[Sequence[int]] = None
    nh_exemplars: Optional[Sequence[Exemplar]] = None


class Sample(NamedTuple):
    """One number of a metric, with its name and labels."""

    name: str
    labels: Dict[str, str]
    value: float
    timestamp: Optional[Union[float, Timestamp]] = None
    exemplar: Optional[Exemplar] = None
    native_histogram: Optional[NativeHistogram] = None
