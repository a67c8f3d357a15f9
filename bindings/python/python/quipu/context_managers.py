"""What ``time()``, ``count_exceptions()`` and ``track_inprogress()`` answer.

Each is a context manager and a decorator. A decorated coroutine function is measured until its
coroutine ends.
"""

import functools
import inspect
from timeit import default_timer


def _decorate(function, context):
    """Calls ``function`` inside of what ``context()`` makes for each call."""
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
    """Counts a block as in progress while it runs."""

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
    """Gives the seconds that a block took to a method of a metric."""

    __slots__ = ("_metric", "_method", "_start", "duration")

    def __init__(self, metric, method):
        self._metric, self._method = metric, method
        self.duration = None

    def __enter__(self):
        self._start = default_timer()
        return self

    def __exit__(self, typ, value, traceback):
        # The clock may be set back.
        self.duration = max(default_timer() - self._start, 0)
        getattr(self._metric, self._method)(self.duration)
        return False

    def labels(self, *args, **kwargs):
        """Chooses the series, for a block whose labels are known at its end."""
        self._metric = self._metric.labels(*args, **kwargs)

    def __call__(self, function):
        # One for each call, so that calls may overlap.
        return _decorate(function, lambda: Timer(self._metric, self._method))
