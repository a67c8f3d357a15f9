"""Pushes with Prometheus' own client, as batch jobs do: daemon's address, then what to push."""

import sys

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Summary
from prometheus_client import delete_from_gateway, push_to_gateway, pushadd_to_gateway

gateway = sys.argv[1]
registry = CollectorRegistry()
Counter("jobs", "Jobs.", ["queue"], registry=registry).labels("mail").inc(3)
Gauge("last_success", "When.", registry=registry).set(1700000000.5)
Histogram("took_seconds", "How long.", registry=registry, buckets=(0.1, 1)).observe(0.5)
Summary("size_bytes", "How much.", registry=registry).observe(100)
key = {"instance": "a/b", "empty": ""}
push_to_gateway(gateway, job="batch", registry=registry, grouping_key=key)

more = CollectorRegistry()
Gauge("last_success", "When.", registry=more).set(7)
Gauge("added", "More.", registry=more).set(8)
pushadd_to_gateway(gateway, job="batch", registry=more, grouping_key=key)

push_to_gateway(gateway, job="gone", registry=more)
delete_from_gateway(gateway, job="gone")
