"""Tests that the metrics of prometheus_client count in a segment after quipu.install()."""

import pytest


@pytest.mark.native
def test_everything_is_shared_and_shown(run):
    program = """
        import os
        import prometheus_client as p
        before = p.Counter("before", "Made before.", ["a"])
        before.labels("x").inc(2)
        early = p.Histogram("early", "Made before.")
        early.observe(0.3)
        level = p.Gauge("level", "Made before.")
        level.set(4)
        import quipu_metrics as quipu
        quipu.install()
        quipu.install()
        after = p.Counter("after", "Made after.", ["a"])
        h = p.Histogram("h", "H.", ["a"], buckets=[1, 2, 5])
        s = p.Summary("s", "S.")
        g = p.Gauge("g", "G.", ["a"])
        m = p.Gauge("m", "M.", multiprocess_mode="max")
        f = p.Gauge("f", "F.")
        f.set_function(lambda: 7)
        i = p.Info("i", "I.")
        i.info({"a": "b"})
        for n in range(3):
            pid = os.fork()
            if pid == 0:
                before.labels("x").inc()
                after.labels(str(n)).inc(2, {"trace_id": "abc"})
                h.labels("x").observe(n + 0.5, {"trace_id": str(n)})
                s.observe(2)
                g.labels("x").inc()
                m.set(n)
                early.observe(0.3)
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
        import quipu_metrics as quipu
        from prometheus_client.openmetrics.exposition import generate_latest
        for text in (p.generate_latest().decode(), quipu.generate_latest().decode()):
            lines = {l.rsplit(" ", 1)[0]: float(l.rsplit(" ", 1)[1])
                     for l in text.splitlines() if not l.startswith("#")}
            assert lines['before_total{a="x"}'] == 5, text
            assert lines["early_count"] == 4 and lines["level"] == 4
            assert all(lines['after_total{a="%d"}' % n] == 2 for n in range(3))
            assert lines['h_bucket{a="x",le="1.0"}'] == 1 and lines['h_count{a="x"}'] == 3
            assert lines["s_sum"] == 6 and lines["s_count"] == 3
            assert lines['g{a="x"}'] == 3 and lines["m"] == 2 and lines["f"] == 7
            assert lines['i_info{a="b"}'] == 1 and "process_cpu_seconds_total" in lines
        text = generate_latest(p.REGISTRY).decode()
        assert 'h_bucket{a="x",le="1.0"} 1.0 # {trace_id="0"} 0.5' in text, text
        assert 'trace_id="abc"' in text
        assert h.labels("x")._buckets[0].get_exemplar().labels == {"trace_id": "0"}
        before.remove("x")
        assert b'before_total{' not in p.generate_latest()
        before.labels("x").inc()
        assert b'before_total{a="x"} 1.0' in p.generate_latest()
        after.clear()
        assert p.REGISTRY.get_sample_value("after_total", {"a": "1"}) is None
        print("ok")
    """
    assert run(program).stdout == "ok\n"


def test_multi_process_mode_works_as_it_is(run, tmp_path):
    program = """
        import os, quipu_metrics as quipu
        quipu.install()
        import prometheus_client as p
        from prometheus_client import multiprocess
        c = p.Counter("c", "C.", ["a"])
        g = p.Gauge("g", "G.")
        live = p.Gauge("live", "L.", multiprocess_mode="liveall")
        pids = []
        for n in range(3):
            pid = os.fork()
            if pid == 0:
                c.labels("x").inc()
                g.set(n)
                live.set(n)
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
            multiprocess.mark_process_dead(pid)
            pids.append(pid)
        registry = p.CollectorRegistry()
        multiprocess.MultiProcessCollector(registry)
        text = p.generate_latest(registry).decode()
        assert 'c_total{a="x"} 3.0' in text, text
        for n, pid in enumerate(pids):
            assert 'g{pid="%d"} %d.0' % (pid, n) in text, text
            assert 'live{pid="%d"}' % pid not in text, text
        print("ok")
    """
    directory = tmp_path / "numbers"
    directory.mkdir()
    assert run(program, PROMETHEUS_MULTIPROC_DIR=str(directory)).stdout == "ok\n"


@pytest.mark.native
def test_a_removed_series_comes_again_in_other_processes(run):
    program = """
        import os, quipu_metrics as quipu
        quipu.install()
        import prometheus_client as p
        c = p.Counter("c", "C.", ["a"])
        child = c.labels("x")
        child.inc()
        pid = os.fork()
        if pid == 0:
            c.remove("x")
            os._exit(0)
        os.waitpid(pid, 0)
        assert p.REGISTRY.get_sample_value("c_total", {"a": "x"}) is None
        child.inc()
        assert p.REGISTRY.get_sample_value("c_total", {"a": "x"}) == 1
        print("ok")
    """
    assert run(program).stdout == "ok\n"


def test_threads(run):
    program = """
        import threading, quipu_metrics as quipu
        quipu.install()
        import prometheus_client as p
        h = p.Histogram("h", "H.", ["a"])
        def work():
            for i in range(2000):
                h.labels(str(i % 100)).observe(0.3)
        threads = [threading.Thread(target=work) for _ in range(4)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        [metric] = h.collect()
        assert sum(s.value for s in metric.samples if s.name == "h_count") == 8000
        print("ok")
    """
    assert run(program).stdout == "ok\n"


APART = """
    import os, quipu_metrics as quipu
    import prometheus_client as p
    {install}
    R1, R2 = p.CollectorRegistry(), p.CollectorRegistry()
    one = p.Counter("same", "S.", ["a"], registry=R1)
    two = p.Counter("same", "S.", ["a"], registry=R2)
    shared = p.Counter("same", "S.", ["a"])
    alone = p.Counter("same", "S.", ["a"], registry=None)
    for n, counter in enumerate([one, two, shared, alone]):
        counter.labels("x").inc(n + 1)
    value = lambda registry: registry.get_sample_value("same_total", dict(a="x"))
    assert [value(r) for r in (R1, R2, p.REGISTRY)] == [1, 2, 3]
    fresh = p.CollectorRegistry()
    p.Counter("same", "S.", ["a"], registry=fresh)
    assert value(fresh) is None
    # A metric outlives its registrations, and may have several at once.
    R1.unregister(one)
    one.labels("x").inc(10)
    R1.register(one)
    fresh.unregister(next(iter(fresh._collector_to_names)))
    fresh.register(one)
    assert value(R1) == value(fresh) == 11
    # A metric that is created again starts at zero.
    p.REGISTRY.unregister(shared)
    again = p.Counter("same", "S.", ["a"])
    assert value(p.REGISTRY) is None
    again.labels("x").inc()
    shared.labels("x").inc()
    assert value(p.REGISTRY) == 1
    assert b'same_total{{a="x"}} 1.0' in p.generate_latest()
    p.REGISTRY.unregister(again)
    assert b"same" not in p.generate_latest()
    for labels in ([], ["b"], []):
        made = p.Histogram("h", "H.", labels, buckets=[1, 2])
        (made.labels("y") if labels else made).observe(1.5)
        assert p.REGISTRY.get_sample_value("h_count", dict(b="y") if labels else {{}}) == 1
        p.REGISTRY.unregister(made)
    counter = p.Counter("reset", "R.")
    counter.inc(4)
    counter.reset()
    assert p.REGISTRY.get_sample_value("reset_total") == 0 == counter._value.get()
    total = p.Counter("requests_total_total", "T.", unit="total")
    total.inc()
    assert p.REGISTRY.get_sample_value(total._name + "_total") == 1
    assert (total._name + "_total 1").encode() in p.generate_latest()

    class Sub(p.Counter):
        def __init__(self, name, *args, **kwargs):
            super().__init__("my_" + name, *args, **kwargs)
    sub = Sub("sub", "S.", ["a"], registry=R1)
    sub.labels("x").inc()
    assert R1.get_sample_value("my_sub_total", dict(a="x")) == 1
    print("ok")
"""


def test_registries_are_apart_as_they_are_there(run):
    for install in ("", "quipu.install()"):
        assert run(APART.format(install=install)).stdout == "ok\n", install


def test_what_is_in_the_default_registry_is_shown_by_both(run):
    program = """
        import quipu_metrics as quipu
        quipu.install()
        import prometheus_client as p
        c = p.Counter("c", "C.")
        c.inc(2)
        assert quipu.REGISTRY.get_sample_value("c_total") == 2
        p.REGISTRY.unregister(c)
        assert quipu.REGISTRY.get_sample_value("c_total") is None
        c.inc()
        p.REGISTRY.register(c)
        assert quipu.REGISTRY.get_sample_value("c_total") == 3
        assert quipu.generate_latest().count(b"c_total 3") == 1
        other = p.CollectorRegistry()
        lone = p.Counter("lone", "L.", registry=other)
        lone.inc()
        assert quipu.REGISTRY.get_sample_value("lone_total") is None
        p.REGISTRY.register(lone)
        assert quipu.REGISTRY.get_sample_value("lone_total") == 1
        print("ok")
    """
    assert run(program).stdout == "ok\n"


@pytest.mark.native
def test_multi_process_mode_shares_the_numbers_of_all_registries_by_name(run, tmp_path):
    program = """
        import os{install}
        import prometheus_client as p
        from prometheus_client import multiprocess
        R1, R2 = p.CollectorRegistry(), p.CollectorRegistry()
        one = p.Counter("c", "C.", registry=R1)
        one.inc(3)
        two = p.Counter("c", "C.", registry=R2)
        two.inc()
        pid = os.fork()
        if pid == 0:
            one.inc(10)
            os._exit(0)
        os.waitpid(pid, 0)
        registry = p.CollectorRegistry()
        multiprocess.MultiProcessCollector(registry)
        print(registry.get_sample_value("c_total"))
    """
    for name, install in (("theirs", ""), ("ours", ", quipu_metrics; quipu_metrics.install()")):
        directory = tmp_path / name
        directory.mkdir()
        done = run(program.format(install=install), PROMETHEUS_MULTIPROC_DIR=str(directory))
        assert done.stdout == "14.0\n", name


@pytest.mark.native
def test_a_registry_of_a_preforked_application_is_shared_with_its_workers(run):
    program = """
        import os, quipu_metrics as quipu
        quipu.install()
        import prometheus_client as p
        registry = p.CollectorRegistry()
        c = p.Counter("c", "C.", ["a"], registry=registry)
        for n in range(3):
            if os.fork() == 0:
                c.labels(str(n)).inc()
                c.labels("all").inc()
                os._exit(0)
            os.wait()
        assert registry.get_sample_value("c_total", {"a": "all"}) == 3
        assert registry.get_sample_value("c_total", {"a": "2"}) == 1
        print("ok")
    """
    assert run(program).stdout == "ok\n"
