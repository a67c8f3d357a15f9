"""Reads a request with OpenTelemetry's own classes, and prints each of its points: otlp_output.py FILE."""

import sys

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality

with open(sys.argv[1], "rb") as file:
    data = file.read()
request = ExportMetricsServiceRequest.FromString(data)
# Discard unknown fields, because they would be preserved, so the bytes would not reveal them.
request.DiscardUnknownFields()
assert len(request.SerializeToString()) == len(data), "fields that are not known, or not canonical"


def number(point):
    return getattr(point, point.WhichOneof("value"))


def show(kind, data, point):
    if kind == "summary":
        pairs = [(pair.quantile, pair.value) for pair in point.quantile_values]
        return [point.count, point.sum, pairs]
    if kind == "gauge":
        return [number(point)]
    name = AggregationTemporality.Name(data.aggregation_temporality)
    temporality = name.removeprefix("AGGREGATION_TEMPORALITY_")
    if kind == "sum":
        return [temporality, data.is_monotonic, number(point)]
    if kind == "histogram":
        bounds = list(point.explicit_bounds)
        return [temporality, point.count, point.sum, list(point.bucket_counts), bounds]
    positive = point.positive
    buckets = [positive.offset, list(positive.bucket_counts)]
    return [temporality, point.count, point.sum, point.scale, point.zero_count, *buckets]


for resource in request.resource_metrics:
    program = [f"{pair.key}={pair.value.string_value}" for pair in resource.resource.attributes]
    for scope in resource.scope_metrics:
        for metric in scope.metrics:
            kind = metric.WhichOneof("data")
            data = getattr(metric, kind)
            for point in data.data_points:
                labels = [f"{pair.key}={pair.value.string_value}" for pair in point.attributes]
                print(metric.name, kind, *show(kind, data, point), *labels, *program)
