"""The metrics of each type in one process."""

import asyncio
import threading
import warnings

import pytest

import quipu_metrics as quipu


def test_children_are_found_again(registry):
    counter = quipu.Counter("c", "C.", ["a", "b"], registry=registry)
    assert counter.labels("1", "2") is counter.labels(a="1", b="2")
    assert isinstance(counter.labels("1", "2"), quipu.Counter)
    counter.labels(1, True).inc()
    counter.labels(1.0, "True").inc()
    assert registry.get_sample_value("c_total", {"a": "1", "b": "True"}) == 1
    assert registry.get_sample_value("c_total", {"a": "1.0", "b": "True"}) == 1


def test_what_equals_a_text_has_its_own(registry):
    class Named(str):
        def __str__(self):
            return "named"

    counter = quipu.Counter("c", "C.", ["a"], registry=registry)
    counter.labels("x").inc()
    counter.labels(Named("x")).inc()
    assert registry.get_sample_value("c_total", {"a": "named"}) == 1
    assert registry.get_sample_value("c_total", {"a": "x"}) == 1


def test_more_children_than_are_kept(registry):
    counter = quipu.Counter("c", "C.", ["a"], registry=registry)
    for _ in range(2):
        for i in range(5000):
            counter.labels(str(i)).inc()
    assert sum(s.value for s in counter.collect()[0].samples if s.name == "c_total") == 10000


def test_a_lone_surrogate_harms_nobody(registry):
    counter = quipu.Counter("c", "C.", ["a"], registry=registry)
    counter.labels("\ud800").inc()
    assert b"c_total" in quipu.generate_latest(registry)


def test_removal(registry):
    counter = quipu.Counter("c", "C.", ["a", "b"], registry=registry)
    child = counter.labels("1", "2")
    child.inc(5)
    counter.remove("1", "2")
    child.inc()
    assert registry.get_sample_value("c_total", {"a": "1", "b": "2"}) is None
    counter.labels("1", "2").inc()
    assert registry.get_sample_value("c_total", {"a": "1", "b": "2"}) == 1
    counter.labels("1", "3").inc()
    counter.labels("2", "3").inc()
    counter.remove_by_labels({"a": "1"})
    assert {s.labels["a"] for s in counter.collect()[0].samples} == {"2"}
    counter.clear()
    assert counter.collect()[0].samples == []


def test_reset_and_unregister(registry):
    counter = quipu.Counter("c", "C.", registry=registry)
    counter.inc(3)
    counter.reset()
    counter.inc()
    assert registry.get_sample_value("c_total") == 1
    registry.unregister(counter)
    assert quipu.generate_latest(registry) == b""
    again = quipu.Counter("c", "C.", registry=registry)
    assert registry.get_sample_value("c_total") == 0
    registry.unregister(again)
    other = quipu.Counter("c", "C.", ["a"], registry=registry)
    other.labels("x").inc()
    assert quipu.generate_latest(registry).count(b"c_total{") == 1


def test_context_managers_and_decorators(registry):
    summary = quipu.Summary("s", "S.", ["a"], registry=registry)
    gauge = quipu.Gauge("g", "G.", registry=registry)
    counter = quipu.Counter("c", "C.", registry=registry)
    with summary.time() as timer:
        timer.labels("x")
    assert timer.duration >= 0

    @summary.labels("x").time()
    @gauge.track_inprogress()
    def work():
        """Works."""
        assert gauge._get() == 1

    work()
    assert work.__doc__ == "Works."
    assert registry.get_sample_value("s_count", {"a": "x"}) == 2

    @counter.count_exceptions(KeyError)
    def fail(error):
        raise error

    for error in (KeyError, ValueError):
        with pytest.raises(error):
            fail(error)
    assert registry.get_sample_value("c_total") == 1

    @summary.labels("async").time()
    async def later():
        await asyncio.sleep(0.01)

    asyncio.run(later())
    assert registry.get_sample_value("s_sum", {"a": "async"}) >= 0.01
    with gauge.time():
        pass
    gauge.set_to_current_time()
    assert gauge._get() > 1e9


def test_threads_lose_nothing(registry):
    counter = quipu.Counter("c", "C.", ["a"], registry=registry)
    histogram = quipu.Histogram("h", "H.", ["a"], registry=registry)

    def count():
        for i in range(5000):
            counter.labels(str(i % 50)).inc()
            histogram.labels(str(i % 50)).observe(0.5)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        quipu.generate_latest(registry)
    for thread in threads:
        thread.join()
    total = sum(s.value for s in counter.collect()[0].samples if s.name == "c_total")
    observed = sum(s.value for s in histogram.collect()[0].samples if s.name == "h_count")
    assert (total, observed) == (20000, 20000)


def test_foreign_collectors(registry):
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

    class Foreign:
        def collect(self):
            family = GaugeMetricFamily("foreign", "Foreign.", labels=["a"])
            family.add_metric(['x"'], 7)
            yield family
            yield CounterMetricFamily("theirs", "Theirs.", value=3)

    quipu.Counter("own", "Own.", registry=registry).inc()
    foreign = Foreign()
    registry.register(foreign)
    text = quipu.generate_latest(registry).decode()
    assert 'foreign{a="x\\""} 7.0' in text and "own_total 1\n" in text
    assert registry.get_sample_value("theirs_total") == 3
    from quipu_metrics.openmetrics.exposition import generate_latest

    assert generate_latest(registry).decode().count("# EOF") == 1
    registry.unregister(foreign)
    assert b"foreign" not in quipu.generate_latest(registry)
    from quipu_metrics.core import GaugeMetricFamily as Ours

    class Described(Foreign):
        def describe(self):
            return [Ours("own", "O.")]

    with pytest.raises(quipu.DuplicateTimeseries):
        registry.register(Described())


def test_core_has_the_names_of_theirs():
    from prometheus_client import core as theirs

    from quipu_metrics import core as ours

    assert set(theirs.__all__) <= set(ours.__all__)
    for name in ("BucketSpan", "Exemplar", "NativeHistogram", "Sample"):
        assert getattr(ours, name)._fields == getattr(theirs, name)._fields


def test_a_native_histogram_of_a_collector_is_written_like_theirs(registry):
    import prometheus_client
    from prometheus_client import core as theirs
    from prometheus_client.openmetrics.exposition import generate_latest as their_latest

    from quipu_metrics import core as ours
    from quipu_metrics.openmetrics.exposition import generate_latest

    class Foreign:
        def __init__(self, core):
            self.core = core

        def collect(self):
            core = self.core
            family = core.HistogramMetricFamily("h", "H.", labels=["a"])
            spans = (core.BucketSpan(0, 2), core.BucketSpan(1, 1))
            exemplars = [core.Exemplar({"trace_id": "x"}, 0.67, core.Timestamp(1520879607, 789))]
            native = core.NativeHistogram(
                24, 100, 0, 0.001, 4, spans, spans, [2, 1, -3], [2, 1, -2], exemplars
            )
            family.add_sample("h", {"a": "x"}, 0, None, None, native)
            yield family

    their_registry = prometheus_client.CollectorRegistry()
    their_registry.register(Foreign(theirs))
    registry.register(Foreign(ours))
    for version in ("1.0.0", "2.0.0"):
        expected = their_latest(their_registry, version=version)
        assert generate_latest(registry, version=version) == expected
    assert b"h{" not in generate_latest(registry)


def test_views_and_target_info(registry):
    quipu.Counter("a", "A.", registry=registry).inc()
    quipu.Counter("b", "B.", registry=registry).inc()
    text = quipu.generate_latest(registry.restricted_registry(["a_total"]))
    assert b"a_total 1" in text and b"b_total" not in text
    registry.set_target_info({"region": "here"})
    assert b'target_info{region="here"} 1' in quipu.generate_latest(registry)
    lone = quipu.Counter("lone", "Lone.", registry=None)
    lone.inc()
    registry.register(lone)
    assert b"lone_total 1" in quipu.generate_latest(registry)


def test_a_function_that_fails_does_not_fail_the_scrape(registry):
    gauge = quipu.Gauge("g", "G.", registry=registry)
    gauge.set(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gauge.set_function(lambda: 1 / 0)
        assert b"g 1\n" in quipu.generate_latest(registry)


def test_created_samples_are_shown_on_request(registry):
    quipu.Counter("c", "C.", registry=registry).inc()
    assert b"_created" not in quipu.generate_latest(registry)
    quipu.enable_created_metrics()
    try:
        assert b"# TYPE c_created gauge\nc_created 1" in quipu.generate_latest(registry)
    finally:
        quipu.disable_created_metrics()
    lone = quipu.Counter("lone", "In a segment of its own.", registry=None)
    lone.inc()
    registry.register(lone)
    assert b"_created" not in quipu.generate_latest(registry)
    assert registry.get_sample_value("lone_created") is not None
    assert registry.get_sample_value("c_created") > 1e9


def test_infos_go_between_names_of_texts_without_new_memory(run):
    program = """
        import os
        import quipu_metrics as quipu

        registry = quipu.CollectorRegistry()
        info = quipu.Info("build", "Builds.", registry=registry)
        used = []
        for i in range(20):
            info.info({"version": str(i)} if i % 2 else {"revision": str(i)})
            used.append(len(os.listdir("/proc/self/fd")))
        assert used[3:] == used[3:4] * 17, used
        assert quipu.generate_latest(registry).count(b"build_info{") == 1
        print("ok")
    """
    assert run(program).stdout == "ok\n"
