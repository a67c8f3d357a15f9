"""Registries and their metrics, compared to prometheus_client."""

import gc
import re
import warnings
import weakref
from unittest import mock

import prometheus_client
import pytest

import quipu_metrics as quipu

BOTH = pytest.mark.parametrize("library", [prometheus_client, quipu], ids=lambda m: m.__name__)


def text(library, registry):
    """Returns an exposition without the intended differences: numbers and creation times."""
    lines = library.generate_latest(registry).decode().splitlines()
    lines = [re.sub(r"^(\S.*) (\d+)\.0$", r"\1 \2", line) for line in lines if "_created" not in line]
    return "\n".join(lines)


@BOTH
def test_a_metric_outlives_its_registrations(library):
    one, two = library.CollectorRegistry(), library.CollectorRegistry()
    counter = library.Counter("c", "C.", ["a"], registry=one)
    counter.labels("x").inc()
    one.unregister(counter)
    counter.labels("x").inc(2)
    assert one.get_sample_value("c_total", {"a": "x"}) is None
    one.register(counter)
    two.register(counter)
    counter.labels("x").inc(4)
    for registry in (one, two):
        assert registry.get_sample_value("c_total", {"a": "x"}) == 7
        assert 'c_total{a="x"} 7' in text(library, registry)
    one.unregister(counter)
    counter.labels("x").inc()
    assert two.get_sample_value("c_total", {"a": "x"}) == 8
    assert text(library, one) == ""
    with pytest.raises(KeyError):
        one.unregister(counter)


@BOTH
def test_registries_are_apart(library):
    registries = [library.CollectorRegistry() for _ in range(3)]
    made = [library.Counter("same", "S.", registry=registry) for registry in registries]
    alone = library.Counter("same", "S.", registry=None)
    for n, counter in enumerate([*made, alone]):
        counter.inc(n + 1)
    values = [registry.get_sample_value("same_total") for registry in registries]
    assert values == [1, 2, 3] and alone.collect()[0].samples[0].value == 4
    # A metric that is created again shares nothing with the first, which keeps counting.
    [old], registry = made[:1], registries[0]
    registry.unregister(old)
    new = library.Counter("same", "S.", ["other"], registry=registry)
    old.inc()
    new.labels("x").inc()
    assert registry.get_sample_value("same_total", {"other": "x"}) == 1
    assert registry.get_sample_value("same_total") is None


@BOTH
def test_the_default_registry_begins_again_in_one_process(library):
    name = f"again_{library.__name__}"
    for labels in ([], [], ["a"], []):
        counter = library.Counter(name, "Made again.", labels)
        try:
            (counter.labels("x") if labels else counter).inc(3)
            values = {"a": "x"} if labels else {}
            assert library.REGISTRY.get_sample_value(name + "_total", values) == 3
            with pytest.raises(ValueError):
                library.Counter(name, "Twice.")
        finally:
            library.REGISTRY.unregister(counter)
        assert library.REGISTRY.get_sample_value(name + "_total", values) is None
    gauge = library.Gauge(name + "_gauge", "G.")
    library.REGISTRY.unregister(gauge)
    gauge.set(5)
    library.REGISTRY.register(gauge)
    assert library.REGISTRY.get_sample_value(name + "_gauge") == 5
    library.REGISTRY.unregister(gauge)


@BOTH
def test_infos_with_other_keys(library):
    registry = library.CollectorRegistry()
    info = library.Info("i", "I.", ["a"], registry=registry)
    info.labels("x").info({"version": "1"})
    info.labels("y").info({"revision": "2", "zone": "z"})
    info.labels("z").info({})
    lines = text(library, registry).splitlines()
    assert lines[:2] == ["# HELP i_info I.", "# TYPE i_info gauge"]
    assert sorted(lines[2:]) == [
        'i_info{a="x",version="1"} 1', 'i_info{a="y",revision="2",zone="z"} 1', 'i_info{a="z"} 1',
    ]
    info.labels("x").info({"revision": "3"})
    assert registry.get_sample_value("i_info", {"a": "x", "revision": "3"}) == 1
    assert registry.get_sample_value("i_info", {"a": "x", "version": "1"}) is None
    assert len(registry.restricted_registry(["i_info"]).collect().__next__().samples) == 3
    info.remove("y")
    assert 'a="y"' not in text(library, registry)
    info.clear()
    assert "i_info{" not in text(library, registry)


def test_infos_of_the_default_registry_with_other_keys(run):
    program = """
        import quipu_metrics as quipu
        info = quipu.Info("i", "I.", ["a"])
        info.labels("x").info({"version": "1"})
        info.labels("y").info({"revision": "2"})
        quipu.Counter("c", "C.").inc()
        text = quipu.generate_latest().decode()
        assert text.count("# TYPE i_info") == 1 and text.count("i_info{") == 2, text
        from quipu_metrics.openmetrics.exposition import generate_latest
        from prometheus_client.openmetrics.parser import text_string_to_metric_families
        text = generate_latest(quipu.REGISTRY).decode()
        families = {f.name: f for f in text_string_to_metric_families(text)}
        assert len(families["i"].samples) == 2, text
        print("ok")
    """
    assert run(program).stdout == "ok\n"


@BOTH
def test_subclasses(library):
    class Named(library.Counter):
        def __init__(self, name, *args, **kwargs):
            super().__init__("my_" + name, *args, **kwargs)
            self.extra = name

    registry = library.CollectorRegistry()
    counter = Named("c", "C.", ["a"], registry=registry)
    counter.labels("x").inc()
    assert counter.extra == "c" and isinstance(counter.labels("x"), Named)
    assert registry.get_sample_value("my_c_total", {"a": "x"}) == 1

    class Collecting(library.Gauge):
        def collect(self):
            for metric in super().collect():
                metric.documentation = "Changed."
                yield metric

    Collecting("g", "G.", registry=registry).set(3)
    assert "# HELP g Changed." in text(library, registry)
    for make in (
        lambda: library.Gauge("x", "X.", registry=registry),
        lambda: library.Summary("y", "Y.", registry=registry),
        lambda: library.Histogram("z", "Z.", registry=registry),
        lambda: library.Enum("e", "E.", states=["a"], registry=registry),
    ):
        class Subclass(type(make())):
            def __init__(self):
                super().__init__("sub", "S.", **self.more)

            more = {"states": ["a", "b"], "registry": None}

        if not hasattr(Subclass, "state"):
            Subclass.more = {"registry": None}
        assert Subclass()._name == "sub"


def test_subclasses_whose_children_need_other_arguments():
    class Prefixed(quipu.Counter):
        def __init__(self, name):
            super().__init__("my_" + name, "Mine.", ["a"], registry=None)
            self.extra = name

    # In prometheus_client, `__init__` makes a child, which would fail here.
    child = Prefixed("c").labels("x")
    child.inc()
    assert child.extra == "c" and child._value.get() == 1

    class Forgetful(quipu.Counter):
        def __init__(self):
            pass

    with pytest.raises(RuntimeError, match="super"):
        Forgetful().inc()


@BOTH
def test_methods_are_patched_and_attributes_kept(library):
    registry = library.CollectorRegistry()
    counter = library.Counter("c", "C.", registry=registry)
    with mock.patch.object(counter, "inc") as inc:
        counter.inc(3)
    inc.assert_called_once_with(3)
    counter.inc()
    assert registry.get_sample_value("c_total") == 1
    histogram = library.Histogram("h", "H.", ["a"], registry=registry)
    child = histogram.labels("x")
    with mock.patch.object(child, "observe", wraps=child.observe) as observe:
        histogram.labels("x").observe(1)
    assert observe.call_count == 1
    counter.note = "kept"
    assert vars(counter)["note"] == "kept"
    alone = library.Gauge("g", "G.", registry=None)
    found = weakref.ref(alone)
    del alone
    gc.collect()
    assert found() is None


@BOTH
def test_values_are_read_as_tests_do(library):
    registry = library.CollectorRegistry()
    counter = library.Counter("c", "C.", ["a"], registry=registry)
    counter.labels("x").inc(2)
    assert counter.labels("x")._value.get() == 2
    counter.labels("x")._value.set(0)
    assert counter.labels("x")._value.get() == 0
    assert list(counter._metrics) == [("x",)]
    counter._metrics[("x",)].inc()
    assert counter.labels("x")._value.get() == 1
    counter._metrics.clear()
    assert counter.collect()[0].samples == [] and not counter._metrics
    gauge = library.Gauge("g", "G.", registry=registry)
    gauge.set(4)
    assert gauge._value.get() == 4
    summary = library.Summary("s", "S.", registry=registry)
    summary.observe(3)
    assert (summary._count.get(), summary._sum.get()) == (1, 3)
    histogram = library.Histogram("h", "H.", buckets=[1, 2], registry=registry)
    histogram.observe(1.5)
    assert [bucket.get() for bucket in histogram._buckets] == [0, 1, 0]
    assert histogram._sum.get() == 1.5 and histogram._upper_bounds == [1, 2, float("inf")]
    enum = library.Enum("e", "E.", states=["a", "b"], registry=registry)
    enum.state("b")
    assert enum._value == 1
    info = library.Info("i", "I.", registry=registry)
    info.info({"a": "b"})
    assert info._value == {"a": "b"}


@BOTH
def test_only_collectors_of_the_names_are_asked(library):
    registry, asked = library.CollectorRegistry(), []
    library.Counter("c", "C.", registry=registry).inc()
    library.Gauge("g", "G.", registry=registry).set_function(lambda: asked.append(1) or 1)
    asked.clear()

    class Slow:
        def describe(self):
            return []

        def collect(self):
            raise AssertionError("asked")

    registry.register(Slow())
    restricted = registry.restricted_registry(["c_total", "none"])
    [metric] = restricted.collect()
    assert [(s.name, s.value) for s in metric.samples] == [("c_total", 1)]
    assert text(library, restricted).endswith("c_total 1") and not asked


@BOTH
def test_a_labelled_metric_without_children_has_a_header(library):
    registry = library.CollectorRegistry()
    library.Counter("c", "C.", ["a"], registry=registry)
    library.Histogram("h", "H.", ["a"], registry=registry)
    library.Enum("e", "E.", ["a"], states=["x"], registry=registry)
    assert text(library, registry).splitlines() == [
        "# HELP c_total C.", "# TYPE c_total counter", "# HELP h H.", "# TYPE h histogram",
        "# HELP e E.", "# TYPE e gauge",
    ]


@BOTH
def test_reset_begins_again(library):
    registry = library.CollectorRegistry()
    counter = library.Counter("c", "C.", ["a"], registry=registry)
    alone = library.Counter("alone", "A.", registry=registry)
    for one, name, labels in ((counter.labels("x"), "c", {"a": "x"}), (alone, "alone", {})):
        one.inc()
        before = registry.get_sample_value(name + "_created", labels)
        # quipu's creation times are exact to a tenth of a second.
        with mock.patch("time.time", return_value=before + 60):
            if library is prometheus_client:
                one.reset()
        if library is quipu:
            import time

            time.sleep(0.2)
            one.reset()
        assert registry.get_sample_value(name + "_created", labels) > before
        assert registry.get_sample_value(name + "_total", labels) == 0


@BOTH
def test_what_is_told_of_a_metric(library):
    registry = library.CollectorRegistry()
    assert library.Counter("none", None, registry=registry)._documentation is None
    total = library.Counter("x", "X.", unit="total", registry=registry)
    assert total._name == "x_total"
    core = __import__(f"{library.__name__}.core", fromlist=["core"])
    family = core.GaugeHistogramMetricFamily("gh", "GH.", labels=["a"])
    family.add_metric(["x"], buckets=[("1", 2), ("+Inf", 3)], gsum_value=4)
    assert {s.name: s.value for s in family.samples}["gh_gsum"] == 4


@BOTH
@pytest.mark.parametrize(
    "exemplar, error",
    [
        ({"trace": "x" * 200}, ValueError),
        ({"__trace": "x"}, ValueError),
        ({"trace": 1}, TypeError),
        ({}, None),
        ({"trace id": "x"}, None),
        ({"a" * 100: "b" * 28}, None),
    ],
)
def test_exemplars_are_checked(library, exemplar, error):
    registry = library.CollectorRegistry()
    counter = library.Counter("c", "C.", registry=registry)
    if error is None:
        counter.inc(1, exemplar)
    else:
        with pytest.raises(error):
            counter.inc(1, exemplar)
    # The increment counts even if the exemplar is refused.
    assert registry.get_sample_value("c_total") == 1


def test_names_of_exemplars_that_older_versions_do_not_read():
    counter = quipu.Counter("c", "C.", registry=None)
    quipu.enable_legacy_validation()
    try:
        with pytest.raises(ValueError, match="Invalid label"):
            counter.inc(1, {"trace id": "x"})
    finally:
        quipu.disable_legacy_validation()


def test_exemplars_where_there_are_none_are_refused(registry):
    from quipu_metrics.core import Exemplar, GaugeMetricFamily
    from quipu_metrics.openmetrics.exposition import generate_latest

    class Foreign:
        def collect(self):
            family = GaugeMetricFamily("g", "G.")
            family.add_sample("g", {}, 1, exemplar=Exemplar({"a": "b"}, 1))
            yield family

    registry.register(Foreign())
    with pytest.raises(ValueError, match="exemplar"):
        generate_latest(registry)


@pytest.mark.native
def test_what_overflows_is_warned_of(registry):
    counter = quipu.Counter("overflowing", "C.", ["a"], registry=registry)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for i in range(3):
            counter.labels("x" * (600 << 10) + str(i)).inc()
    assert ["quipu_overflow" in str(w.message) for w in caught] == [True]
    assert registry.get_sample_value("overflowing_total", {"quipu_overflow": "true"}) == 3


def test_many_metrics_are_made_and_shown_in_linear_time(run):
    # The profiler counts the calls in Python: they must be proportional to the number of metrics.
    program = """
        import sys, quipu_metrics as quipu

        def calls(work):
            count = 0
            def profile(frame, event, argument):
                nonlocal count
                count += 1
            sys.setprofile(profile)
            try:
                work()
            finally:
                sys.setprofile(None)
            return count

        def make(n, registry):
            for i in range(n):
                quipu.Counter(f"c{registry is quipu.REGISTRY}{n}_{i}", "C.", registry=registry)
        for of in (lambda: quipu.REGISTRY, quipu.CollectorRegistry):
            registry = of()
            make(500, registry)
            first = calls(lambda: make(499, registry))
            make(1000, registry)
            assert calls(lambda: make(501, registry)) < 1.1 * first
            assert quipu.generate_latest(registry).count(b"# TYPE") == 2500
        print("ok")
    """
    assert run(program).stdout == "ok\n"


def test_many_registries_take_no_descriptors(run):
    program = """
        import gc, os, quipu_metrics as quipu
        made = []
        def descriptors():
            return len(os.listdir("/proc/self/fd"))
        first = quipu.CollectorRegistry()
        quipu.Counter("c", "C.", registry=first).inc()
        before = descriptors()
        for i in range(1100):
            registry = quipu.CollectorRegistry()
            made.append((registry, quipu.Counter("c", "C.", registry=registry)))
            made.append((None, quipu.Counter("c", "C.", registry=None)))
        for i, (registry, counter) in enumerate(made):
            counter.inc(i)
        assert all(c.collect()[0].samples[0].value == i for i, (_, c) in enumerate(made))
        assert descriptors() == before, (descriptors(), before)
        print("ok")
    """
    assert run(program).stdout == "ok\n"


def test_registries_that_come_and_go_take_no_more_memory(run):
    program = """
        import gc, quipu_metrics as quipu
        from quipu_metrics import segments
        def mapped():
            return sum("memfd" in line for line in open("/proc/self/maps"))
        segments._ENOUGH = 64 << 10
        for i in range(3000):
            registry = quipu.CollectorRegistry()
            quipu.Gauge("g", "G.", ["a"], registry=registry).labels("x").set(i)
        gc.collect()
        assert mapped() < 5, mapped()
        print("ok")
    """
    assert run(program).stdout == "ok\n"


@pytest.mark.native
@pytest.mark.parametrize("bytes", [0, 4096])
def test_a_limit_on_files_is_warned_of(run, bytes):
    program = f"""
        import resource, signal, warnings
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, ({bytes}, {bytes}))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            import quipu_metrics as quipu
            c = quipu.Counter("c", "C.", ["a"])
            c.labels("x")
            more = [quipu.Gauge(f"g{{i}}", "G.") for i in range(50)]
            alone = [quipu.Gauge("g", "G.", registry=None) for _ in range(50)][-1]
            r = quipu.CollectorRegistry()
            h = quipu.Histogram("h", "H.", registry=r)
        for n, gauge in enumerate(more):
            gauge.set(n)
        assert all(quipu.REGISTRY.get_sample_value(f"g{{n}}") == n for n in range(50))
        c.labels("x").inc(2)
        alone.set(3)
        h.observe(1)
        assert quipu.REGISTRY.get_sample_value("c_total", dict(a="x")) == 2
        assert alone._value.get() == 3 and r.get_sample_value("h_count") == 1
        assert any("memory of" in str(w.message) for w in caught), [str(w.message) for w in caught]
        print("ok")
    """
    assert run(program).stdout == "ok\n"


@pytest.mark.native
def test_a_registry_of_a_preforked_application_is_shared_with_its_workers(run):
    program = """
        import os, quipu_metrics as quipu
        registry, other = quipu.CollectorRegistry(), quipu.CollectorRegistry()
        counter = quipu.Counter("c", "C.", registry=registry)
        quipu.Counter("c", "C.", registry=other).inc()
        for n in range(3):
            pid = os.fork()
            if pid == 0:
                counter.inc()
                late = quipu.Counter("late", "L.", registry=registry)
                late.inc()
                assert registry.get_sample_value("late_total") == 1
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
        assert registry.get_sample_value("c_total") == 3
        assert other.get_sample_value("c_total") == 1
        assert registry.get_sample_value("late_total") is None
        print("ok")
    """
    assert run(program).stdout == "ok\n"


@pytest.mark.native
def test_what_processes_share_goes_on_when_it_is_made_again(run, tmp_path):
    program = """
        import quipu_metrics as quipu
        c = quipu.Counter("c", "C.")
        c.inc()
        quipu.REGISTRY.unregister(c)
        quipu.Counter("c", "C.").inc()
        print(quipu.REGISTRY.get_sample_value("c_total"))
    """
    printed = [run(program, QUIPU_DIR=str(tmp_path / "numbers")).stdout for _ in range(2)]
    assert printed == ["2.0\n", "4.0\n"]
    forked = """
        import os, quipu_metrics as quipu
        c = quipu.Counter("c", "C.")
        c.inc()
        if os.fork() == 0:
            c.inc()
            os._exit(0)
        os.wait()
        quipu.REGISTRY.unregister(c)
        quipu.Counter("c", "C.").inc()
        print(quipu.REGISTRY.get_sample_value("c_total"))
    """
    assert run(forked).stdout == "3.0\n"


@pytest.mark.native
def test_a_subinterpreter_is_told_what_to_set(run):
    program = """
        try:
            import _xxsubinterpreters as interpreters
        except ImportError:
            import _interpreters as interpreters
        import sys
        sub = interpreters.create()
        interpreters.run_string(sub, '''if True:
            import sys
            sys.path[:] = %r
            try:
                import quipu_metrics as quipu
            except ImportError as error:
                assert "WSGIApplicationGroup %%{GLOBAL}" in str(error), error
                print("refused", flush=True)
            ''' % (sys.path,))
        interpreters.destroy(sub)
        import quipu_metrics as quipu
        quipu.Counter("c", "C.").inc()
        print("ok")
    """
    assert run(program).stdout == "refused\nok\n"


@pytest.mark.native
def test_names_that_were_unregistered_before_configure_are_shown_after_it(run, tmp_path):
    program = f"""
        import quipu_metrics as quipu
        early = quipu.Counter("c", "C.")
        early.inc()
        quipu.REGISTRY.unregister(early)
        quipu.configure({str(tmp_path / "numbers")!r})
        quipu.Counter("c", "C.").inc(2)
        print(quipu.REGISTRY.get_sample_value("c_total"))
    """
    assert [run(program).stdout for _ in range(2)] == ["2.0\n", "4.0\n"]
