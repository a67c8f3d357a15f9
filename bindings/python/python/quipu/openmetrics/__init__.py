"""OpenMetrics."""
