"""Real clients of StatsD and DogStatsD send to the daemon, over every transport that they support.

    judge.py QUIPU DIRECTORY

The directory contains the clients, as `make judge-statsd-clients` installs them. Each sends the same
metrics under a prefix; the daemon must show just these values.
"""

import http.client
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SENDERS = Path(__file__).parent
# The values from every client, and the additional values from DogStatsD's clients. We expect timers
# in seconds, because the daemon converts them.
PLAIN = {"hits": 4, "level": 2.5, "took_count": 2, "took_sum": 0.04}
TAGGED = PLAIN | {"size_count": 2, "size_sum": 20, "spread_count": 1, "spread_sum": 7}
WAIT = 10


def free_port(kind):
    with socket.socket(socket.AF_INET, kind) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def shown(port):
    """The values that the daemon shows, by name without labels; those with labels add up."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=WAIT)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    values = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            name = name.split("{")[0]
            values[name] = values.get(name, 0) + float(value)
    return values


def until(ready):
    end = time.monotonic() + WAIT
    while not ready() and time.monotonic() < end:
        time.sleep(0.02)


def is_up(port):
    try:
        return bool(shown(port))
    except OSError:
        return False


def main():
    quipu, clients = sys.argv[1], Path(sys.argv[2]).absolute()
    home = tempfile.TemporaryDirectory()
    http_port, udp, tcp = (free_port(kind) for kind in
                           [socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_STREAM])
    path = f"{home.name}/statsd.sock"
    daemon = subprocess.Popen(
        [Path(quipu).absolute(), "serve", "--listen", f"127.0.0.1:{http_port}",
         "--statsd", f"udp://127.0.0.1:{udp}", "--statsd", f"tcp://127.0.0.1:{tcp}",
         "--statsd", f"unixgram:{path}"],
        cwd=home.name, stderr=subprocess.DEVNULL,
    )
    go, node = clients / "sender-go", ["node", clients / "sender.js"]
    python = [clients / "venv/bin/python", SENDERS / "sender.py"]
    cases = [
        ("go_udp", [go, f"127.0.0.1:{udp}"], TAGGED),
        ("go_unix", [go, f"unix://{path}"], TAGGED),
        ("node_udp", [*node, "udp", udp], TAGGED),
        ("node_tcp", [*node, "tcp", tcp], TAGGED),
        ("datadog_udp", [*python, "datadog", "udp", udp], TAGGED),
        ("datadog_unix", [*python, "datadog", "unix", path], TAGGED),
        ("statsd_udp", [*python, "statsd", "udp", udp], PLAIN),
        ("statsd_tcp", [*python, "statsd", "tcp", tcp], PLAIN),
    ]
    faults = 0
    try:
        until(lambda: is_up(http_port))
        for prefix, command, expected in cases:
            subprocess.run([*map(str, command), prefix], check=True, timeout=60)
            expected = {f"{prefix}_{name}": value for name, value in expected.items()}

            def found():
                values = shown(http_port)
                return {name: round(values.get(name, -1), 9) for name in expected}

            until(lambda: found() == expected)
            if found() != expected:
                faults += 1
                print(f"{prefix}: sent {expected}, shown {found()}")
            else:
                print(f"{prefix}: {len(expected)} values")
        refused = shown(http_port).get("quipu_input_refused_total", 0)
        if refused:
            faults += 1
            print(f"{refused:.0f} lines were refused: see GET /refused")
    finally:
        daemon.terminate()
        daemon.wait()
        home.cleanup()
    sys.exit(min(faults, 1))


main()
