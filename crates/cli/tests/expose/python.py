"""Several processes count with the real prometheus_client. Checks that `quipu expose` shows the
same metrics for their files as the client itself.

Usage: python.py QUIPU DIRECTORY
"""

import os
import signal
import subprocess
import sys
import threading

QUIPU, DIRECTORY = sys.argv[1:]
os.environ["PROMETHEUS_MULTIPROC_DIR"] = DIRECTORY

from prometheus_client import (  # noqa: E402
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Summary,
    generate_latest,
    multiprocess,
    parser,
)
from prometheus_client.openmetrics import exposition as openmetrics  # noqa: E402
from prometheus_client.openmetrics import parser as openmetrics_parser  # noqa: E402

MODES = ["all", "liveall", "min", "livemin", "max", "livemax", "sum", "livesum"]
RECENT = ["mostrecent", "livemostrecent"]


class Metrics:
    def __init__(self):
        self.plain = Counter("plain", "A plain one.")
        self.requests = Counter("requests", 'A "help" with \\ and\na line.', ["method", "code"])
        self.seconds = Counter("cpu_seconds_total", "Its name ends in what is added.")
        self.size = Histogram("size_bytes", "Sizes.", ["kind"], buckets=(1, 2.5, 1e6, 1e17))
        self.latency = Histogram("latency_seconds", "With the default buckets.")
        self.wait = Summary("wait_seconds", "Waits.", ["queue"])
        modes = MODES + RECENT
        self.gauges = {m: Gauge("g_" + m, "Of " + m, ["k"], multiprocess_mode=m) for m in modes}
        self.bare = {m: Gauge("b_" + m, "", multiprocess_mode=m) for m in modes}
        self.never = Gauge("never", "Never set.", multiprocess_mode="mostrecent")
        self.pid = Gauge("with_pid", "Has a label pid.", ["pid"], multiprocess_mode="max")

    def count(self, index):
        self.plain.inc()
        self.seconds.inc(0.25 * index)
        for code in ["200", "404", 'x"\\\ny', "\u82b1", ""]:
            self.requests.labels("GET", code).inc(index)
        self.requests.labels("ONLY%d" % index, "200").inc()
        for value in [0.5, 1, 2, 1e5, 1e7, 1e12, -index]:
            self.size.labels("a").observe(value)
            self.latency.observe(value)
        self.size.labels("b%d" % index).observe(index)
        self.wait.labels("q").observe(index + 0.5)
        for gauge in list(self.gauges.values()):
            gauge.labels("x").set((-1) ** index * (index + 1))
            gauge.labels("y%d" % index).set(index)
        for gauge in self.bare.values():
            gauge.set(10 - index)
        self.gauges["max"].labels("nan").set(float("inf"))
        self.pid.labels("7").set(index)


def child(metrics, index, ready, go_on):
    if index % 2:
        # This process creates its metrics itself.
        metrics.count(index)
    threads = [threading.Thread(target=metrics.count, args=(index,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os.write(ready, b"x")
    if index < 3:
        os.read(go_on, 1)
    os._exit(0)


def samples(text, parse):
    found = {}
    for family in parse(text):
        for sample in family.samples:
            if family.name.startswith("quipu_scrape_"):
                continue
            key = (family.name, family.type, family.documentation, sample.name)
            key += (tuple(sorted(sample.labels.items())),)
            assert key not in found, key
            found[key] = sample.value
    return found


def compare(format, expected, parse):
    text = subprocess.run(
        [QUIPU, "expose", "--format", format, DIRECTORY], check=True, capture_output=True
    )
    assert not text.stderr, text.stderr
    shown = samples(text.stdout.decode(), parse)
    expected = samples(expected.decode(), parse)
    assert len(expected) > 100, expected
    for key in expected.keys() | shown.keys():
        assert expected.get(key) == shown.get(key), (key, expected.get(key), shown.get(key))


def compare_all():
    registry = CollectorRegistry()
    multiprocess.MultiProcessCollector(registry)
    compare("text", generate_latest(registry), parser.text_string_to_metric_families)
    compare(
        "openmetrics",
        openmetrics.generate_latest(registry),
        openmetrics_parser.text_string_to_metric_families,
    )


def main():
    metrics = Metrics()
    ready, go_on = os.pipe(), os.pipe()
    children = []
    for index in range(6):
        pid = os.fork()
        if pid == 0:
            os.close(go_on[1])
            child(metrics, index, ready[1], go_on[0])
        children.append(pid)
    for _ in children:
        os.read(ready[0], 1)
    # Three of the processes have exited by now, and the client is notified of two of them.
    for pid in children[3:]:
        os.waitpid(pid, 0)
    compare_all()
    for pid in children[4:]:
        multiprocess.mark_process_dead(pid)
    compare_all()
    os.kill(children[0], signal.SIGKILL)
    os.waitpid(children[0], 0)
    compare_all()
    os.close(go_on[1])
    for pid in children[1:3]:
        os.waitpid(pid, 0)
    compare_all()


main()
