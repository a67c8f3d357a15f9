"""What ``time()``, ``count_exceptions()`` and ``track_inprogress()`` return.

Each is a context manager and a decorator. A decorated coroutine function is measured until its
coroutine ends.
"""

import functools
import inspect
from timeit import default_timer


def _decorate(function, context):
    """Wraps each call of ``function`` in a new ``context()``."""
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def wrapped(*args, **kwargs):
            with context():
                return await function(*args, **kwargs)

    else:

        @functools.wraps(function)
        def wrapped(*args, **kwargs):
            with context():
                return function(*args, **kwargs)

    return wrapped


class ExceptionCounter:
    """Counts the exceptions that leave a block."""

    __slots__ = ("_counter", "_exception")

    def __init__(self, counter, exception):
        self._counter, self._exception = counter, exception

    def __enter__(self):
        return None

    def __exit__(self, typ, value, traceback):
        if isinstance(value, self._exception):
            self._counter.inc()
        return False

    def __call__(self, function):
        return _decorate(function, lambda: self)


class InprogressTracker:
    """Adds 1 to a gauge while a block runs."""

    __slots__ = ("_gauge",)

    def __init__(self, gauge):
        self._gauge = gauge

    def __enter__(self):
        self._gauge.inc()

    def __exit__(self, typ, value, traceback):
        self._gauge.dec()

    def __call__(self, function):
        return _decorate(function, lambda: self)


class Timer:
    """Passes the duration of a block, in seconds, to a method of a metric."""

    __slots__ = ("_metric", "_method", "_start", "duration")

    def __init__(self, metric, method):
        self._metric, self._method = metric, method
        self.duration = None

    def __enter__(self):
        self._start = default_timer()
        return self

    def __exit__(self, typ, value, traceback):
        # The clock may jump backwards.
        self.duration = max(default_timer() - self._start, 0)
        getattr(self._metric, self._method)(self.duration)
        return False

    def labels(self, *args, **kwargs):
        """Chooses the series inside the block, for labels that are known only then."""
        self._metric = self._metric.labels(*args, **kwargs)

    def __call__(self, function):
        # A new timer for each call, since calls may overlap.
        return _decorate(function, lambda: Timer(self._metric, self._method))
