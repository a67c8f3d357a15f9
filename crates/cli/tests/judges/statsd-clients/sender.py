"""Sends with the PyPI packages datadog and statsd: sender.py PACKAGE TRANSPORT ADDRESS PREFIX."""

import sys

import statsd
from datadog.dogstatsd import DogStatsd


def send_datadog(place, prefix):
    client = DogStatsd(namespace=prefix, disable_telemetry=True, **place)
    tags = ["route:/a"]
    client.increment("hits", 3, tags=tags)
    client.increment("hits", tags=tags)
    client.gauge("level", 2.5)
    for _ in range(2):
        client.timing("took", 20)
    client.histogram("size", 5)
    client.histogram("size", 15)
    client.distribution("spread", 7)
    client.event("an event", "with a text")
    client.service_check("a.check", client.OK)
    client.flush()
    client.close_socket()


def send_statsd(kind, port, prefix):
    client = kind("127.0.0.1", port, prefix=prefix)
    with client.pipeline() as pipe:
        pipe.incr("hits", 3)
        pipe.incr("hits")
        pipe.gauge("level", 2)
        pipe.gauge("level", 0.5, delta=True)
    for _ in range(2):
        client.timing("took", 20)


def main():
    package, transport, address, prefix = sys.argv[1:]
    if package == "statsd":
        kind = {"udp": statsd.StatsClient, "tcp": statsd.TCPStatsClient}[transport]
        send_statsd(kind, int(address), prefix)
    elif transport == "unix":
        send_datadog({"socket_path": address}, prefix)
    else:
        send_datadog({"host": "127.0.0.1", "port": int(address)}, prefix)


main()
