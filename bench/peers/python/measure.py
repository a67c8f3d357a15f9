"""Times code and prints records, one JSON object per line.

The keys are the fields of `Record` in bench/report/src/record.rs. A record is of one run: if you
start this program several times, you merge the runs.
"""

import gc
import json
import os
import statistics
import struct
import sys
import threading
import time
import traceback

# The duration of a run in seconds, and the duration with --quick.
FULL = 0.06
QUICK = 0.004

# The numbers of threads or workers that count at the same time.
TOGETHER = (1, 2, 4)

quick = False


def run_time():
    return QUICK if quick else FULL


def some(full, small):
    """Returns the full number, or a small one with --quick."""
    return small if quick else full


def record(case, subject, values, metric="time", unit="ns", threads=1):
    """Prints a record of the values."""
    values = sorted(float(value) for value in values)
    print(json.dumps({
        "case": case, "subject": subject, "threads": threads, "metric": metric, "unit": unit,
        "median": statistics.median(values), "min": values[0], "max": values[-1],
        "runs": len(values),
    }), flush=True)


def loop_of(code, before="pass", /, **needed):
    """Returns a function that runs the code the given number of times.

    The code is in the body of the loop, because a call would cost about as much as the code. You
    can use the index as `i`, and the values of `needed` by their names.
    """
    names = ", ".join(["n", *needed])
    text = f"def work({names}):\n    {before}\n    for i in range(n):\n        {code}\n"
    scope = {}
    exec(text, scope)
    work, values = scope["work"], tuple(needed.values())
    return lambda n: work(n, *values)


def timed(work, n):
    start = time.perf_counter()
    work(n)
    return time.perf_counter() - start


def calibrated(work):
    """Returns the number of operations that take the time of a run. This also warms up the code."""
    n = 1
    while timed(work, n) < run_time() / 4:
        n *= 4
    return max(int(n * run_time() / timed(work, n)), 1)


def code(case, subject, text, before="pass", /, **needed):
    """Times a calibrated loop of the code, in nanoseconds per iteration."""
    work = loop_of(text, before, **needed)
    n = calibrated(work)
    gc.collect()
    record(case, subject, [timed(work, n) * 1e9 / n])


def threads(case, subject, works):
    """Times threads, each with its own loop: the elapsed time divided by all operations."""
    n = max(calibrated(works[0]) // len(works), 1)
    gc.collect()
    gate = threading.Barrier(len(works) + 1)

    def run(work):
        gate.wait()
        work(n)

    all_threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in all_threads:
        thread.start()
    gate.wait()
    start = time.perf_counter()
    for thread in all_threads:
        thread.join()
    elapsed = time.perf_counter() - start
    record(case, subject, [elapsed * 1e9 / (n * len(works))], threads=len(works))


def fork(work):
    """Forks a worker that does the work and exits immediately. Returns its pid."""
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return pid


def wait(pid):
    _, status = os.waitpid(pid, 0)
    if status != 0:
        raise RuntimeError(f"a worker ended with the status {status}")


def workers(case, subject, count, make, batch=500):
    """Times forked workers that each run a loop until the time is over.

    The time is the elapsed time divided by the operations of all. Returns the number of operations,
    including those that were not timed.
    """
    ready, go, done = os.pipe(), os.pipe(), os.pipe()
    seconds = run_time() * 2

    def run():
        work = make()
        work(batch)
        counted = 0
        os.write(ready[1], b"r")
        os.read(go[0], 1)
        start = time.monotonic()
        while time.monotonic() - start < seconds:
            work(batch)
            counted += batch
        os.write(done[1], struct.pack("QQdd", counted, counted + batch, start, time.monotonic()))

    pids = [fork(run) for _ in range(count)]
    for _ in pids:
        os.read(ready[0], 1)
    os.write(go[1], b"g" * count)
    for pid in pids:
        wait(pid)
    size = struct.calcsize("QQdd")
    ended = [struct.unpack("QQdd", os.read(done[0], size)) for _ in pids]
    for pipe in (ready, go, done):
        os.close(pipe[0])
        os.close(pipe[1])
    elapsed = max(end[3] for end in ended) - min(end[2] for end in ended)
    record(case, subject, [elapsed * 1e9 / sum(end[0] for end in ended)], threads=count)
    return sum(end[1] for end in ended)


def scrape(case, subject, expose, runs):
    """Times `runs` scrapes, after one that is not timed."""
    expose()
    values = []
    for _ in range(runs):
        gc.collect()
        values.append(timed(lambda _: expose(), 1) * 1e3)
    record(case, subject, values, unit="ms")
