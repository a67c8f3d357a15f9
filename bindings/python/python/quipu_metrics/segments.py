"""Chooses the memory that metrics count in: a file in a configured directory, anonymous shared
memory that children inherit, or, if the system provides neither, private memory.

If the better memory is not available, this module warns once and falls back to the next.
"""

from __future__ import annotations

import os
import threading
import warnings
from typing import Callable, Optional, Set, Union

from .backend import IS_NATIVE, _quipu

LIMIT = 256 << 20
"""The default limit on the size of a segment, in bytes. A segment takes only the memory it uses."""

FILE_NAME = "metrics.quipu"
"""The name of the file in the configured directory."""

Path = Union[str, "os.PathLike[str]"]
"""A path, for example of the configured directory."""

_warned: Set[str] = set()
_warned_lock = threading.Lock()


def warn(message: str, about: str = "") -> None:
    """Warns once per process about each ``about``, which defaults to the message."""
    about = about or message
    with _warned_lock:
        if about in _warned:
            return
        _warned.add(about)
    warnings.warn(f"quipu: {message}", RuntimeWarning, stacklevel=3)


def anonymous(limit: int = LIMIT) -> _quipu.Segment:
    """A segment that this process shares with the children that it forks."""
    segment, why = _quipu.Segment.anonymous(limit)
    if why:
        warn(f"{why}; each process counts in private memory of its own", "private")
    return segment


class _Apart:
    """The memory of metrics that other processes do not find by name, for example the metrics of a
    registry without a path, or without a registry.

    These metrics share one segment, because a separate one would take a descriptor and a mapping
    for each metric. When this segment has grown beyond ``_ENOUGH`` bytes, the next metrics go to a
    new one, because a segment is freed only with the last of its metrics.
    """

    def __init__(self) -> None:
        self._segment: Optional[_quipu.Segment] = None
        self._private: Optional[_quipu.Segment] = None

    def segment(self) -> _quipu.Segment:
        """The segment for the next metric."""
        if self._segment is None or self._segment.used > _ENOUGH:
            self._segment = anonymous()
        return self._segment

    def make(self, make: Callable[[_quipu.Segment], None]) -> None:
        """Makes a metric, in private memory if the system provides no other."""
        try:
            return make(self.segment())
        except _quipu.NoRoomError:
            pass
        try:
            # The segment can be full of series: try a new one.
            self._segment = None
            return make(self.segment())
        except _quipu.NoRoomError as error:
            warn(f"{error}; each process counts in private memory of its own", "private")
        if self._private is None or self._private.used > _ENOUGH:
            self._private = _quipu.Segment.private(LIMIT)
        return make(self._private)


_ENOUGH = 8 << 20

apart = _Apart()


def _checked_mode(mode: Optional[int]) -> Optional[int]:
    """Returns the permission bits of a new file. The owner needs both of its bits, because the file
    is opened again."""
    if mode is None:
        return None
    if not isinstance(mode, int) or not 0 <= mode <= 0o777:
        raise ValueError(f"mode {mode!r} is not permission bits: use an octal number, such as 0o640")
    if mode & 0o600 != 0o600:
        raise ValueError(
            f"mode {mode:#05o} keeps the owner from reading or writing: add 0o600, such as 0o640"
        )
    return mode


def _group_id(group: Union[int, str, None]) -> Optional[int]:
    """Returns the ID of the group with that ID or name."""
    if isinstance(group, str):
        try:
            # Windows has no such module.
            import grp

            return grp.getgrnam(group).gr_gid
        except (ImportError, KeyError):
            raise ValueError(
                f"group {group!r} is unknown to the system: use its ID, or create it"
            ) from None
    # The number above the greatest ID is reserved for "no group".
    if group is not None and not (isinstance(group, int) and 0 <= group <= 2**32 - 2):
        raise ValueError(f"group {group!r} is not a group: use its ID or its name")
    return group


def open_segment(
    path: Optional[Path] = None,
    limit: int = LIMIT,
    mode: Optional[int] = None,
    group: Union[int, str, None] = None,
) -> _quipu.Segment:
    """Returns the segment in a directory; if it cannot be opened, warns and makes one for
    children."""
    mode, group = _checked_mode(mode), _group_id(group)
    if path is None:
        return anonymous(limit)
    directory = os.fspath(path)
    file = os.path.join(directory, FILE_NAME)
    try:
        if IS_NATIVE:
            os.makedirs(directory, exist_ok=True)
        segment, why = _quipu.Segment.open(file, limit, mode, group)
    except OSError as error:
        warn(
            f"{error}; this process and its children count in memory, and all other workers count "
            "separately: set QUIPU_DIR to a writable directory, or pass one to configure()"
        )
        return anonymous(limit)
    if why:
        warn(why)
    return segment


def configured_path() -> Optional[str]:
    """Returns the directory that the environment names, or None."""
    return (
        os.environ.get("QUIPU_DIR")
        or os.environ.get("PROMETHEUS_MULTIPROC_DIR")
        or os.environ.get("prometheus_multiproc_dir")
        or None
    )


def is_multiprocess() -> bool:
    """Returns whether the environment asks for the multi-process mode of ``prometheus_client``."""
    return bool(
        os.environ.get("PROMETHEUS_MULTIPROC_DIR") or os.environ.get("prometheus_multiproc_dir")
    )
