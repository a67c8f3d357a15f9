"""Sends generated requests for all that docs/openapi.yaml describes to a daemon.

    judge.py QUIPU

starts the daemon with a new state, and runs schemathesis, which is installed beside the Python that runs
this, twice: with bodies as the file describes them, and with damaged ones. It fails if a response is not
as described, if the daemon ends, or if it does not stop in order.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
DOCUMENT = HERE.parents[4] / "docs/openapi.yaml"
# Allow longer keys, because generated keys can be longer than 128 bytes.
FLAGS = "--listen=127.0.0.1:0 --log-format=json --push-admin --key-bytes=4096"
# We accept both outcomes here, because a damaged body can still be valid.
DAMAGED = ["--exclude-checks=positive_data_acceptance,negative_data_rejection", "--warnings=off"]
# The name of a run, and its additions to the environment and to the arguments of schemathesis.
RUNS = [("bodies as described", {}, []), ("damaged bodies", {"JUDGE_DAMAGE": "1"}, DAMAGED)]


def main():
    quipu = Path(sys.argv[1]).resolve()
    failures = 0
    with tempfile.TemporaryDirectory() as home:
        log = Path(home) / "log"
        with log.open("wb") as err:
            daemon = subprocess.Popen([quipu, "serve", *FLAGS.split()], cwd=home, stderr=err)
        try:
            url = f"http://{address(daemon, log)}"
            for name, environment, arguments in RUNS:
                print(f"== {name}", flush=True)
                failures += run(url, home, environment, arguments)
                if daemon.poll() is not None:
                    break
                urllib.request.urlopen(f"{url}/-/ready", timeout=10).read()
            daemon.send_signal(signal.SIGTERM)
            code = daemon.wait(timeout=60)
        finally:
            daemon.kill()
        if code != 0:
            failures += 1
            print(f"the daemon ended with {code}:\n{log.read_text()}")
    return int(failures > 0)


def run(url, home, environment, arguments):
    """Runs schemathesis; returns whether it failed."""
    command = [
        Path(sys.executable).parent / "schemathesis",
        f"--config-file={HERE / 'schemathesis.toml'}",
        "run",
        DOCUMENT,
        f"--url={url}",
        "--checks=all",
        "--seed=1",
        "--continue-on-failure",
        *arguments,
    ]
    hooks = {"SCHEMATHESIS_HOOKS": str(HERE / "hooks.py"), "PYTHONDONTWRITEBYTECODE": "1"}
    environment = {**os.environ, **hooks, **environment}
    return subprocess.run(command, cwd=home, env=environment).returncode != 0


def address(daemon, log):
    """The address that the daemon listens on, from its log."""
    for _ in range(500):
        for line in log.read_text().splitlines():
            event = json.loads(line)
            if event.get("message") == "listening":
                return event["address"]
        if daemon.poll() is not None:
            break
        time.sleep(0.02)
    raise SystemExit(f"the daemon does not start: {log.read_text()}")


sys.exit(main())
