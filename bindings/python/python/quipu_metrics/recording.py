"""The flight recorder: the last minutes of a registry's metrics, second by second, in its segment.

A recording continues until it is closed or the process ends, whether or not you keep the object.
Around a fork, its thread is paused, because no thread must exist at that moment. Then the recording
continues in the parent and in the child.
"""

import atexit
import numbers
from types import TracebackType
from typing import Dict, Iterable, Mapping, Optional, Type, TypedDict, Union

from . import segments
from .backend import RecordingError, _quipu

__all__ = ["Recording", "RecordingError", "RecordingSettings"]


class Recording:
    """A thread that records, until ``close`` or the end of a ``with`` block.

    ``CollectorRegistry.record`` starts it.
    """

    __slots__ = ("_native", "_segment")

    def __init__(self, segment: _quipu.Segment, options: _quipu.RecordingOptions) -> None:
        self._native = _quipu.Recording(segment, options)
        self._segment = segment
        _open[self] = None

    @property
    def is_writing(self) -> bool:
        """Whether this process writes, and not another one that shares the numbers."""
        return self._native.is_writing

    def close(self) -> None:
        """Ends the recording, but keeps the recorded ticks. You can call this again."""
        _open.pop(self, None)
        self._native.close()

    def __enter__(self) -> "Recording":
        return self

    def __exit__(
        self,
        typ: Optional[Type[BaseException]],
        value: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self not in _open else "writing" if self.is_writing else "waiting"
        return f"<quipu_metrics.Recording of {self._segment.path or 'memory'}: {state}>"


class RecordingSettings(TypedDict, total=False):
    """The argument ``record`` of ``configure`` and ``install``, if it is a dict: the arguments of
    ``CollectorRegistry.record``."""

    interval: float
    bytes: int
    series: int
    families: Iterable[str]


# The recordings that were not closed.
_open: Dict[Recording, None] = {}


def checked(
    interval: float = 1.0,
    bytes: int = 4 << 20,
    series: int = 1000,
    families: Iterable[str] = (),
) -> _quipu.RecordingOptions:
    """Returns the options, or raises an error for a value out of bounds."""
    if not isinstance(interval, numbers.Real):
        raise TypeError(f"interval {interval!r} is not a number of seconds")
    if isinstance(families, str):
        raise TypeError(f"families {families!r} is a text: use a list of names")
    whole = _whole("bytes", bytes), _whole("series", series)
    return _quipu.RecordingOptions(interval, *whole, list(families))


def _whole(name: str, value: int) -> int:
    if not isinstance(value, int):
        raise TypeError(f"{name} {value!r} is not a whole number")
    if value < 0:
        raise RecordingError(f"{name} {value} is out of range: use a positive number")
    # The native part refuses a number that is too great.
    return min(value, 1 << 62)


def wanted(record: Union[bool, RecordingSettings, None]) -> Optional[_quipu.RecordingOptions]:
    """Returns the options for the argument ``record`` of ``configure`` and ``install``."""
    if record is None or record is False:
        return None
    if record is True:
        return checked()
    if isinstance(record, Mapping):
        return checked(**record)
    raise TypeError(
        f"record {record!r} is not understood: use True, or a dict of the arguments of "
        "CollectorRegistry.record, such as {'interval': 5.0}"
    )


def of(segment: Optional[_quipu.Segment]) -> Optional[Recording]:
    """Returns the first recording of a segment that is still open, or None."""
    return next((recording for recording in list(_open) if recording._segment is segment), None)


def ensure(segment: Optional[_quipu.Segment], options: Optional[_quipu.RecordingOptions]) -> None:
    """Records a segment, unless this is not wanted or done already. Warns if the environment does
    not allow a recording."""
    if options is None or segment is None or of(segment) is not None:
        return
    try:
        Recording(segment, options)
    except RecordingError as error:
        segments.warn(f"{error}; nothing is recorded")


def close(segment: Optional[_quipu.Segment]) -> None:
    """Ends the recordings of a segment."""
    for recording in list(_open):
        if recording._segment is segment:
            recording.close()


def pause() -> None:
    """Ends the threads before a fork, because Python warns if a process with several threads
    forks."""
    for recording in list(_open):
        recording._native.pause()


def resume() -> None:
    """Continues after a fork, in the parent and in the child."""
    for recording in list(_open):
        try:
            recording._native.resume()
        except RecordingError as error:
            segments.warn(f"{error}; this process does not record")


@atexit.register
def _close_all() -> None:
    for recording in list(_open):
        recording.close()
