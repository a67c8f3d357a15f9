"""Parses an exposition with Prometheus' Python client, and prints its samples as JSON.

Usage: check.py text|openmetrics < exposition
"""

import json
import math
import sys

from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics_parser


def number(value):
    """A JSON number, or a string for NaN and the infinities."""
    value = float(value)
    return value if math.isfinite(value) else str(value)


def main():
    text = sys.stdin.buffer.read().decode("utf-8")
    parse = {
        "text": parser.text_string_to_metric_families,
        "openmetrics": openmetrics_parser.text_string_to_metric_families,
    }[sys.argv[1]]
    samples = []
    for family in parse(text):
        for sample in family.samples:
            exemplar = sample.exemplar
            samples.append(
                {
                    "family": family.name,
                    "type": family.type,
                    "help": family.documentation,
                    "unit": family.unit,
                    "name": sample.name,
                    "labels": sample.labels,
                    "value": number(sample.value),
                    "exemplar": exemplar
                    and {"labels": exemplar.labels, "value": number(exemplar.value)},
                }
            )
    json.dump(samples, sys.stdout)


main()
