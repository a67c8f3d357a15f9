"""Where the numbers are."""

import os
import threading
import warnings

from . import _quipu

LIMIT = 256 << 20
"""The bytes up to which a segment may grow, where nothing else is said. It takes what it uses."""

FILE_NAME = "metrics.quipu"
"""The file in the directory that is configured."""

_warned = set()
_warned_lock = threading.Lock()


def warn(message: str, about: str = "") -> None:
    """Warns, once in a process about each thing."""
    about = about or message
    with _warned_lock:
        if about in _warned:
            return
        _warned.add(about)
    warnings.warn(f"quipu: {message}", RuntimeWarning, stacklevel=3)


def anonymous(limit: int = LIMIT):
    """A segment that this process and the children that it forks share."""
    segment, why = _quipu.Segment.anonymous(limit)
    if why:
        warn(f"{why}; the numbers are in memory of each process' own", "private")
    return segment


class _Apart:
    """Where metrics are that stand apart: those of registries that no other process has, and of none.

    They share one segment, so that each takes no descriptors and no mapping of its own. When it has
    grown, the next metrics are made in another one: a segment goes with the last of its metrics.
    """

    def __init__(self) -> None:
        self._segment = self._private = None

    def segment(self):
        """The segment for the next metric."""
        if self._segment is None or self._segment.used > _ENOUGH:
            self._segment = anonymous()
        return self._segment

    def make(self, make):
        """Makes a metric; in memory of this process' own, where the system gives no other."""
        try:
            return make(self.segment())
        except _quipu.NoRoomError:
            pass
        try:
            # It may be full of series.
            self._segment = None
            return make(self.segment())
        except _quipu.NoRoomError as error:
            warn(f"{error}; the numbers are in memory of each process' own", "private")
        if self._private is None or self._private.used > _ENOUGH:
            self._private = _quipu.Segment.private(LIMIT)
        return make(self._private)


_ENOUGH = 8 << 20

apart = _Apart()


def open_segment(path=None, limit: int = LIMIT):
    """The segment in a directory; where it cannot be had, one that children share, and a warning."""
    if path is None:
        return anonymous(limit)
    directory = os.fspath(path)
    file = os.path.join(directory, FILE_NAME)
    try:
        os.makedirs(directory, exist_ok=True)
        segment, why = _quipu.Segment.open(file, limit)
    except OSError as error:
        warn(
            f"{error}; this process and its children count in memory, and workers that are not its "
            "children count apart: name a directory that can be written, in QUIPU_DIR or configure()"
        )
        return anonymous(limit)
    if why:
        warn(why)
    return segment


def configured_path():
    """The directory that the environment names."""
    return (
        os.environ.get("QUIPU_DIR")
        or os.environ.get("PROMETHEUS_MULTIPROC_DIR")
        or os.environ.get("prometheus_multiproc_dir")
        or None
    )


def is_multiprocess() -> bool:
    """Whether the environment asks for what ``prometheus_client`` calls multi-process mode."""
    return bool(
        os.environ.get("PROMETHEUS_MULTIPROC_DIR") or os.environ.get("prometheus_multiproc_dir")
    )
