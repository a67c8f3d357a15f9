"""The replacement of the native part writes all numbers with its lock."""

import threading
import types

import pytest

import quipu_metrics as quipu
from quipu_metrics import backend

pytestmark = pytest.mark.skipif(backend.IS_NATIVE, reason="the native part has no such lock")


class SignallingLock:
    """A lock that sets an event when a second thread wants the lock."""

    def __init__(self):
        self.lock, self.wanted, self.owner = threading.RLock(), threading.Event(), None

    def __enter__(self):
        if self.owner not in (None, threading.get_ident()):
            self.wanted.set()
        self.lock.acquire()
        self.owner = threading.get_ident()

    def __exit__(self, *_error):
        self.owner = None
        self.lock.release()


@pytest.fixture
def lock(monkeypatch):
    lock = SignallingLock()
    monkeypatch.setattr(backend._quipu, "_lock", lock)
    return lock


def start_blocked(lock, write):
    """Starts a thread that writes. Returns when the thread waits for the lock or has ended."""

    def run():
        write()
        lock.wanted.set()

    thread = threading.Thread(target=run)
    thread.start()
    lock.wanted.wait()
    return thread


def gauge(registry):
    metric = quipu.Gauge("g", "G.", registry=registry)
    return lambda: metric.set(5), metric._get


def state(registry):
    metric = quipu.Enum("e", "E.", states=["on", "off"], registry=registry)
    return lambda: metric.state("off"), metric._index


def exemplar(registry):
    metric = quipu.Counter("c", "C.", registry=registry)
    value = backend._quipu.Value()
    value.attach(metric, "value")
    found = types.SimpleNamespace(labels={"trace_id": "1"}, value=1.0)
    return lambda: value.set_exemplar(found), lambda: bool(value._exemplar())


@pytest.mark.parametrize("create", [gauge, state, exemplar])
def test_a_write_waits_for_the_lock(lock, registry, create):
    write, read = create(registry)
    before = read()
    with lock:
        thread = start_blocked(lock, write)
        assert read() == before
    thread.join()
    assert read() != before


def test_a_value_that_is_set_during_an_increment_is_kept(lock, registry):
    metric = quipu.Gauge("g", "G.", registry=registry)
    threads = []

    class Numbers(list):
        """Numbers whose reader is interrupted by another thread."""

        def __iter__(self):
            if not threads:
                threads.append(start_blocked(lock, lambda: metric.set(5)))
            return super().__iter__()

    metric._core.series.numbers = Numbers([1.0])
    metric.inc()
    threads[0].join()
    assert metric._get() == 5
