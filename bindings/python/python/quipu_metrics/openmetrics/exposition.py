"""The exposition in the OpenMetrics text format."""

from ..exposition import _expose
from ..interfaces import Collector
from ..registry import REGISTRY

CONTENT_TYPE_LATEST = "application/openmetrics-text; version=1.0.0; charset=utf-8"
"""The ``Content-Type`` header for what ``generate_latest`` returns."""


def generate_latest(
    registry: Collector = REGISTRY, escaping: str = "underscores", version: str = "1.0.0"
) -> bytes:
    """Returns all metrics of a registry in the OpenMetrics format, with exemplars and units."""
    form = "openmetrics-2" if version.startswith("2.") else "openmetrics"
    return _expose(registry, form, escaping)
