"""Measures an increment, compared to prometheus_client in one process and in multi-process mode.

    python bench/increment.py [--calls N] [--rounds N]

Each library runs in a separate process. A line shows the fastest round, in nanoseconds per call,
loop included.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import timeit

CASES = {
    "loop": "pass",
    "bound.inc()": "bound.inc()",
    "bound.inc(2.5)": "bound.inc(2.5)",
    "c.inc()": "plain.inc()",
    "c.labels('200', '/x').inc()": "counter.labels('200', '/x').inc()",
    "c.labels(code=, path=).inc()": "counter.labels(code='200', path='/x').inc()",
    "c.labels(200, '/x').inc()": "counter.labels(200, '/x').inc()",
    "1000 series": "counter.labels('200', paths[next(turn)]).inc()",
    "gauge.set(1.0)": "gauge.set(1.0)",
    "h.labels('200', '/x').observe(0.3)": "histogram.labels('200', '/x').observe(0.3)",
    "bound histogram.observe(0.3)": "observer.observe(0.3)",
    "with summary.time()": "with summary.time(): pass",
}


def measure(library: str, calls: int, rounds: int) -> dict:
    """Measures each case in this process; returns nanoseconds per call."""
    import itertools

    if library == "quipu":
        import quipu_metrics as metrics
    else:
        import prometheus_client as metrics
        if library == "prometheus_client, installed":
            import quipu_metrics as quipu
            quipu.install()
    names = ["code", "path"]
    counter = metrics.Counter("requests", "Requests.", names)
    histogram = metrics.Histogram("seconds", "Seconds.", names)
    scope = {
        "counter": counter,
        "bound": counter.labels("200", "/x"),
        "plain": metrics.Counter("plain", "Plain."),
        "gauge": metrics.Gauge("gauge", "A gauge."),
        "histogram": histogram,
        "observer": histogram.labels("200", "/x"),
        "summary": metrics.Summary("summary", "A summary."),
        "paths": [f"/path/{i}" for i in range(1000)],
        "turn": itertools.cycle(range(1000)),
    }
    result = {}
    for name, code in CASES.items():
        timer = timeit.Timer(code, globals=scope)
        timer.timeit(2000)
        result[name] = min(timer.repeat(rounds, calls)) / calls * 1e9
    return result


def main() -> None:
    """Measures all libraries and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--library", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.library:
        print(json.dumps(measure(options.library, options.calls, options.rounds)))
        return
    results = {}
    with tempfile.TemporaryDirectory() as directory:
        for title, library, more in (
            ("quipu", "quipu", {}),
            ("quipu, in a file", "quipu", {"QUIPU_DIR": os.path.join(directory, "quipu")}),
            ("prometheus_client", "prometheus_client", {}),
            ("multi-process mode", "prometheus_client", {"PROMETHEUS_MULTIPROC_DIR": directory}),
            ("quipu.install()", "prometheus_client, installed", {}),
        ):
            arguments = ["--library", library, "--calls", str(options.calls)]
            arguments += ["--rounds", str(options.rounds)]
            environment = {k: v for k, v in os.environ.items() if "MULTIPROC" not in k}
            answer = subprocess.run(
                [sys.executable, __file__, *arguments],
                env={**environment, **more},
                stdout=subprocess.PIPE,
                check=True,
            )
            results[title] = json.loads(answer.stdout)
    print(f"{'ns':<38}" + "".join(f"{title:>20}" for title in results))
    for name in CASES:
        print(f"{name:<38}" + "".join(f"{result[name]:>20.0f}" for result in results.values()))


if __name__ == "__main__":
    main()
