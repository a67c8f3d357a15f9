"""Where the numbers of the default registry are."""

import os
import threading
import warnings

from . import _quipu

LIMIT = 256 << 20
"""The bytes up to which a segment may grow, where nothing else is said. It takes what it uses."""

SMALL_LIMIT = 64 << 20
"""The same, of the segments of other registries than the default one."""

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


def anonymous(limit: int = SMALL_LIMIT):
    """A segment that this process and the children that it forks share."""
    segment, why = _quipu.Segment.anonymous(limit)
    if why:
        warn(why)
    return segment


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


def keep_function(gauge, function) -> None:
    """Has a scrape ask for the value of a gauge."""
    gauge._segment._functions[gauge._name, gauge._labelvalues] = (gauge, function)


def ask_functions(segment) -> None:
    """Asks for the values of the gauges in a segment."""
    for gauge, function in list(segment._functions.values()):
        gauge._ask(function)


def forget_functions(segment, name: str) -> None:
    """Asks no more for the values of the gauge of that name."""
    functions = segment._functions
    for key in [key for key in functions if key[0] == name]:
        del functions[key]
