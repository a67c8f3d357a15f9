"""The children that ``labels()`` finds, cached or not, and the arguments of methods that count."""

import enum
import functools
import gc
import inspect
import sys
import weakref

import pytest

import quipu_metrics as quipu


def counts(counter):
    """The totals of a counter with one label."""
    samples = counter.collect()[0].samples
    return {s.labels["a"]: s.value for s in samples if s.name.endswith("_total")}


def test_values_that_are_equal_or_have_equal_hashes_are_kept_apart(registry):
    class Named(str):
        def __str__(self):
            return "named"

    class Number(int):
        def __str__(self):
            return "number"

    class Code(enum.IntEnum):
        OK = 1

        def __str__(self):
            return "ok"

    counter = quipu.Counter("c", "C.", ["a"], registry=registry)
    values = [1, "1", True, 1.0, Named("1"), Number(1), Code.OK, None, 0, 0.0, -0.0, False]
    values += [-1, -2, 2**61 - 1, 2**61, 2**64 + 1, "", "\u00e9", "\u0101", "\U0001f600"]
    expected = {}
    for _ in range(3):
        for value in values:
            counter.labels(value).inc()
            expected[str(value)] = expected.get(str(value), 0) + 1
    assert counts(counter) == expected
    for value in values:
        assert counter.labels(value) is counter.labels(str(value)) is counter.labels(a=value)


def test_integers_with_equal_low_bits_have_entries_of_their_own(registry):
    counter = quipu.Counter("c", "C.", ["a"], registry=registry)
    children = [counter.labels(i << 40) for i in range(1500)]
    assert all(counter.labels(i << 40) is child for i, child in enumerate(children))


def test_an_object_that_changes_is_read_in_each_call(registry):
    class Changing:
        text = "before"

        def __str__(self):
            return self.text

    counter = quipu.Counter("c", "C.", ["a"], registry=registry)
    changing = Changing()
    counter.labels(changing).inc()
    changing.text = "after"
    counter.labels(changing).inc()
    counter.labels(a=changing).inc()
    assert counts(counter) == {"before": 1, "after": 2}


def test_objects_that_are_freed_and_reused(registry):
    counter = quipu.Counter("c", "C.", ["a", "b"], registry=registry)
    for i in range(20000):
        # Each string and each number takes the place of one that was just freed.
        counter.labels(f"text {i % 100}", 1000 + i % 3).inc()
    samples = [s for s in counter.collect()[0].samples if s.name == "c_total"]
    found = {tuple(s.labels.values()): s.value for s in samples}
    assert len(found) == 300 and set(found.values()) == {66, 67}
    assert sum(found.values()) == 20000


def test_texts_that_are_equal_but_different_objects(registry):
    counter = quipu.Counter("c", "C.", ["a"], registry=registry)
    first, second = "/a path".upper(), "/a path".upper()
    assert first is not second
    assert counter.labels(first) is counter.labels(second) is counter.labels(a=second)
    big = int("123456789")
    assert counter.labels(big) is counter.labels(int("123456789"))


def test_named_values_in_any_order(registry):
    counter = quipu.Counter("c", "C.", ["a", "b"], registry=registry)
    child = counter.labels("1", "2")
    assert counter.labels(a="1", b="2") is counter.labels(b="2", a="1") is child
    assert counter.labels(a=1, b=2) is counter.labels(b=2, a=1) is child
    # These names are equal to the label names, but not the same objects.
    assert counter.labels(**{"".join("a"): "1", "-b"[1:]: "2"}) is child
    assert counter.labels(**dict([("x"[:0] + "b", "2"), ("a", "1")])) is child
    for arguments, named, what in [
        ((), {"a": "1"}, "Incorrect label names"),
        ((), {"a": "1", "c": "2"}, "Incorrect label names"),
        ((), {"a": "1", "b": "2", "c": "3"}, "Incorrect label names"),
        (("1",), {"b": "2"}, "Can't pass both"),
        (("1",), {}, "Incorrect label count"),
        (("1", "2", "3"), {}, "Incorrect label count"),
        ((), {}, "Incorrect label count"),
    ]:
        with pytest.raises(ValueError, match=what):
            counter.labels(*arguments, **named)
    with pytest.raises(ValueError, match="can not chain"):
        child.labels("1", "2")
    with pytest.raises(ValueError, match="No label names"):
        quipu.Counter("plain", "P.", registry=registry).labels()


def test_a_removed_series_is_not_found_again(registry):
    counter = quipu.Counter("c", "C.", ["a"], registry=registry)
    same = quipu.Gauge("g", "G.", ["a"], registry=registry)
    for remove in (
        lambda: counter.remove("1"),
        lambda: counter.remove(1),
        lambda: counter.remove_by_labels({"a": "1"}),
        counter.clear,
    ):
        for values in [("1",), (1,)]:
            child = counter.labels(*values)
            child.inc(7)
            remove()
            child.inc()
            counter.labels(*values).inc()
            assert counter.labels("1") is counter.labels(1) is counter.labels(a=1)
            assert counts(counter) == {"1": 1}
    same.labels(1).set(1)
    same.clear()
    same.labels(1).inc(2)
    assert registry.get_sample_value("g", {"a": "1"}) == 2


@pytest.mark.native
def test_a_series_removed_by_another_process(run):
    done = run("""
        import os, quipu_metrics as quipu
        counter = quipu.Counter("c", "C.", ["a"])
        for value in ("1", 1, 1, "1"):
            counter.labels(value).inc(5)
        if os.fork() == 0:
            counter.labels(1).inc()
            counter.labels("1").inc()
            counter.remove("1")
            counter.labels(1).inc(100)
            os._exit(0)
        os.wait()
        counter.labels(1).inc()
        counter.labels("1").inc()
        counter.labels(a=1).inc()
        print(quipu.REGISTRY.get_sample_value("c_total", {"a": "1"}))
    """)
    assert done.stdout == "103.0\n"


def test_the_cache_keeps_a_bounded_number_of_children(registry):
    class Weak(quipu.Counter):
        """Its instances can be referred to weakly."""

    counter = Weak("c", "C.", ["a"], registry=registry)
    children = [weakref.ref(counter.labels(i)) for i in range(20000)]
    gc.collect()
    assert sum(child() is not None for child in children) <= 4096
    text = "a text of its own".upper()
    before = sys.getrefcount(text)
    for i in range(10):
        counter.labels(text)
    assert sys.getrefcount(text) <= before + 2
    # Objects of other types than `str` and `int` are not kept at all.
    other = type("Other", (), {})()
    freed = weakref.ref(other)
    counter.labels(other)
    del other
    assert freed() is None


def test_a_metric_is_freed_with_its_children():
    class Weak(quipu.Counter):
        """Its instances can be referred to weakly."""

    counter = Weak("c", "C.", ["a"], registry=None)
    child = counter.labels("1")
    references = [weakref.ref(counter), weakref.ref(child), weakref.ref(counter.labels(2))]
    counter.labels(3).parent = counter
    del child
    gc.collect()
    assert all(reference() is not None for reference in references)
    del counter
    gc.collect()
    assert all(reference() is None for reference in references)


def test_labels_in_a_finalizer(run):
    done = run("""
        import gc, quipu_metrics as quipu

        class Ending(quipu.Counter):
            def __del__(self):
                # The cache is emptied when it is full, and a child ends after that.
                if ending:
                    for value in ("end", 1, "x", None):
                        all.labels(value).inc()
                        parent.labels(f"{value} again").inc()
                    ending.pop()

        ending = [1] * 10
        all = quipu.Counter("all", "All.", ["a"])
        parent = Ending("c", "C.", ["a"])
        for i in range(20000):
            parent.labels(i).inc()
        parent.clear()
        gc.collect()
        print(quipu.REGISTRY.get_sample_value("all_total", {"a": "None"}), len(ending), flush=True)
    """)
    assert (done.stdout, done.stderr) == ("10.0 0\n", "")


def test_labels_when_the_interpreter_ends(run):
    done = run("""
        import os, quipu_metrics as quipu

        class Last:
            def __del__(self, os=os, counter=quipu.Counter("last", "L.", ["a"])):
                counter.labels(None).inc(amount=2)
                os.write(1, b"last %d" % counter.labels("None")._get())

        last = Last()
    """)
    assert (done.stdout, done.stderr) == ("last 2", "")


@pytest.mark.native
def test_arguments(registry):
    counter = quipu.Counter("c", "C.", registry=registry)
    gauge = quipu.Gauge("g", "G.", registry=registry)
    histogram = quipu.Histogram("h", "H.", registry=registry)
    summary = quipu.Summary("s", "S.", registry=registry)
    counter.inc()
    counter.inc(2)
    counter.inc(0.5)
    counter.inc(True)
    counter.inc(amount=4)
    counter.inc(8, None)
    counter.inc(8, exemplar={"trace_id": "1"})
    counter.inc(exemplar=None, amount=1)
    assert counter._get() == 25.5
    counter.inc(2**40)
    assert [gauge.set(-1), gauge.dec(-3), gauge.dec(), gauge.inc(-1), gauge.inc()] == [None] * 5
    assert gauge._get() == 1
    gauge.set(value=2**70)
    assert gauge._get() == 2.0**70
    histogram.observe(1, {"trace_id": "1"})
    histogram.observe(amount=-1)
    summary.observe(amount=-1)
    assert registry.get_sample_value("h_sum") == 0
    # Callers without an array of arguments, from C.
    assert next(iter(gauge.inc, 1)) is None
    functools.partial(gauge.set, value=1)()
    list(map(gauge.inc, [1, 1.0]))
    gauge.dec.__call__(*(), **{})
    assert gauge._get() == 2
    for call, what in [
        (lambda: counter.inc(1, None, 2), "takes 2 positional arguments but 3 were given"),
        (lambda: counter.inc(by=1), "unexpected keyword argument 'by'"),
        (lambda: counter.inc(1, amount=1), "multiple values for argument 'amount'"),
        (lambda: gauge.set(), "missing 1 required positional argument: 'value'"),
        (lambda: histogram.observe(exemplar={}), "missing 1 required positional argument"),
        (lambda: counter.inc("1"), "must be real number"),
        (lambda: gauge.inc(exemplar={}), "unexpected keyword argument"),
        (lambda: quipu.Counter.inc(gauge), "doesn't apply to a 'Gauge' object"),
        (lambda: quipu.Counter.inc(), "needs an argument"),
        (lambda: gauge.set([]), "must be real number"),
    ]:
        with pytest.raises(TypeError, match=what):
            call()
    with pytest.raises(OverflowError):
        gauge.set(10**400)
    with pytest.raises(ValueError, match="non-negative"):
        counter.inc(-1)
    with pytest.raises(ValueError, match="non-negative"):
        counter.inc(-0.5)
    assert counter._get() == 2**40 + 25.5 and gauge._get() == 2
    with pytest.raises(ValueError, match="missing label values"):
        quipu.Counter("labelled", "L.", ["a"], registry=registry).inc()


@pytest.mark.native
def test_signatures_and_documentation():
    assert str(inspect.signature(quipu.Counter.inc)) == "(self, /, amount=1.0, exemplar=None)"
    assert str(inspect.signature(quipu.Gauge.set)) == "(self, /, value)"
    assert str(inspect.signature(quipu.Enum.labels)) == "(self, /, *labelvalues, **labelkwargs)"
    for kind in (quipu.Counter, quipu.Gauge, quipu.Histogram, quipu.Summary, quipu.Enum):
        assert kind.labels.__doc__ == "Returns the child with these label values."
    assert quipu.Summary.observe.__doc__ == "Records an observation of `amount`."
