#!/usr/bin/env python3
"""Counts the instructions that the daemon executes for a request of each kind, with callgrind.

Use `daemon_counts.py QUIPU...` to compare programs, for example the binaries of two commits. It
prints a row for each kind of request and a column for each program: the instructions of one
request, which are the difference between runs with 100 and with 400 requests. Unlike times, these
counts hardly depend on the load of the machine. Compare them only with each other, because they
omit the kernel.
"""

import http.client
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FEW, MANY = 100, 400


def text(round):
    lines = (f'requests_total{{path="/p{n}",code="200"}} {round * 100 + n}\n' for n in range(100))
    return ("# TYPE requests_total counter\n" + "".join(lines)).encode()


def influx(round):
    return "\n".join(f"cpu,host=h{n} usage={round}.5,idle={n}" for n in range(50)).encode()


def remote_write(round):
    """Returns a request of remote write 1.0 with 100 series, in Snappy without compression."""
    request = b""
    for n in range(100):
        series = b""
        for name, value in (("__name__", "requests_total"), ("job", "api"), ("path", f"/p{n}")):
            series += field(1, field(1, name.encode()) + field(2, value.encode()))
        sample = b"\x09" + struct.pack("<d", round * 100 + n)
        sample += b"\x10" + varint(1_700_000_000_000 + round * 1000)
        request += field(1, series + field(2, sample))
    pieces = (request[at : at + 60] for at in range(0, len(request), 60))
    return varint(len(request)) + b"".join(bytes([len(p) - 1 << 2]) + p for p in pieces)


def field(number, payload):
    return bytes([number << 3 | 2]) + varint(len(payload)) + payload


def varint(number):
    out = b""
    while number > 127:
        out, number = out + bytes([number & 127 | 128]), number >> 7
    return out + bytes([number])


PROTOBUF = {"Content-Encoding": "snappy", "Content-Type": "application/x-protobuf"}
# The method, the path, the body of a round, and the headers.
REQUESTS = {
    "push, 100 series": ("PUT", "/metrics/job/batch", text, {}),
    "import, 100 samples": ("POST", "/api/v1/import/prometheus", text, {}),
    "remote write, 100 samples": ("POST", "/api/v1/write", remote_write, PROTOBUF),
    "influx, 50 lines": ("POST", "/write", influx, {}),
    "scrape, 100 series": ("GET", "/metrics", lambda _: None, {}),
}
STATSD = "statsd, packet of 20 lines"


def count(quipu, kind, requests):
    """Counts the instructions of a daemon that gets this number of requests."""
    with tempfile.TemporaryDirectory() as folder:
        port, lines = free_port(socket.SOCK_STREAM), free_port(socket.SOCK_DGRAM)
        out = Path(folder) / "callgrind"
        daemon = subprocess.Popen(
            ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", quipu, "serve"]
            + [f"--listen=127.0.0.1:{port}", f"--statsd=udp://127.0.0.1:{lines}", "--threads=1"]
            + [f"--state={folder}/state", "--checkpoint=1h", "--input-bytes=67108864"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            wait(client, daemon)
            if kind == STATSD:
                send_packets(lines, requests)
            else:
                if kind.startswith("scrape"):
                    send(client, REQUESTS["import, 100 samples"], 0)
                for round in range(requests):
                    send(client, REQUESTS[kind], round)
            daemon.send_signal(signal.SIGTERM)
            daemon.wait(timeout=120)
        finally:
            daemon.kill()
        return int(re.search(r"^totals: (\d+)", out.read_text(), re.M).group(1))


def send(client, request, round):
    method, path, body, headers = request
    client.request(method, path, body(round), headers)
    response = client.getresponse()
    response.read()
    if response.status >= 300:
        raise SystemExit(f"{method} {path} got status {response.status}")


def send_packets(port, packets):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        for round in range(packets):
            packet = "\n".join(f"hits.{n}:{round}|c" for n in range(20))
            sender.sendto(packet.encode(), ("127.0.0.1", port))
            # The daemon is slow under callgrind, and must not lose a packet.
            time.sleep(0.003)
        time.sleep(1)


def wait(client, daemon):
    for _ in range(600):
        try:
            client.request("GET", "/-/ready")
            client.getresponse().read()
            return
        except OSError:
            client.close()
        if daemon.poll() is not None:
            break
        time.sleep(0.1)
    raise SystemExit("the daemon does not start under valgrind: run it alone to see why")


def free_port(kind):
    with socket.socket(socket.AF_INET, kind) as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def main():
    programs = sys.argv[1:]
    if not programs:
        raise SystemExit(__doc__)
    print("| request |", " | ".join(programs), "|")
    print("|---|" + "--:|" * len(programs))
    for kind in [*REQUESTS, STATSD]:
        counts = [
            (count(quipu, kind, MANY) - count(quipu, kind, FEW)) // (MANY - FEW)
            for quipu in programs
        ]
        print(f"| {kind} |", " | ".join(f"{n:,}" for n in counts), "|", flush=True)


main()
