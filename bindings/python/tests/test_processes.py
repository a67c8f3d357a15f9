"""Tests that processes share metrics: forks, spawned processes, and the workers of gunicorn."""

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

pytestmark = pytest.mark.native

# The timeout in seconds. It is long, because the machine may be busy.
PATIENCE = 120

FORKS = """
    import os, quipu_metrics as quipu
    c = quipu.Counter("c", "C.", ["a"])
    h = quipu.Histogram("h", "H.")
    g = quipu.Gauge("g", "G.", multiprocess_mode="livesum")
    shared = quipu.Gauge("shared", "S.")
    every = quipu.Gauge("every", "E.", multiprocess_mode="all")
    bound = c.labels("bound")
    bound.inc()
    children = []
    for n in range(8):
        pid = os.fork()
        if pid == 0:
            for i in range(1000):
                c.labels(str(i % 7)).inc()
                bound.inc()
                h.observe(0.3)
            shared.inc(2)
            g.set(5)
            every.set(n)
            late = quipu.Counter("late", "Made in a child.")
            late.inc()
            os._exit(0)
        children.append(pid)
    for pid in children:
        assert os.waitpid(pid, 0)[1] == 0
    late = quipu.Counter("late", "Made in a child.")
    value = quipu.REGISTRY.get_sample_value
    assert sum(value("c_total", {"a": str(i)}) for i in range(7)) == 8000
    assert value("c_total", {"a": "bound"}) == 8001
    assert value("h_count") == 8000 and value("shared") == 16 and value("late_total") == 8
    assert value("g") in (None, 0.0), value("g")
    pids = {s.labels["pid"] for m in quipu.REGISTRY.collect() for s in m.samples if s.name == "every"}
    assert {str(pid) for pid in children} <= pids
    print("ok")
"""


def test_forked_processes_count_in_the_same_numbers(run):
    assert run(FORKS).stdout == "ok\n"


def test_and_in_a_file(run, tmp_path):
    assert run(FORKS, QUIPU_DIR=str(tmp_path / "numbers")).stdout == "ok\n"


SPAWN = """
    import multiprocessing, sys
    sys.path.insert(0, ".")
    import spawned
    if __name__ == "__main__":
        context = multiprocessing.get_context({method!r})
        workers = [context.Process(target=spawned.work, args=(n,)) for n in range(4)]
        [w.start() for w in workers]
        [w.join() for w in workers]
        assert all(w.exitcode == 0 for w in workers)
        import quipu_metrics as quipu
        assert quipu.REGISTRY.get_sample_value("c_total", dict(a="x")) == 2000
        print("ok")
"""


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_multiprocessing(run, tmp_path, method):
    (tmp_path / "spawned.py").write_text(
        "import quipu_metrics as quipu\n"
        "c = quipu.Counter('c', 'C.', ['a'])\n"
        "def work(n):\n"
        "    for _ in range(500): c.labels('x').inc()\n"
    )
    program = SPAWN.format(method=method)
    assert run(program, QUIPU_DIR=str(tmp_path / "numbers")).stdout == "ok\n"


def test_a_fork_while_threads_count_and_scrape_does_not_hang(run):
    program = """
        import os, threading, time, quipu_metrics as quipu
        c = quipu.Counter("c", "C.", ["a"])
        stop = threading.Event()
        counted = [0] * 4
        def count(n):
            while not stop.is_set():
                c.labels(str(counted[n] % 977)).inc()
                counted[n] += 1
        def scrape():
            while not stop.is_set():
                quipu.generate_latest()
        threads = [threading.Thread(target=count, args=(n,)) for n in range(4)]
        threads += [threading.Thread(target=scrape)]
        [t.start() for t in threads]
        for n in range(60):
            pid = os.fork()
            if pid == 0:
                c.labels("child").inc()
                c.labels("new-%d" % n).inc()
                quipu.Counter("made", "M.").inc()
                assert b"child" in quipu.generate_latest()
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
        stop.set()
        [t.join() for t in threads]
        value = quipu.REGISTRY.get_sample_value
        [metric] = c.collect()
        total = sum(s.value for s in metric.samples if s.name == "c_total")
        assert value("c_total", {"a": "child"}) == 60
        assert total == sum(counted) + 120, (total, sum(counted))
        print("ok")
    """
    assert run(program).stdout == "ok\n"


def test_removal_in_one_process_is_seen_by_others(run):
    program = """
        import os, quipu_metrics as quipu
        c = quipu.Counter("c", "C.", ["a"])
        c.labels("x").inc(5)
        pid = os.fork()
        if pid == 0:
            c.remove("x")
            os._exit(0)
        os.waitpid(pid, 0)
        assert quipu.REGISTRY.get_sample_value("c_total", {"a": "x"}) is None
        c.labels("x").inc()
        assert quipu.REGISTRY.get_sample_value("c_total", {"a": "x"}) == 1
        print("ok")
    """
    assert run(program).stdout == "ok\n"


APPLICATION = """
import os, threading
import quipu_metrics as quipu

requests = quipu.Counter("requests", "Requests.", ["path"])
seconds = quipu.Histogram("seconds", "Seconds.")
busy = quipu.Gauge("busy", "Busy.", multiprocess_mode="livesum")
busy_at = quipu.Gauge("pids", "Workers.", multiprocess_mode="liveall")
metrics = quipu.make_wsgi_app()

def app(environ, start_response):
    path = environ["PATH_INFO"]
    if path == "/metrics":
        return metrics(environ, start_response)
    requests.labels(path).inc()
    seconds.observe(0.01)
    busy_at.set(1)
    body = str(os.getpid()).encode()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]
"""

INSTALLED = """
import os
import quipu_metrics as quipu
quipu.install()
import prometheus_client
from prometheus_client import multiprocess

requests = prometheus_client.Counter("requests", "Requests.", ["path"])
seconds = prometheus_client.Histogram("seconds", "Seconds.")
pids = prometheus_client.Gauge("pids", "Workers.", multiprocess_mode="liveall")

def app(environ, start_response):
    path = environ["PATH_INFO"]
    if path == "/metrics":
        if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
            registry = prometheus_client.CollectorRegistry()
            multiprocess.MultiProcessCollector(registry)
        else:
            registry = prometheus_client.REGISTRY
        return prometheus_client.make_wsgi_app(registry)(environ, start_response)
    requests.labels(path).inc()
    seconds.observe(0.01)
    pids.set(1)
    body = str(os.getpid()).encode()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]
"""


@contextlib.contextmanager
def gunicorn(directory, application, arguments, **environment):
    (directory / "application.py").write_text(application)
    clean = {k: v for k, v in os.environ.items() if "MULTIPROC" not in k and k != "QUIPU_DIR"}
    command = [sys.executable, "-m", "gunicorn", "application:app", "--workers", "4"]
    # Without the control socket, the master has no other thread when it forks new workers.
    command += ["--no-control-socket", "--log-level", "warning", *arguments]
    # The server inherits a bound socket, because another process could take a free port before
    # the server binds it. Requests wait in this socket until there is a worker.
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        command += ["--bind", f"fd://{listener.fileno()}"]
        server = subprocess.Popen(
            command,
            cwd=directory,
            env={**clean, **environment},
            pass_fds=[listener.fileno()],
        )
    try:
        get(url + "/ready")
        yield url
    finally:
        server.terminate()
        try:
            # gunicorn waits 30 seconds for a worker that was just forked and missed the signal.
            server.wait(timeout=PATIENCE)
        finally:
            server.kill()
            server.wait()


def get(url):
    with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
        return answer.read().decode()


def samples(text):
    lines = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return {name: float(value) for name, value in lines}


THREADS = ["--worker-class", "gthread", "--threads", "4"]


@pytest.mark.parametrize(
    "application, arguments, name",
    [
        (APPLICATION, ["--preload", *THREADS], None),
        (APPLICATION, THREADS, "QUIPU_DIR"),
        (APPLICATION, [], "PROMETHEUS_MULTIPROC_DIR"),
        (INSTALLED, ["--preload", *THREADS], None),
        (INSTALLED, THREADS, "PROMETHEUS_MULTIPROC_DIR"),
    ],
)
def test_gunicorn_with_workers_that_are_killed(tmp_path, application, arguments, name):
    directory = tmp_path / "numbers"
    directory.mkdir()
    environment = {name: str(directory)} if name else {}
    choice = random.Random(7)
    with gunicorn(tmp_path, application, arguments, **environment) as url:
        answered = failed = kills = 0
        workers = set()
        for i in range(400):
            try:
                workers.add(get(url + "/x"))
                answered += 1
            except OSError:
                failed += 1
            if i % 50 == 25:
                os.kill(int(choice.choice(sorted(workers))), signal.SIGKILL)
                kills += 1
                workers.clear()
                time.sleep(0.1)
            if i % 40 == 0:
                with contextlib.suppress(urllib.error.URLError, ConnectionError):
                    assert "requests_total" in get(url + "/metrics")
        found = [samples(get(url + "/metrics")) for _ in range(8)]
        counts = {each['requests_total{path="/x"}'] for each in found}
        # All workers expose the same counts. A request can be counted although its worker died
        # before it responded.
        assert len(counts) == 1
        [count] = counts
        assert answered <= count <= answered + failed
        for each in found:
            assert each["seconds_count"] == each['seconds_bucket{le="+Inf"}']
            assert count <= each["seconds_count"] <= count + failed + 300
        live = [key for key in found[-1] if key.startswith("pids{")]
        assert kills == 8 and len(live) <= 5, live
