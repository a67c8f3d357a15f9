"""Tests that quipu is a drop-in replacement: after the same calls, a scraper reads the same metrics
from prometheus_client and from quipu, and wrong calls raise the same classes of errors."""

import random

import prometheus_client
import pytest
from prometheus_client.openmetrics.exposition import generate_latest as their_open_metrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_open
from prometheus_client.parser import text_string_to_metric_families as parse_text

import quipu_metrics as quipu
from quipu_metrics.openmetrics.exposition import generate_latest as our_open_metrics


def program(library, registry, seed):
    """Creates metrics of every kind and makes random calls on them."""
    choice = random.Random(seed)
    counter = library.Counter("requests_total", "Requests.", ["code", "path"], registry=registry)
    plain = library.Counter("jobs", 'Jobs "done" \\ \n now.', unit="seconds", registry=registry)
    gauge = library.Gauge("queue", "Queue.", ["name"], namespace="app", registry=registry)
    level = library.Gauge("level", "Level.", subsystem="tank", registry=registry)
    histogram = library.Histogram(
        "latency_seconds", "Latency.", ["path"], registry=registry,
        buckets=(0.00001, 0.1, 0.5, 1, 2.5, 1000000, 1234567.5),
    )
    default = library.Histogram("default", "Default buckets.", registry=registry)
    summary = library.Summary("size_bytes", "Sizes.", ["kind"], registry=registry)
    enum = library.Enum("task", "Task.", ["n"], states=["new", "run", "end"], registry=registry)
    info = library.Info("build", "Build.", registry=registry)
    odd = library.Gauge("odd_count", "", ["le"], registry=registry)
    info.info({"version": "1.2.3", "rev": 'a"b\\c'})
    texts = ["200", "/x", "", "ü€😀", 'quote"', "back\\slash", "line\nfeed", 7, 2.5, True, None]
    for _ in range(400):
        a, b = choice.choice(texts), choice.choice(texts)
        value = choice.choice([0, 1, 0.5, 3, 1e-5, 0.1, 2.5, 17.25, 1e6, 12345678.9])
        what = choice.randrange(12)
        if what == 0:
            counter.labels(a, b).inc()
        elif what == 1:
            counter.labels(code=a, path=b).inc(value, {"trace_id": "abc", "n": "1"})
        elif what == 2:
            plain.inc(value)
        elif what == 3:
            gauge.labels(a).set(value)
        elif what == 4:
            gauge.labels(name=a).dec(value)
        elif what == 5:
            level.inc(value)
        elif what == 6:
            histogram.labels(a).observe(value, {"trace_id": f"t{value}"})
        elif what == 7:
            default.observe(value)
        elif what == 8:
            summary.labels(a).observe(value)
        elif what == 9:
            enum.labels(a).state(choice.choice(["new", "run", "end"]))
        elif what == 10:
            counter.remove(a, b) if (str(a), str(b)) in seen(counter) else counter.labels(a, b)
        else:
            odd.labels(a).set(value)
    level.set_function(lambda: 42.5)


def seen(counter):
    """Returns the label values of all series of a counter."""
    [metric] = counter.collect()
    return {(s.labels["code"], s.labels["path"]) for s in metric.samples}


def read(text, parse):
    """Returns the families that a parser finds, sorted, without the times of exemplars."""
    families = {}
    for family in parse(text.decode()):
        samples = []
        for sample in family.samples:
            exemplar = sample.exemplar
            exemplar = exemplar and (sorted(exemplar.labels.items()), float(exemplar.value))
            labels = tuple(sorted(sample.labels.items()))
            samples.append((sample.name, labels, sample.value, repr(exemplar)))
        documentation = family.documentation
        families[family.name] = (family.type, documentation, family.unit, sorted(samples))
    return families


@pytest.fixture(autouse=True)
def no_created():
    prometheus_client.disable_created_metrics()
    yield
    prometheus_client.enable_created_metrics()


@pytest.mark.parametrize("seed", range(8))
def test_expositions_are_equal(seed):
    theirs = prometheus_client.CollectorRegistry()
    ours = quipu.CollectorRegistry()
    program(prometheus_client, theirs, seed)
    program(quipu, ours, seed)
    their_text = prometheus_client.generate_latest(theirs)
    our_text = quipu.generate_latest(ours)
    assert read(our_text, parse_text) == read(their_text, parse_text)
    assert read(our_open_metrics(ours), parse_open) == read(their_open_metrics(theirs), parse_open)


def test_bounds_below_zero_are_right_in_open_metrics(registry):
    quipu.Histogram("below", "B.", registry=registry, buckets=(-1, 0, 1)).observe(-2)
    [family] = parse_open(our_open_metrics(registry).decode())
    assert [sample.name for sample in family.samples] == ["below_bucket"] * 4
    assert b"below_sum -2" in quipu.generate_latest(registry)


def test_samples_are_equal():
    theirs = prometheus_client.CollectorRegistry()
    ours = quipu.CollectorRegistry()
    program(prometheus_client, theirs, 99)
    program(quipu, ours, 99)

    def samples(registry):
        return sorted(
            (s.name, tuple(sorted(s.labels.items())), s.value)
            for metric in registry.collect()
            for s in metric.samples
            if not s.name.endswith("_created")
        )

    assert samples(ours) == samples(theirs)
    for name, labels, value in samples(theirs):
        assert ours.get_sample_value(name, dict(labels)) == value


def errors(library):
    """Returns the exception class that each wrong call raises."""
    registry = library.CollectorRegistry()
    counter = library.Counter("c", "C.", ["a"], registry=registry)
    plain = library.Counter("p", "P.", registry=registry)
    gauge = library.Gauge("g", "G.", registry=registry, multiprocess_mode="mostrecent")
    enum = library.Enum("e", "E.", states=["on"], registry=registry)
    info = library.Info("i", "I.", ["a"], registry=registry)
    cases = [
        lambda: plain.inc(-1),
        lambda: counter.inc(),
        lambda: counter.labels(),
        lambda: counter.labels("a", "b"),
        lambda: counter.labels(b="a"),
        lambda: counter.labels("a", a="a"),
        lambda: plain.labels("a"),
        lambda: counter.labels("a").labels("b"),
        lambda: counter.remove("a", "b"),
        lambda: plain.remove("a"),
        lambda: counter.remove_by_labels({"b": "c"}),
        lambda: counter.remove_by_labels([]),
        lambda: gauge.inc(),
        lambda: gauge.dec(),
        lambda: enum.state("off"),
        lambda: info.labels("x").info({"a": "b"}),
        lambda: info.labels("x").info({"b": None}),
        lambda: library.Counter("c", "C.", registry=registry),
        lambda: library.Gauge("c_total", "C.", registry=registry),
        lambda: library.Counter("", "C.", registry=registry),
        lambda: library.Counter("x", "C.", ["__a"], registry=registry),
        lambda: library.Histogram("x", "C.", ["le"], registry=registry),
        lambda: library.Summary("x", "C.", ["quantile"], registry=registry),
        lambda: library.Histogram("x", "C.", buckets=[2, 1], registry=registry),
        lambda: library.Histogram("x", "C.", buckets=[], registry=registry),
        lambda: library.Enum("x", "C.", registry=registry),
        lambda: library.Enum("x", "C.", ["x"], states=["a"], registry=registry),
        lambda: library.Info("x", "C.", unit="seconds", registry=registry),
        lambda: library.Gauge("x", "C.", multiprocess_mode="none", registry=registry),
        lambda: plain.inc(1, {"a": "x" * 128}),
        lambda: plain.count_exceptions()(lambda: 1 / 0)(),
        lambda: plain.inc("many"),
    ]
    found = []
    for case in cases:
        try:
            case()
            found.append(None)
        except Exception as error:
            classes = (ValueError, TypeError, RuntimeError, ZeroDivisionError)
            found.append(next(c for c in classes if isinstance(error, c)))
    return found


def test_what_is_refused_is_equal():
    assert errors(quipu) == errors(prometheus_client)
