"""Replaces the native part in pure Python, for platforms where the native part is missing: the same
classes and functions, but the numbers are in the memory of one process.

``_quipu.pyi`` documents each class and function.
"""

from __future__ import annotations

import math
import os
import socket
import stat
import threading
import time
from typing import Any, Dict, Iterable, List, Optional, Sequence, Set, Tuple, Union

# The version is not read from the metadata of the installed package, because a checkout in PYTHONPATH
# has none.
__version__ = "0.1.0"

_Labels = Dict[str, str]
_Exemplar = Tuple[_Labels, float, Optional[float]]
_Sample = Tuple[str, _Labels, float, Optional[_Exemplar]]
_Values = Tuple[str, ...]

# Protects all numbers. The lock is reentrant, because a finalizer can run while its thread holds
# the lock, and can count.
_lock = threading.RLock()
# Whether to refuse names that older versions of Prometheus cannot parse.
_is_legacy = False
_MAX_EXEMPLAR_CHARACTERS = 128
# The maximum number of children that a parent caches. A parent with more children drops its cache,
# and creates the children again from their series.
_MAX_CHILDREN = 4096


class MismatchError(ValueError):
    """The segment has a metric of that name with other labels or settings."""


class NoRoomError(ValueError):
    """The segment or the system has no memory left for a metric."""


class RecordingError(ValueError):
    """The flight recorder cannot record."""


# Tracebacks name the public package instead of this module.
RecordingError.__module__ = "quipu_metrics"


class _Series:
    """The numbers of one series: of a counter or a gauge, one value; of a summary, the count and the
    sum; of a histogram, the count of each bucket and the sum; of a set of states, the index."""

    __slots__ = ("numbers", "created", "exemplars", "is_removed")

    def __init__(self, size: int) -> None:
        self.numbers: List[float] = [0.0] * size
        self.created = time.time()
        # The latest exemplar of a counter, or of each bucket by its index.
        self.exemplars: Dict[int, _Exemplar] = {}
        self.is_removed = False

    def keep_exemplar(self, index: int, exemplar: Optional[_Exemplar]) -> None:
        if exemplar:
            with _lock:
                self.exemplars[index] = exemplar


class _Family:
    """All series of one metric."""

    def __init__(
        self,
        typ: str,
        name: str,
        help: str,
        unit: str,
        labelnames: Sequence[str],
        settings: Sequence[Any] = (),
    ) -> None:
        self.typ, self.name, self.help, self.unit = typ, name, help, unit
        self.labelnames = tuple(labelnames)
        # The bounds of buckets, the mode of a gauge, or the states.
        self.settings = tuple(settings)
        self.series: Dict[_Values, _Series] = {}

    def is_like(self, other: _Family) -> bool:
        mine, theirs = [
            (family.typ, family.unit, family.labelnames, family.settings)
            for family in (self, other)
        ]
        return mine == theirs

    def bind(self, values: _Values) -> _Series:
        size = {"histogram": len(self.settings) + 1, "summary": 2}.get(self.typ, 1)
        if self.typ == "gauge" and self.settings[0].endswith(("min", "max")):
            # Start without a number, because a zero would already be a minimum or maximum.
            size = 0
        with _lock:
            series = self.series.get(values)
            if series is None:
                series = self.series[values] = _Series(size)
        return series

    def remove(self, values: _Values) -> bool:
        with _lock:
            series = self.series.pop(values, None)
            if series is not None:
                series.is_removed = True
        return series is not None

    def remove_matching(self, pairs: Sequence[Tuple[str, str]]) -> int:
        wanted = set(pairs)
        with _lock:
            all_values = list(self.series)
        matching = [v for v in all_values if wanted <= set(zip(self.labelnames, v))]
        return sum(self.remove(values) for values in matching)

    def samples(self, created: bool, form: str = "") -> List[_Sample]:
        with _lock:
            rows = [
                (values, list(series.numbers), series.created, dict(series.exemplars))
                for values, series in self.series.items()
            ]
        found: List[_Sample] = []
        for values, numbers, start, exemplars in rows:
            labels = dict(zip(self.labelnames, values))
            if self.typ == "gauge" and self.settings[0] in ("all", "liveall"):
                labels["pid"] = str(os.getpid())
            found += self._samples(labels, numbers, exemplars, form)
            if created and self.typ in ("counter", "histogram", "summary"):
                found.append((f"{self.name}_created", dict(labels), start, None))
        return found

    def _samples(
        self, labels: _Labels, numbers: List[float], exemplars: Dict[int, _Exemplar], form: str
    ) -> Iterable[_Sample]:
        name = self.name
        if self.typ == "counter":
            yield f"{name}_total", labels, numbers[0], exemplars.get(0)
        elif self.typ == "gauge":
            if numbers:
                yield name, labels, numbers[0], None
        elif self.typ == "summary":
            yield f"{name}_count", labels, numbers[0], None
            yield f"{name}_sum", dict(labels), numbers[1], None
        elif self.typ == "histogram":
            from .exposition import float_to_go_string

            count = 0.0
            for index, bound in enumerate(self.settings):
                count += numbers[index]
                bucket = {**labels, "le": float_to_go_string(bound)}
                yield f"{name}_bucket", bucket, count, exemplars.get(index)
            # OpenMetrics forbids the sum of negative observations, and a count without a sum.
            is_positive = self.settings[0] >= 0
            if is_positive or not form.startswith("openmetrics"):
                yield f"{name}_count", labels, count, None
            if is_positive or form.startswith("text"):
                yield f"{name}_sum", dict(labels), numbers[-1], None
        elif self.typ == "stateset":
            for index, state in enumerate(self.settings):
                yield name, {**labels, name: state}, float(numbers[0] == index), None


class Segment:
    """The families that can be found by their names."""

    # One segment for each path, so that registries with the same path share their numbers.
    _opened: Dict[str, Segment] = {}

    def __init__(self) -> None:
        self._named: Dict[str, _Family] = {}

    @property
    def path(self) -> Optional[str]:
        return None

    @property
    def used(self) -> int:
        return 0

    @staticmethod
    def anonymous(limit: int) -> Tuple[Segment, Optional[str]]:
        return Segment(), None

    @staticmethod
    def private(limit: int) -> Segment:
        return Segment()

    @staticmethod
    def open(
        path: Union[str, os.PathLike[str]], limit: int, mode: Optional[int], group: Optional[int]
    ) -> Tuple[Segment, Optional[str]]:
        return Segment._opened.setdefault(os.path.abspath(path), Segment()), None

    def unregister(self, name: str) -> bool:
        return name in self._named

    def find(self, name: str, created: bool) -> List[Any]:
        return _collected([self._named[name]] if name in self._named else [], created)

    def _family(self, family: _Family, is_named: bool) -> _Family:
        """Returns the family of the same name, or this one if there is none."""
        if not is_named:
            return family
        known = self._named.setdefault(family.name, family)
        if not known.is_like(family):
            raise MismatchError(f"{family.name!r} exists with other labels or settings")
        return known


class Source:
    """The handle with which a scrape reads one metric."""

    def __init__(self, family: _Family) -> None:
        self._family = family


class _Metric:
    """A metric: a parent, one of its children, or a metric without labels."""

    __slots__ = ("_core",)
    _typ = ""
    _core: _Core

    def __new__(cls, *_args: object, **_kwargs: object) -> Any:
        return object.__new__(cls)

    def _take(self, made: Dict[str, Any], settings: Sequence[Any] = ()) -> None:
        if hasattr(self, "_core"):
            raise RuntimeError("the metric is already initialized: make another object")
        help = "" if made["help"] is None else str(made["help"])
        names = made["labelnames"]
        family = _Family(self._typ, made["name"], help, made["unit"], names, settings)
        family = made["segment"]._family(family, made["is_named"])
        self._core = _Core(self, family, made["segment"], made["help"])
        if not names:
            self._core.series = family.bind(())

    def _initialized(self) -> _Core:
        try:
            return self._core
        except AttributeError:
            raise RuntimeError(
                "the metric is not initialized: call super().__init__() in the class's __init__"
            ) from None

    def _bound(self) -> _Series:
        """The series that the metric counts in."""
        series = self._initialized().series
        if series is None:
            raise ValueError(f"{self._typ} metric is missing label values")
        return series

    def labels(self, *labelvalues: object, **labelkwargs: object) -> Any:
        core = self._initialized()
        if core.series is not None:
            raise self._no_children()
        names = core.family.labelnames
        if labelkwargs:
            if labelvalues:
                raise ValueError("Can't pass both *args and **kwargs")
            if sorted(labelkwargs) != sorted(names):
                raise ValueError("Incorrect label names")
            labelvalues = tuple(labelkwargs[name] for name in names)
        if len(labelvalues) != len(names):
            raise ValueError("Incorrect label count")
        texts = _texts(labelvalues)
        child = core.children.get(texts)
        if child is None or child._core.series.is_removed:
            if len(core.children) >= _MAX_CHILDREN:
                core.children = {}
            child = core.children[texts] = self._child(core, texts)
        return child

    def _child(self, core: _Core, values: _Values) -> Any:
        # The `__init__` of a subclass is not called, because it can require other arguments.
        child = _Metric.__new__(type(self))
        child._core = _Core(core.root, core.family, core.segment, core.help)
        child._core.values, child._core.series = values, core.family.bind(values)
        if getattr(self, "_is_subclass"):
            child.__dict__.update(self.__dict__)
        return child

    def _no_children(self) -> ValueError:
        if self._core.values:
            return ValueError(f"{self} already has labels set; can not chain calls to .labels()")
        return ValueError(f"No label names were set when constructing {self}")

    def remove(self, *labelvalues: object) -> None:
        core = self._initialized()
        if core.series is not None:
            raise self._no_children()
        count = len(core.family.labelnames)
        if len(labelvalues) != count:
            raise ValueError(f"Incorrect label count (expected {count}, got {labelvalues})")
        texts = _texts(labelvalues)
        core.children.pop(texts, None)
        core.family.remove(texts)

    def _remove_matching(self, pairs: Sequence[Tuple[str, str]]) -> Optional[int]:
        core = self._initialized()
        if core.values:
            return 0
        core.children.clear()
        return core.family.remove_matching(pairs)

    def _is_observable(self) -> bool:
        return hasattr(self, "_core") and self._core.series is not None

    @property
    def _root(self) -> Any:
        return self._initialized().root

    @property
    def _name(self) -> str:
        return self._initialized().family.name

    @property
    def _documentation(self) -> Any:
        return self._initialized().help

    @property
    def _unit(self) -> str:
        return self._initialized().family.unit

    @property
    def _segment(self) -> Segment:
        return self._initialized().segment

    @property
    def _sources(self) -> List[Source]:
        return [Source(self._initialized().family)]

    @property
    def _labelnames(self) -> _Values:
        return self._initialized().family.labelnames

    @property
    def _labelvalues(self) -> _Values:
        return self._initialized().values


class _Core:
    """The state of a metric. A metric gets it in its ``__init__``."""

    __slots__ = ("root", "family", "segment", "help", "values", "series", "children")

    def __init__(self, root: _Metric, family: _Family, segment: Segment, help: object) -> None:
        self.root, self.family, self.segment, self.help = root, family, segment, help
        # The label values of a child.
        self.values: _Values = ()
        # The series, unless the metric is a parent, which has children.
        self.series: Optional[_Series] = None
        self.children: Dict[_Values, Any] = {}


def _texts(values: Iterable[object]) -> _Values:
    return tuple([value if type(value) is str else str(value) for value in values])


def _float(amount: float) -> float:
    # Unlike `float`, this refuses strings.
    return amount if type(amount) is float else math.ldexp(amount, 0)


def _exemplar(pairs: Any, value: float) -> Optional[_Exemplar]:
    """Checks the labels of an exemplar, and returns it; ``None`` if it has no labels."""
    if not pairs:
        return None
    labels = dict(pairs.items())
    for text in (*labels, *labels.values()):
        if not isinstance(text, str):
            raise TypeError(f"{text!r} in an exemplar is not a string")
    characters = sum(len(name) + len(text) for name, text in labels.items())
    if characters > _MAX_EXEMPLAR_CHARACTERS:
        raise ValueError(
            f"Exemplar labels have {characters} UTF-8 characters, exceeding the limit of "
            f"{_MAX_EXEMPLAR_CHARACTERS}"
        )
    for name in labels:
        if name.startswith("__"):
            raise ValueError(f"Reserved label metric name: {name}")
        if _is_legacy and not (name.isascii() and name.isidentifier()):
            raise ValueError(f"Invalid label metric name: {name}")
    return labels, value, time.time()


class Counter(_Metric):
    """A sum that only increases."""

    __slots__ = ()
    _typ = "counter"

    def _make(self, made: Dict[str, object]) -> None:
        self._take(made)

    def inc(self, amount: float = 1.0, exemplar: Optional[Dict[str, str]] = None) -> None:
        series, amount = self._bound(), _float(amount)
        if amount < 0:
            raise ValueError("Counters can only be incremented by non-negative amounts.")
        if amount == amount:
            with _lock:
                series.numbers[0] += amount
        series.keep_exemplar(0, _exemplar(exemplar, amount))

    def reset(self) -> None:
        series = self._bound()
        with _lock:
            series.numbers[0], series.created = 0.0, time.time()

    def _get(self) -> float:
        return self._bound().numbers[0]


class Gauge(_Metric):
    """A value that goes up and down."""

    __slots__ = ()
    _typ = "gauge"

    def _make(self, made: Dict[str, object], mode: str, is_set_only: bool) -> None:
        self._take(made, (mode, is_set_only))

    def _add(self, method: str, amount: float) -> None:
        series = self._bound()
        if self._core.family.settings[1]:
            raise RuntimeError(f"{method} must not be used with the mostrecent mode")
        with _lock:
            series.numbers[:] = [sum(series.numbers) + amount]

    def inc(self, amount: float = 1.0) -> None:
        self._add("inc", _float(amount))

    def dec(self, amount: float = 1.0) -> None:
        self._add("dec", -_float(amount))

    def set(self, value: float) -> None:
        series, value = self._bound(), _float(value)
        # Otherwise, an increment of another thread could overwrite this value by an older sum.
        with _lock:
            series.numbers[:] = [value]

    def set_to_current_time(self) -> None:
        self.set(time.time())

    def _get(self) -> float:
        return sum(self._bound().numbers)


class Histogram(_Metric):
    """Counts of observations in buckets by size."""

    __slots__ = ()
    _typ = "histogram"

    def _make(self, made: Dict[str, object], buckets: Sequence[float]) -> None:
        self._take(made, buckets)

    def observe(self, amount: float, exemplar: Optional[Dict[str, str]] = None) -> None:
        series, amount = self._bound(), _float(amount)
        bounds = self._core.family.settings
        index = next((i for i, bound in enumerate(bounds) if amount <= bound), len(bounds) - 1)
        with _lock:
            series.numbers[index] += 1
            series.numbers[-1] += amount
        series.keep_exemplar(index, _exemplar(exemplar, amount))


class Summary(_Metric):
    """The number of observations, and their sum."""

    __slots__ = ()
    _typ = "summary"

    def _make(self, made: Dict[str, object]) -> None:
        self._take(made)

    def observe(self, amount: float) -> None:
        series, amount = self._bound(), _float(amount)
        with _lock:
            series.numbers[0] += 1
            series.numbers[1] += amount


class Enum(_Metric):
    """A set of states, one of which is on."""

    __slots__ = ()
    _typ = "stateset"

    def _make(self, made: Dict[str, object], states: Sequence[str]) -> None:
        self._take(made, states)

    def state(self, state: str) -> None:
        series, states = self._bound(), self._core.family.settings
        if not isinstance(state, str):
            raise TypeError(f"state {state!r} is not a string")
        if state not in states:
            raise ValueError(f"unknown state {state!r}: use one of {list(states)!r}")
        index = states.index(state)
        with _lock:
            series.numbers[0] = index

    def _index(self) -> Optional[int]:
        return int(self._bound().numbers[0])


class Info:
    """The key-value pairs of one metric, and of its children."""

    def __init__(self, name: str, help: str, labelnames: List[str]) -> None:
        self._family = _Infos("info", name, help, "", labelnames)

    @property
    def is_named(self) -> bool:
        return False

    @property
    def sources(self) -> List[Source]:
        return [Source(self._family)] if self._family.series else []

    def set(
        self,
        named: Optional[Segment],
        apart: Segment,
        values: List[str],
        texts: List[Tuple[str, str]],
    ) -> None:
        if len(values) != len(self._family.labelnames):
            raise ValueError("Incorrect label count")
        with _lock:
            self._family.pairs[tuple(values)] = dict(texts)
            self._family.bind(tuple(values))

    def remove(self, pairs: Sequence[Tuple[str, str]]) -> None:
        self._family.remove_matching(pairs)


class _Infos(_Family):
    """A family whose series have different labels."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.pairs: Dict[_Values, _Labels] = {}

    def samples(self, created: bool, form: str = "") -> List[_Sample]:
        with _lock:
            rows = [(values, self.pairs[values]) for values in self.series]
        return [
            (f"{self.name}_info", {**dict(zip(self.labelnames, values)), **pairs}, 1.0, None)
            for values, pairs in rows
        ]


class Value:
    """A number of a metric. It is empty until it is attached."""

    _part: Optional[Tuple[_Family, _Series, int]] = None

    def __init__(self, *_args: object, **_kwargs: object) -> None:
        pass

    def attach(self, metric: Any, part: str, number: int = 0, bound: float = 0.0) -> None:
        index = {
            ("counter", "value"): 0,
            ("gauge", "value"): 0,
            ("summary", "count"): 0,
            ("summary", "sum"): 1,
            ("histogram", "sum"): -1,
            ("histogram", "bucket"): number,
        }.get((metric._typ, part))
        if index is None or not metric._is_observable():
            raise TypeError(f"{metric} has no {part}")
        self._part = (metric._core.family, metric._core.series, index)

    def _follow(self) -> Optional[Tuple[_Family, _Series, int]]:
        if self._part is None or self._part[1].is_removed:
            self._rebind()
        return self._part

    def inc(self, amount: float) -> None:
        part = self._follow()
        if part:
            _, series, index = part
            with _lock:
                # A gauge for a minimum or maximum starts without a number.
                series.numbers = series.numbers or [0.0]
                series.numbers[index] += amount

    def set(self, value: float, timestamp: Optional[float] = None) -> None:
        part = self._follow()
        if part:
            family, series, index = part
            with _lock:
                series.numbers = series.numbers or [0.0]
                series.numbers[index] = value
                if family.typ == "counter" and value == 0:
                    series.created = time.time()

    def get(self) -> float:
        part = self._part or self._follow()
        return float(part[1].numbers[part[2]]) if part and part[1].numbers else 0.0

    def set_exemplar(self, exemplar: Any) -> None:
        part = self._follow()
        kept = _exemplar(exemplar.labels, exemplar.value)
        if part:
            part[1].keep_exemplar(part[2], kept)

    def _rebind(self) -> None:
        pass

    def _exemplar(self) -> Optional[Tuple[List[Tuple[str, str]], float, Optional[float]]]:
        kept = self._part[1].exemplars.get(self._part[2]) if self._part else None
        return (list(kept[0].items()), kept[1], kept[2]) if kept else None


class RecordingOptions:
    """The metrics to record, and the memory for them."""

    def __init__(self, interval: float, bytes: int, series: int, families: List[str]) -> None:
        pass


class Recording:
    """Warns and records nothing, because the flight recorder needs the native part."""

    is_writing = False

    def __init__(self, segment: Segment, options: RecordingOptions) -> None:
        from .segments import warn

        warn("the flight recorder needs the native part, on Linux; nothing is recorded")

    def close(self) -> None:
        pass

    def pause(self) -> bool:
        return False

    def resume(self) -> None:
        pass


class BoundPath:
    """The path of a bound socket, which ``remove`` removes."""

    def __init__(self, path: str) -> None:
        self._path, self._owner, self._file = path, os.getpid(), os.stat(path)

    def remove(self) -> None:
        try:
            is_ours = os.path.samestat(self._file, os.stat(self._path))
            if is_ours and self._owner == os.getpid():
                os.unlink(self._path)
        except OSError:
            pass


def collect(
    segment: Optional[Segment], hidden: Set[str], sources: List[Source], created: bool
) -> List[Any]:
    return _collected(_families(segment, hidden, sources), created)


def _families(
    segment: Optional[Segment], hidden: Set[str], sources: List[Source]
) -> List[_Family]:
    named = list(segment._named.values()) if segment is not None else []
    families = [family for family in named if family.name not in hidden]
    return [*families, *(source._family for source in sources)]


def _collected(families: Iterable[_Family], created: bool, form: str = "") -> List[Any]:
    found: Dict[str, Any] = {}
    for family in families:
        head: Any = (family.name, family.help, family.typ, family.unit, [])
        found.setdefault(family.name, head)[4].extend(family.samples(created, form))
    return list(found.values())


def expose(
    segment: Optional[Segment],
    hidden: Set[str],
    sources: List[Source],
    form: Tuple[str, str],
    end: bool,
) -> bytes:
    from .exposition import _text
    from .registry import metric_of

    families = _collected(_families(segment, hidden, sources), False, form[0])
    metrics = [metric_of(family) for family in families]
    return _text(metrics, *form, is_own=True, is_end=end)


def negotiate(accept: str) -> Tuple[str, str, str]:
    best, chosen = 0.0, ("text", "underscores")
    for accepted in accept.split(","):
        media, *rest = (part.strip() for part in accepted.split(";"))
        pairs = (part.partition("=")[::2] for part in rest)
        parameters = {name.strip().lower(): value.strip().strip('"') for name, value in pairs}
        form = _FORMS.get((media.lower(), parameters.get("version", "")))
        if media in ("*/*", "text/*"):
            form = "text"
        try:
            weight = float(parameters.get("q", "1"))
        except ValueError:
            weight = 0.0
        if form and weight > best:
            is_quoted = form != "text" and parameters.get("escaping") == "allow-utf-8"
            best, chosen = weight, (form, "allow-utf-8" if is_quoted else "underscores")
    form, escaping = chosen
    return form, escaping, _CONTENT_TYPES[form].format(escaping)


_FORMS = {
    ("application/openmetrics-text", ""): "openmetrics",
    ("application/openmetrics-text", "0.0.1"): "openmetrics",
    ("application/openmetrics-text", "1.0.0"): "openmetrics",
    ("application/openmetrics-text", "2.0.0"): "openmetrics-2",
    ("text/plain", "1.0.0"): "text-utf-8",
    ("text/plain", "0.0.4"): "text",
    ("text/plain", ""): "text",
}
_CONTENT_TYPES = {
    "text": "text/plain; version=0.0.4; charset=utf-8",
    "text-utf-8": "text/plain; version=1.0.0; charset=utf-8; escaping={}",
    "openmetrics": "application/openmetrics-text; version=1.0.0; charset=utf-8; escaping={}",
    "openmetrics-2": "application/openmetrics-text; version=2.0.0; charset=utf-8; escaping={}",
}


def forget_children() -> None:
    global _lock
    # Another thread of the parent can hold the lock, and does not exist in the child.
    _lock = threading.RLock()


def set_legacy(is_legacy: bool) -> None:
    global _is_legacy
    _is_legacy = is_legacy


def listen_at(path: Union[str, os.PathLike[str]], backlog: int) -> Tuple[int, BoundPath]:
    path = os.fspath(path)
    if not hasattr(socket, "AF_UNIX"):
        raise OSError("this platform has no unix sockets: use a host and a port")
    _free(path)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(backlog)
        bound = BoundPath(path)
        return listener.detach(), bound


def _free(path: str) -> None:
    """Removes the socket file of a killed process. Raises ``OSError`` if the path is in use."""
    try:
        is_socket = stat.S_ISSOCK(os.stat(path).st_mode)
    except FileNotFoundError:
        return
    if not is_socket:
        raise OSError(f"cannot listen at {path}: it is not a socket, choose another path")
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(path)
        except ConnectionRefusedError:
            return os.unlink(path)
    raise OSError(f"cannot listen at {path}: another process listens on it")
