"""The package of OpenMetrics, with the same modules as ``prometheus_client.openmetrics``."""
