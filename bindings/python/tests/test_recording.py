"""The flight recorder: of processes that are killed, forked, and ended; and its errors."""

import os
import re
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from test_processes import PATIENCE, get, gunicorn

pytestmark = pytest.mark.native


def eventually(what):
    """Returns the result of a function once it is true."""
    limit = time.monotonic() + PATIENCE
    while time.monotonic() < limit:
        found = what()
        if found:
            return found
        time.sleep(0.01)
    raise AssertionError("timed out")


# For programs that run apart.
WAIT = """
import os, sys, time
def eventually(what, limit=120):
    end = time.monotonic() + limit
    while not what():
        assert time.monotonic() < end, "timed out"
        time.sleep(0.001)
def recorders():
    names = []
    for task in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{task}/comm") as file:
                names.append(file.read().strip())
        except OSError:
            pass
    return names.count("quipu recorder")
"""


@pytest.fixture
def record(run):
    """Runs a program with the functions above."""

    def record(program, **more):
        return run(WAIT + textwrap.dedent(program), **more)

    return record


def test_what_led_to_a_kill_is_there(tmp_path, history):
    program = """
        import quipu_metrics as quipu
        quipu.configure("numbers", record={"interval": 0.01})
        c = quipu.Counter("c", "C.", ["a"])
        h = quipu.Histogram("h", "H.")
        print("ready", flush=True)
        while True:
            c.labels("x").inc()
            h.observe(0.3)
    """
    file = tmp_path / "numbers" / "metrics.quipu"
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout.readline() == "ready\n"

        def total():
            shown = history(file)
            return shown and shown["series"].get('c_total{a="x"}', [None])[-1]

        first = eventually(total)
        second = eventually(lambda: total() > first and total())
        assert history(file)["writer"]["alive"]
    finally:
        process.kill()
        process.wait()
    shown = history(file)
    assert not shown["writer"]["alive"]
    totals = [value for value in shown["series"]['c_total{a="x"}'] if value is not None]
    assert totals == sorted(totals) and first in totals and totals[-1] >= second
    assert shown["series"]["h_count"][-1] >= first - 1
    assert shown["interval"] == 0.01


def test_children_record_and_one_takes_over_from_another(record, tmp_path, history):
    program = """
        import signal, quipu_metrics as quipu
        quipu.configure("numbers")
        c = quipu.Counter("c", "C.", ["who"])
        recording = quipu.REGISTRY.record(interval=0.005)
        eventually(lambda: recording.is_writing)
        assert repr(recording).endswith("metrics.quipu: writing>"), recording
        reader, writer = os.pipe()
        ready, counted = os.pipe()
        children = set()
        for n in range(3):
            pid = os.fork()
            if pid == 0:
                c.labels(str(n)).inc()
                os.write(counted, b"x")
                eventually(lambda: recording.is_writing, 600)
                os.write(writer, b"%9d" % os.getpid())
                time.sleep(600)
                os._exit(1)
            children.add(pid)
            assert os.read(ready, 1) == b"x"
        eventually(lambda: recording.is_writing)
        recording.close()
        while children:
            pid = int(os.read(reader, 9))
            children.remove(pid)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        # Closed is closed, also for children.
        pid = os.fork()
        if pid == 0:
            time.sleep(0.05)
            os._exit(recorders() or recording.is_writing)
        assert os.waitpid(pid, 0)[1] == 0
        print("ok")
    """
    assert record(program).stdout == "ok\n"
    shown = history(tmp_path / "numbers" / "metrics.quipu")
    assert shown["series"]['c_total{who="2"}'][-1] == 1 and not shown["writer"]["alive"]


@pytest.mark.parametrize("directory", ["numbers", ""])
def test_a_fork_while_it_ticks_does_not_hang(record, directory):
    # A warning of a fork with several threads would be an error.
    program = """
        import warnings, quipu_metrics as quipu
        warnings.simplefilter("error")
        c = quipu.Counter("c", "C.", ["a"])
        recording = quipu.REGISTRY.record(interval=0.001)
        for n in range(100):
            c.labels(str(n)).inc()
            pid = os.fork()
            if pid == 0:
                eventually(lambda: recorders() == 1)
                c.labels("child").inc()
                recording.close()
                os._exit(0)
            assert os.waitpid(pid, 0)[1] == 0
        eventually(lambda: recording.is_writing)
        assert quipu.REGISTRY.get_sample_value("c_total", {"a": "child"}) == 100
        print("ok")
    """
    done = record(program, QUIPU_DIR=directory)
    assert done.stdout == "ok\n" and not done.stderr, done.stderr


def test_no_thread_is_there_when_a_process_forks(record):
    program = """
        # Runs after the functions that are registered later.
        os.register_at_fork(before=lambda: eventually(lambda: recorders() == 0))
        import quipu_metrics as quipu
        recording = quipu.REGISTRY.record()
        for _ in range(3):
            eventually(lambda: recorders() == 1 and recording.is_writing)
            pid = os.fork()
            if pid == 0:
                eventually(lambda: recorders() == 1)
                os._exit(recording.is_writing)
            eventually(lambda: recorders() == 1 and recording.is_writing)
            assert os.waitpid(pid, 0)[1] == 0
        print("ok")
    """
    assert record(program).stdout == "ok\n"


def test_forks_outside_of_python(record):
    # As uWSGI forks: no hook is called before, and one function in the child, which wants the lock
    # of imports to be held.
    program = """
        import _imp, ctypes, quipu_metrics as quipu
        recording = quipu.REGISTRY.record(interval=0.001)
        eventually(lambda: recording.is_writing)
        reader, writer = os.pipe()
        _imp.acquire_lock()
        pid = ctypes.PyDLL(None).fork()
        if pid == 0:
            ctypes.pythonapi.PyOS_AfterFork_Child()
            os.write(writer, b"x")
            eventually(lambda: recording.is_writing)
            os._exit(0)
        _imp.release_lock()
        os.close(writer)
        assert os.read(reader, 1) == b"x" and recorders() == 1
        recording.close()
        assert os.waitpid(pid, 0)[1] == 0
        print("ok")
    """
    assert record(program).stdout == "ok\n"


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_multiprocessing(record, tmp_path, history, method):
    (tmp_path / "recorded.py").write_text(
        "import quipu_metrics as quipu\n"
        "quipu.configure('numbers')\n"
        "c = quipu.Counter('c', 'C.')\n"
        "recording = quipu.REGISTRY.record(interval=0.005)\n"
        "def work(_):\n"
        "    c.inc()\n"
        "    return repr(recording).endswith(('writing>', 'waiting>'))\n"
    )
    program = f"""
        import multiprocessing
        sys.path.insert(0, ".")
        import recorded
        if __name__ == "__main__":
            with multiprocessing.get_context({method!r}).Pool(3) as pool:
                assert all(pool.map(recorded.work, range(20)))
            eventually(lambda: recorded.recording.is_writing)
            print("ok")
    """
    assert record(program).stdout == "ok\n"
    assert history(tmp_path / "numbers" / "metrics.quipu")["writer"] is None


def test_a_history_in_memory_is_read_while_a_process_lives(tmp_path, history):
    program = """
        import os, time, quipu_metrics as quipu
        quipu.Counter("c", "C.").inc(7)
        with quipu.REGISTRY.record(interval=0.005) as recording:
            while not recording.is_writing:
                time.sleep(0.001)
            for name in os.listdir("/proc/self/fd"):
                path = f"/proc/{os.getpid()}/fd/{name}"
                try:
                    if os.readlink(path).startswith("/memfd:quipu"):
                        print(path, flush=True)
                        break
                except OSError:
                    pass
            input()
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        shown = history(process.stdout.readline().strip())
        process.stdin.write("\n")
    assert shown["series"]["c_total"][-1] == 7
    assert process.returncode == 0


def test_closing(record, tmp_path, history):
    program = """
        import quipu_metrics as quipu
        registry = quipu.CollectorRegistry(path="numbers")
        quipu.Counter("c", "C.", registry=registry).inc()
        with registry.record(interval=0.005) as recording:
            eventually(lambda: recording.is_writing and recorders() == 1)
        assert not recording.is_writing and "closed" in repr(recording)
        recording.close()
        eventually(lambda: recorders() == 0)
        # Another one goes on, whether or not it is kept, until another segment takes its place.
        registry.record(interval=0.005)
        eventually(lambda: recorders() == 1)
        quipu.configure("first", record=True)
        eventually(lambda: recorders() == 2)
        quipu.configure("second")
        eventually(lambda: recorders() == 1)
        assert quipu.REGISTRY.recording is None and registry.recording is not recording
        print("ok")
    """
    assert record(program).stdout == "ok\n"
    for directory in ("numbers", "first"):
        # The end of the process has closed the last one.
        assert history(tmp_path / directory / "metrics.quipu")["writer"] is None
    assert history(tmp_path / "second" / "metrics.quipu") is None


@pytest.mark.parametrize("end", ["", "sys.exit(3)", "raise SystemError", "os._exit(4)", "1/0"])
def test_the_end_of_a_process_waits_for_nothing(record, end):
    program = """
        import threading, quipu_metrics as quipu
        quipu.configure("numbers", record={"interval": 3600})
        threading.Thread(target=quipu.REGISTRY.record, daemon=True).start()
        quipu.Counter("c", "C.").inc()
    """
    done = record(textwrap.dedent(program) + end, check=False)
    assert "quipu" not in done.stderr, done.stderr


def test_install_has_one_word_for_it(record, tmp_path, history):
    program = """
        import quipu_metrics as quipu
        quipu.install("numbers", record=True)
        quipu.install(record=True)
        eventually(lambda: quipu.REGISTRY.recording.is_writing)
        import prometheus_client
        c = prometheus_client.Counter("c", "C.", ["a"])
        c.labels("x").inc(5)
        eventually(lambda: recorders() == 1)
        print("ok")
    """
    assert record(program).stdout == "ok\n"
    file = tmp_path / "numbers" / "metrics.quipu"
    assert history(file)["interval"] == 1
    program = """
        import quipu_metrics as quipu, prometheus_client
        c = prometheus_client.Counter("c", "C.", ["a"])
        c.labels("x").inc()
        other = prometheus_client.Counter("other", "O.")
        quipu.install(record={"interval": 0.005, "families": ["c"]})
        sys.stdin.read()
    """
    process = subprocess.Popen(
        [sys.executable, "-c", WAIT + textwrap.dedent(program)],
        cwd=tmp_path,
        env={**os.environ, "QUIPU_DIR": str(tmp_path / "numbers")},
        stdin=subprocess.PIPE,
    )
    try:
        # The sixth is recorded at the end of an interval.
        eventually(lambda: history(file)["series"].get('c_total{a="x"}', [0])[-1] == 6)
    finally:
        process.communicate()
    assert process.returncode == 0
    assert "other_total" not in history(file)["series"]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ("interval=0", "RecordingError: an interval of 0ns .* use 1 ms to an hour"),
        ("interval=7200", "RecordingError: an interval of 7200s .* use 1 ms to an hour"),
        ("interval=-1", "RecordingError: an interval of -1 seconds .* use 0.001 to 3600"),
        ("interval=float('nan')", "RecordingError: an interval of NaN seconds .* use 0.001 to 3600"),
        ("interval='1'", "TypeError: interval '1' is not a number of seconds"),
        ("bytes=100", "RecordingError: 100 bytes .* use 16384 to 67108864"),
        ("bytes=1<<80", "RecordingError: .* bytes .* use 16384 to 67108864"),
        ("bytes=-1", "RecordingError: bytes -1 is out of range: use a positive number"),
        ("bytes=1.5", "TypeError: bytes 1.5 is not a whole number"),
        ("series=0", "RecordingError: 0 series .* use 1 to 16384"),
        ("series=-1", "RecordingError: series -1 is out of range: use a positive number"),
        ("families='c'", "TypeError: families 'c' is a text: use a list of names"),
        ("speed=1", "TypeError: .* unexpected keyword argument 'speed'"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(record, options, error):
    for program in (
        f"quipu.REGISTRY.record({options})",
        f"quipu.configure('refused', record=dict({options}))",
        f"quipu.install('refused', record=dict({options}))",
    ):
        done = record("import quipu_metrics as quipu\n" + program, check=False)
        assert re.search(error, done.stderr), done.stderr
    assert issubclass(__import__("quipu_metrics").RecordingError, ValueError)


def test_what_is_not_understood_is_refused(record, tmp_path):
    done = record("import quipu_metrics as quipu; quipu.configure('refused', record=5)", check=False)
    assert "TypeError: record 5 is not understood: use True, or a dict" in done.stderr
    assert not (tmp_path / "refused").exists()
    done = record("import quipu_metrics as quipu; quipu.CollectorRegistry().record()", check=False)
    assert "RecordingError: the metrics of this registry" in done.stderr
    assert "make the registry with path=" in done.stderr


def test_a_segment_without_room(record):
    program = """
        import warnings, quipu_metrics as quipu
        warnings.simplefilter("always")
        quipu.configure("numbers", 1 << 20, record=True)
        c = quipu.Counter("c", "C.")
        try:
            quipu.REGISTRY.record()
        except quipu.RecordingError as error:
            print(error)
        c.inc()
        with quipu.REGISTRY.record(bytes=64 << 10, interval=0.001) as recording:
            eventually(lambda: recording.is_writing)
        assert c._value.get() == 1
    """
    done = record(program)
    what = "record with fewer bytes, or create it with a higher limit"
    assert what in done.stdout and what + "; nothing is recorded" in done.stderr, done
    assert done.stderr.count("RuntimeWarning") == 1


def test_a_system_without_room_for_a_thread(record):
    program = """
        import resource, warnings, quipu_metrics as quipu
        warnings.simplefilter("always")
        c = quipu.Counter("c", "C.")
        # Memory for Python's objects, but none for a stack.
        spare = [bytearray(400) for _ in range(10000)]
        del spare[::2]
        with open("/proc/self/statm") as file:
            size = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size, resource.RLIM_INFINITY))
        try:
            quipu.REGISTRY.record()
        except quipu.RecordingError as error:
            print(error)
        c.inc()
    """
    done = record(program)
    assert "thread of the flight recorder cannot be started" in done.stdout, done
    assert "ulimit -u" in done.stdout


APPLICATION = """
import os, quipu_metrics as quipu
quipu.configure("numbers")
hits = quipu.Counter("hits", "Hits.")
recording = quipu.REGISTRY.record(interval=0.005)

def app(environ, start_response):
    hits.inc()
    body = f"{os.getpid()} {recording.is_writing}".encode()
    start_response("200 OK", [("Content-Length", str(len(body)))])
    return [body]
"""


@pytest.mark.parametrize("arguments", [[], ["--preload"]])
def test_workers_of_gunicorn_that_are_killed(tmp_path, history, arguments):
    file = tmp_path / "numbers" / "metrics.quipu"
    with gunicorn(tmp_path, APPLICATION, arguments) as url:

        def worker(is_writing):
            try:
                pid, state = get(url).split()
            except OSError:
                return None
            return state == str(is_writing) and int(pid)

        killed = []
        for _ in range(3):
            # With --preload, the master writes.
            pid = eventually(lambda: worker(not arguments))
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)
        assert len(set(killed)) == 3
        held = history(file)["held_ticks"]
        eventually(lambda: history(file)["held_ticks"] != held)
        assert history(file)["writer"]["alive"]
        assert history(file)["series"]["hits_total"][-1] >= 3
