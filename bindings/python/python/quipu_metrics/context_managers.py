"""The results of ``time()``, ``count_exceptions()`` and ``track_inprogress()``.

Each is a context manager and a decorator. A decorated coroutine function is measured until its
coroutine ends.
"""

from __future__ import annotations

import functools
import inspect
from timeit import default_timer
from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, ContextManager, Literal, Optional, Tuple, Type
from typing import TypeVar, Union, cast

if TYPE_CHECKING:
    from typing_extensions import Self

    from .metrics import Counter, Gauge, Histogram, Summary

_Function = TypeVar("_Function", bound=Callable[..., object])
_Exceptions = Union[Type[BaseException], Tuple[Type[BaseException], ...]]


def _decorate(function: _Function, context: Callable[[], ContextManager[object]]) -> _Function:
    """Wraps each call of ``function`` in a new ``context()``."""
    call: Callable[..., Any] = function
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def wrapped(*args: object, **kwargs: object) -> object:
            with context():
                return await call(*args, **kwargs)

        return cast(_Function, wrapped)

    @functools.wraps(function)
    def wrapped_call(*args: object, **kwargs: object) -> object:
        with context():
            return call(*args, **kwargs)

    return cast(_Function, wrapped_call)


class ExceptionCounter:
    """Counts the exceptions that leave a block or a decorated function."""

    __slots__ = ("_counter", "_exception")

    def __init__(self, counter: Counter, exception: _Exceptions) -> None:
        self._counter, self._exception = counter, exception

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        typ: Optional[Type[BaseException]],
        value: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> Literal[False]:
        if isinstance(value, self._exception):
            self._counter.inc()
        return False

    def __call__(self, function: _Function) -> _Function:
        return _decorate(function, lambda: self)


class InprogressTracker:
    """Adds 1 to a gauge while a block or a decorated function runs."""

    __slots__ = ("_gauge",)

    def __init__(self, gauge: Gauge) -> None:
        self._gauge = gauge

    def __enter__(self) -> None:
        self._gauge.inc()

    def __exit__(
        self,
        typ: Optional[Type[BaseException]],
        value: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> Literal[False]:
        self._gauge.dec()
        return False

    def __call__(self, function: _Function) -> _Function:
        return _decorate(function, lambda: self)


class Timer:
    """Passes the duration of a block or a decorated function, in seconds, to a method of a metric.

    After the block, ``duration`` is the duration in seconds.
    """

    __slots__ = ("_metric", "_method", "_start", "duration")

    def __init__(self, metric: Union[Gauge, Histogram, Summary], method: str) -> None:
        self._metric, self._method = metric, method
        self.duration: Optional[float] = None

    def __enter__(self) -> Self:
        self._start = default_timer()
        return self

    def __exit__(
        self,
        typ: Optional[Type[BaseException]],
        value: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> Literal[False]:
        # The clock can jump backwards.
        self.duration = max(default_timer() - self._start, 0)
        getattr(self._metric, self._method)(self.duration)
        return False

    def labels(self, *args: object, **kwargs: object) -> None:
        """Chooses the series inside the block, for labels that are known only then."""
        self._metric = self._metric.labels(*args, **kwargs)

    def __call__(self, function: _Function) -> _Function:
        # A new timer for each call, because calls can overlap.
        return _decorate(function, lambda: Timer(self._metric, self._method))
