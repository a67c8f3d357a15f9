"""Counts with the real prometheus_client, and creates new series all the time, until it is killed.

Usage: grow.py DIRECTORY
"""

import itertools
import os
import sys

os.environ["PROMETHEUS_MULTIPROC_DIR"] = sys.argv[1]

from prometheus_client import Counter  # noqa: E402

steps = Counter("steps", "What was done.")
series = Counter("series", "One series for each number.", ["number"])
print("ready", flush=True)
for number in itertools.count():
    steps.inc()
    if number < 20_000:
        series.labels(str(number)).inc()
