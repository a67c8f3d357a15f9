"""The workloads. Each function takes one turn of one contender."""

import os
import random
import re

import measure
from contenders import LABELS

SERIES = 1000
METRICS = 2000


def increments(make, options):
    """The calls of an application: counters and histograms, with labels and without."""
    contender = make(options.folder(make.places[0]))
    subject = contender.subject

    def time(name, code, before="pass", **needed):
        measure.code(f"python {name}", subject, code, before, **needed)

    time("increment/no labels", "c.inc()", c=contender.counter("plain"))
    two = contender.counter("two", LABELS)
    time("increment/2 labels", "c.labels('200', '/x').inc()", c=two)
    time("increment/2 labels, numbers", "c.labels(200, '/x').inc()", c=two)
    time("increment/2 labels, by name", "c.labels(code='200', path='/x').inc()", c=two)
    many = contender.counter("many", LABELS)
    paths = [f"/path/{number}" for number in range(SERIES)]
    time("increment/2 labels among 1,000", "c.labels('200', paths[i % 1000]).inc()",
         c=many, paths=paths)
    four = contender.counter("four", (*LABELS, "method", "host"))
    time("increment/4 labels", "c.labels('200', '/x', 'GET', 'a').inc()", c=four)
    time("increment/bound", "b.inc()", b=two.labels("200", "/x"))
    time("increment/bound, by 2.5", "b.inc(2.5)", b=two.labels("200", "/x"))
    seen = contender.histogram("seen", LABELS)
    time("observe/2 labels", "h.labels('200', '/x').observe(0.3)", h=seen)
    time("observe/bound", "b.observe(0.3)", b=seen.labels("200", "/x"))
    if options.contender == "prometheus-client":
        measure.code("python increment/no labels", "the loop alone", "pass")


def stores(make, options):
    """The main one of the original benchmarks: a hundred metrics, a random one each time.

    "Simple" are counters without labels; "realistic" are 80 counters and 20 histograms with 0 to 4
    labels. Each runs in a new process, because a library's state for a folder cannot be reset.
    """
    for place in make.places:
        for scenario, counters, most_labels in (("simple", 100, 0), ("realistic", 80, 4)):
            measure.wait(measure.fork(
                lambda: store(make, options, place, scenario, counters, most_labels)
            ))


def store(make, options, place, scenario, counters, most_labels):
    contender = make(options.folder(place))
    chosen = random.Random(12_345_678)
    metrics = []
    for number in range(100):
        names = [f"label{label + 1}" for label in range(chosen.randrange(most_labels + 1))]
        made = contender.counter if number < counters else contender.histogram
        metric = made(f"metric{number}", names)
        if names:
            metric = metric.labels(*["foo"] * len(names))
        metrics.append((number < counters, metric))
    points = [(*chosen.choice(metrics), chosen.random() * 10) for _ in range(10_000)]
    code = "k, m, v = points[i % 10000]; m.inc() if k else m.observe(v)"
    measure.code(f"python stores, {scenario}/{place}", contender.subject, code, points=points)


def threads(make, options):
    """Threads that count in the same series with two labels."""
    contender = make(options.folder(make.places[0]))
    counter = contender.counter("threads", LABELS)
    for count in measure.TOGETHER:
        works = [measure.loop_of("c.labels('200', '/x').inc()", c=counter) for _ in range(count)]
        measure.threads("python threads/increment", contender.subject, works)


def workers(make, options):
    """Forked workers that count in one series with two labels. A scrape must show all counts."""
    contender = make(options.folder("tmpfs"))
    for count in measure.TOGETHER:
        name = f"workers{count}"
        counter = contender.counter(name, LABELS)
        counted = measure.workers(
            "python workers/increment", contender.subject, count,
            lambda: measure.loop_of("c.labels('200', '/x').inc()", c=counter),
        )
        exposed = value_of(contender.expose(), name)
        if exposed != counted:
            raise RuntimeError(f"{contender.subject} has {exposed} of {counted} increments")


def value_of(text, name):
    """Returns the sum of all series of a counter in a scrape."""
    lines = re.findall(rf"^{name}_total(?:{{.*}})? (\S+)", text, re.MULTILINE)
    return sum(float(value) for value in lines)


def scrape(make, options):
    """A scrape of 1,000 series: with 8 live workers, and after the death of 50 and of 500.

    Each runs in a new process, and leaves its files in a folder named after it, for other readers
    of such files.
    """
    for name, count, live in (
        ("8 live workers", 8, True),
        ("50 dead workers", 50, False),
        ("500 dead workers", measure.some(500, 60), False),
    ):
        folder = options.named_folder("tmpfs", f"{make.key}-{name.split()[0]}")
        measure.wait(measure.fork(lambda: scrape_of(make, folder, name, count, live)))


def scrape_of(make, folder, name, count, live):
    contender = make(folder)
    counter = contender.counter("scraped", LABELS)
    paths = [f"/path/{number}" for number in range(SERIES)]
    leave = os.pipe()
    pids = []
    for _ in range(count):
        done = os.pipe()

        def work():
            os.close(leave[1])
            for path in paths:
                counter.labels("200", path).inc()
            os.write(done[1], b"d")
            if live:
                os.read(leave[0], 1)

        pids.append(measure.fork(work))
        os.close(done[1])
        os.read(done[0], 1)
        os.close(done[0])
        if not live:
            measure.wait(pids[-1])
    if value_of(contender.expose(), "scraped") != count * SERIES:
        raise RuntimeError(f"a scrape of {contender.subject} lacks counts")
    subject = in_python(contender)
    measure.scrape(f"scrape/{name}", subject, contender.expose, measure.some(5, 1))
    os.close(leave[1])
    if live:
        for pid in pids:
            measure.wait(pid)
    else:
        sizes(f"scrape/{name}", subject, folder)


def metrics(make, options):
    """An application with many metrics: each is created and counts once; then all are scraped."""
    most = measure.some(METRICS, 100)
    contender = make(options.folder("tmpfs"))

    def create(_):
        for number in range(most):
            contender.counter(f"metric{number}", LABELS).labels("200", "/x").inc()

    subject = in_python(contender)
    measure.record("metrics/creation", subject, [measure.timed(create, 1) * 1e3], unit="ms")
    found = len(re.findall(r"^metric\d+_total{", contender.expose(), re.MULTILINE))
    if found != most:
        raise RuntimeError(f"a scrape of {contender.subject} has {found} of {most} metrics")
    measure.scrape("metrics/scrape", subject, contender.expose, 1)


def in_python(contender):
    """Returns the subject, for cases that other languages share."""
    return "quipu (Python)" if contender.subject == "quipu" else contender.subject


def respawns(make, options):
    """The growth of files while workers start and end: each counts 100 series."""
    last = measure.some(200, 20)
    folder = options.folder("tmpfs")
    contender = make(folder)
    counter = contender.counter("respawned", LABELS)

    def work():
        for number in range(100):
            counter.labels("200", f"/path/{number}").inc()

    for worker in range(1, last + 1):
        measure.wait(measure.fork(work))
        if worker in (last // 2, last):
            sizes(f"disk/{worker} respawns", in_python(contender), folder)


def sizes(case, subject, folder):
    """Records the disk usage of the files in a folder, and their number."""
    stats = [entry.stat() for entry in os.scandir(folder)]
    size = sum(stat.st_blocks * 512 for stat in stats)
    measure.record(case, subject, [size], metric="bytes", unit="B")
    measure.record(case, subject, [len(stats)], metric="files", unit="files")
