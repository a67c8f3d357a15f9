"""The native part: segments, the metrics that count in them, and the exposition."""

import os
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple, Union, final

from typing_extensions import Self, disjoint_base

__all__ = [
    "BoundPath",
    "Counter",
    "Enum",
    "Gauge",
    "Histogram",
    "Info",
    "MismatchError",
    "NoRoomError",
    "Recording",
    "RecordingError",
    "RecordingOptions",
    "Segment",
    "Source",
    "Summary",
    "Value",
    "__version__",
    "collect",
    "expose",
    "forget_children",
    "listen_at",
    "negotiate",
    "set_legacy",
]

__version__: str
"""The version of the package."""

_Labels = Dict[str, str]
# The labels, the observed value, and its Unix time in seconds.
_Exemplar = Tuple[_Labels, float, Optional[float]]
# The name, the labels, the value, and an exemplar.
_Sample = Tuple[str, _Labels, float, Optional[_Exemplar]]
# The name, the documentation, the type, the unit, and the samples.
_Family = Tuple[str, str, str, str, List[_Sample]]

class MismatchError(ValueError):
    """The segment has a metric of that name with other labels or settings."""

class NoRoomError(ValueError):
    """The segment or the system has no memory left for a metric."""

class RecordingError(ValueError):
    """The flight recorder cannot record: an option is out of range, or there is no room or no
    thread."""

@final
class Segment:
    """A segment and the families in it."""

    @property
    def path(self) -> Optional[str]:
        """The path of the file, if it is in one."""

    @property
    def used(self) -> int:
        """The number of bytes in use."""

    @staticmethod
    def anonymous(limit: int) -> Tuple[Segment, Optional[str]]:
        """Creates a segment in memory that this process and its children share.

        If the system cannot provide such memory, returns a private segment, with the reason.
        """

    @staticmethod
    def private(limit: int) -> Segment:
        """Creates a segment in private memory: the child of a fork gets a copy."""

    @staticmethod
    def open(
        path: Union[str, os.PathLike[str]], limit: int, mode: Optional[int], group: Optional[int]
    ) -> Tuple[Segment, Optional[str]]:
        """Opens or creates a segment in a file.

        A file that cannot be read is renamed and replaced; the second value gives the reason.
        """

    def unregister(self, name: str) -> bool:
        """Frees a name, so that it can be registered again."""

    def find(self, name: str, created: bool) -> List[_Family]:
        """Returns the family of that name, with its variants."""

@final
class Source:
    """The handle with which a scrape reads one metric."""

class _Metric:
    # Read-only.
    _name: str
    _documentation: Any
    _unit: str
    _segment: Optional[Segment]
    _sources: List[Source]
    _labelnames: Tuple[str, ...]
    _labelvalues: Tuple[str, ...]
    _root: Self
    def labels(self, *labelvalues: object, **labelkwargs: object) -> Self:
        """Returns the child with these label values, by position or by name.

        Keep a child that is used often: counting in it needs no lookup. Raises ``ValueError`` unless
        there is one value for each label of the metric.
        """

    def remove(self, *labelvalues: object) -> None:
        """Removes the series with these label values, for all processes."""

    def _remove_matching(self, pairs: Sequence[Tuple[str, str]]) -> Optional[int]: ...
    def _is_observable(self) -> bool: ...

@disjoint_base
class Counter(_Metric):
    """A sum that only increases."""

    def __new__(cls, *_args: object, **_kwargs: object) -> Self: ...
    def _make(self, made: Dict[str, object]) -> None: ...
    def inc(self, amount: float = 1.0, exemplar: Optional[Dict[str, str]] = None) -> None:
        """Adds ``amount``.

        ``exemplar`` has labels that identify the event, such as ``{"trace_id": "abc"}``. Raises
        ``ValueError`` for a negative amount, and if the metric needs label values.
        """

    def reset(self) -> None:
        """Sets the counter to zero for all processes, and its creation time to now."""

    def _get(self) -> float: ...

@disjoint_base
class Gauge(_Metric):
    """A value that goes up and down."""

    def __new__(cls, *_args: object, **_kwargs: object) -> Self: ...
    def _make(self, made: Dict[str, object], mode: str, is_set_only: bool) -> None: ...
    def inc(self, amount: float = 1.0) -> None:
        """Adds ``amount``.

        Raises ``RuntimeError`` in the modes ``mostrecent`` and ``livemostrecent``.
        """

    def dec(self, amount: float = 1.0) -> None:
        """Subtracts ``amount``.

        Raises ``RuntimeError`` in the modes ``mostrecent`` and ``livemostrecent``.
        """

    def set(self, value: float) -> None:
        """Sets the gauge to ``value``."""

    def set_to_current_time(self) -> None:
        """Sets the gauge to the current Unix time in seconds."""

    def _get(self) -> float: ...

@disjoint_base
class Histogram(_Metric):
    """Counts of observations in buckets by size."""

    def __new__(cls, *_args: object, **_kwargs: object) -> Self: ...
    def _make(self, made: Dict[str, object], buckets: Sequence[float]) -> None: ...
    def observe(self, amount: float, exemplar: Optional[Dict[str, str]] = None) -> None:
        """Records an observation of ``amount``.

        ``exemplar`` has labels that identify the event, such as ``{"trace_id": "abc"}``.
        """

@disjoint_base
class Summary(_Metric):
    """The number of observations, and their sum."""

    def __new__(cls, *_args: object, **_kwargs: object) -> Self: ...
    def _make(self, made: Dict[str, object]) -> None: ...
    def observe(self, amount: float) -> None:
        """Records an observation of ``amount``."""

@disjoint_base
class Enum(_Metric):
    """A set of states, one of which is on."""

    def __new__(cls, *_args: object, **_kwargs: object) -> Self: ...
    def _make(self, made: Dict[str, object], states: Sequence[str]) -> None: ...
    def state(self, state: str) -> None:
        """Turns the state of that name on, and all others off.

        Raises ``ValueError`` for a name that is not a state.
        """

    def _index(self) -> Optional[int]: ...

@final
class Info:
    """The key-value pairs of one metric, and of its children."""

    @property
    def is_named(self) -> bool:
        """Whether all series are in the family that other processes find by its name."""

    @property
    def sources(self) -> List[Source]:
        """The sources that a scrape reads."""

    def __new__(cls, name: str, help: str, labelnames: List[str]) -> Self: ...
    def set(
        self,
        named: Optional[Segment],
        apart: Segment,
        values: List[str],
        texts: List[Tuple[str, str]],
    ) -> None:
        """Replaces the pairs of the series with these label values.

        The series is in ``named`` unless that segment has the metric with other keys.
        """

    def remove(self, pairs: Sequence[Tuple[str, str]]) -> None:
        """Removes the series that have all of these pairs of label names and values."""

@disjoint_base
class Value:
    """A number of a metric. It is empty until it is attached."""

    def __new__(cls, *_args: object, **_kwargs: object) -> Self: ...
    def attach(self, metric: object, part: str, number: int = 0, bound: float = 0.0) -> None:
        """Attaches the number to a part of a bound metric.

        ``part`` is ``value``, ``sum``, ``count``, or ``bucket`` with its index and bound.
        """

    def inc(self, amount: float) -> None:
        """Adds ``amount``."""

    def set(self, value: float, timestamp: Optional[float] = None) -> None:
        """Sets the number to ``value``, for all processes."""

    def get(self) -> float:
        """Returns the number, over all processes."""

    def set_exemplar(self, exemplar: object) -> None:
        """Keeps an exemplar: an object with ``labels`` and ``value``."""

    def _rebind(self) -> None: ...
    def _exemplar(self) -> Optional[Tuple[List[Tuple[str, str]], float, float]]: ...

@final
class RecordingOptions:
    """The metrics to record, and the memory for them."""

    def __new__(cls, interval: float, bytes: int, series: int, families: List[str]) -> Self: ...

@final
class Recording:
    """A thread that records, until it is closed."""

    @property
    def is_writing(self) -> bool:
        """Whether this process writes, and not another one that shares the file."""

    def __new__(cls, segment: Segment, options: RecordingOptions) -> Self: ...
    def close(self) -> None:
        """Ends the thread, for good."""

    def pause(self) -> bool:
        """Ends the thread until ``resume``. Returns whether it has ended."""

    def resume(self) -> None:
        """Starts the thread again after a pause, and in a child of a fork."""

@final
class BoundPath:
    """The path of a socket."""

    def remove(self) -> None:
        """Removes the path, unless another file has replaced it."""

def collect(
    segment: Optional[Segment], hidden: Set[str], sources: List[Source], created: bool
) -> List[_Family]:
    """Returns the families of a segment except the hidden ones, followed by those of sources."""

def expose(
    segment: Optional[Segment],
    hidden: Set[str],
    sources: List[Source],
    form: Tuple[str, str],
    end: bool,
) -> bytes:
    """Encodes the same families as ``collect``. ``end`` is whether nothing follows the output."""

def forget_children() -> None:
    """Makes every metric look up its children again, in the child of a fork."""

def set_legacy(is_legacy: bool) -> None:
    """Sets whether to refuse names that older versions of Prometheus cannot parse."""

def negotiate(accept: str) -> Tuple[str, str, str]:
    """Returns the format that an ``Accept`` header asks for, its escaping and its content type."""

def listen_at(path: Union[str, os.PathLike[str]], backlog: int) -> Tuple[int, BoundPath]:
    """Listens at a path; returns the descriptor, which the caller closes, and the path."""
