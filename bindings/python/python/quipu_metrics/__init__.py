"""Metrics with the interface of ``prometheus_client``, shared by all workers of a server.

    from quipu_metrics import Counter, make_wsgi_app

    requests = Counter("requests", "Requests.", ["code", "path"])
    requests.labels("200", "/x").inc()

A counter is one number in shared memory, and every process adds to this number, whether the server
forks its workers or starts them. Call ``configure`` to choose this memory, or ``install`` if your
application uses ``prometheus_client`` itself.
"""

from . import exposition, metrics, registry
from .asgi import make_asgi_app
from .backend import __version__
from .exposition import (
    CONTENT_TYPE_LATEST,
    CONTENT_TYPE_PLAIN_0_0_4,
    CONTENT_TYPE_PLAIN_1_0_0,
    choose_encoder,
    disable_created_metrics,
    enable_created_metrics,
    generate_latest,
    make_wsgi_app,
    start_http_server,
    start_wsgi_server,
    write_to_textfile,
)
from .install import install
from .metrics import (
    Counter,
    Enum,
    Gauge,
    Histogram,
    Info,
    Summary,
    disable_legacy_validation,
    enable_legacy_validation,
)
from .metrics_core import Metric
from .recording import Recording, RecordingError, RecordingSettings
from .registry import (
    REGISTRY,
    CollectorRegistry,
    DuplicateTimeseries,
    RestrictedRegistry,
    configure,
)

__all__ = [
    "CONTENT_TYPE_LATEST",
    "CONTENT_TYPE_PLAIN_0_0_4",
    "CONTENT_TYPE_PLAIN_1_0_0",
    "REGISTRY",
    "CollectorRegistry",
    "Counter",
    "DuplicateTimeseries",
    "Enum",
    "Gauge",
    "Histogram",
    "Info",
    "Metric",
    "Recording",
    "RecordingError",
    "RecordingSettings",
    "RestrictedRegistry",
    "Summary",
    "choose_encoder",
    "configure",
    "disable_created_metrics",
    "disable_legacy_validation",
    "enable_created_metrics",
    "enable_legacy_validation",
    "generate_latest",
    "install",
    "make_asgi_app",
    "make_wsgi_app",
    "start_http_server",
    "start_wsgi_server",
    "write_to_textfile",
    "__version__",
]
