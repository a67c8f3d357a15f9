"""Counts with OpenTelemetry's SDK, and exports twice: otlp.py URL cumulative|delta."""

import sys

from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import Counter, Histogram, MeterProvider, UpDownCounter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    PeriodicExportingMetricReader,
)
from opentelemetry.sdk.metrics.view import ExponentialBucketHistogramAggregation, View
from opentelemetry.sdk.resources import Resource

url, kind = sys.argv[1:]
temporality = None
if kind == "delta":
    temporality = dict.fromkeys((Counter, Histogram), AggregationTemporality.DELTA)
exporter = OTLPMetricExporter(
    endpoint=url, compression=Compression.Gzip, preferred_temporality=temporality
)
provider = MeterProvider(
    resource=Resource({"service.name": "shop", "service.instance.id": kind}),
    # Only the exports below.
    metric_readers=[PeriodicExportingMetricReader(exporter, export_interval_millis=1e9)],
    views=[View(instrument_name="weight", aggregation=ExponentialBucketHistogramAggregation())],
)
meter = provider.get_meter("app")
orders = meter.create_counter("orders")
active = meter.create_up_down_counter("active")
temperature = meter.create_gauge("temperature", unit="Cel")
took = meter.create_histogram("took", unit="s", explicit_bucket_boundaries_advisory=[0.1, 1])
weight = meter.create_histogram("weight", unit="kg")

orders.add(2, {"kind": "a"})
active.add(3)
temperature.set(21.5)
took.record(0.5)
weight.record(2.5)
provider.force_flush()
orders.add(1, {"kind": "a"})
active.add(-2)
provider.force_flush()
provider.shutdown()
