"""The contenders: their libraries, and how their metrics are created and called.

Each contender runs in a separate process, because the environment chooses the multi-process mode of
prometheus_client before the import, and quipu's `install` modifies prometheus_client.
"""

import os

LABELS = ("code", "path")


class PrometheusClient:
    """prometheus_client in one process, without sharing."""

    key = "prometheus-client"
    places = ("memory",)
    shared = False

    def __init__(self, folder):
        import prometheus_client

        self.folder = folder
        self.library = prometheus_client
        self.registry = self.new_registry()

    @property
    def subject(self):
        from importlib.metadata import version

        return f"prometheus_client {version('prometheus_client')}"

    def new_registry(self):
        return self.library.CollectorRegistry()

    def counter(self, name, labels=()):
        return self.library.Counter(name, "Counted by a benchmark", labels, registry=self.registry)

    def histogram(self, name, labels=()):
        return self.library.Histogram(
            name, "Observed by a benchmark", labels, registry=self.registry
        )

    def expose(self):
        return self.library.generate_latest(self.registry).decode()


class MultiProcess(PrometheusClient):
    """prometheus_client in multi-process mode: a mapped file for each kind and process."""

    key = "multi-process"
    places = ("tmpfs", "disk")
    shared = True

    def __init__(self, folder):
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = folder
        super().__init__(folder)

    @property
    def subject(self):
        return f"{super().subject}, multi-process"

    def expose(self):
        from prometheus_client import multiprocess

        registry = self.new_registry()
        multiprocess.MultiProcessCollector(registry, path=self.folder)
        return self.library.generate_latest(registry).decode()


class Installed(PrometheusClient):
    """prometheus_client with values in quipu: the result of one call in an application."""

    key = "quipu-install"
    places = ("tmpfs", "disk")
    shared = True
    subject = "quipu (installed in prometheus_client)"

    def __init__(self, folder):
        import quipu_metrics as quipu

        quipu.install(folder)
        super().__init__(folder)

    def new_registry(self):
        return self.library.REGISTRY


class Quipu(PrometheusClient):
    """quipu's own classes on a segment in a file."""

    key = "quipu"
    places = ("tmpfs", "disk")
    shared = True
    subject = "quipu"

    def __init__(self, folder):
        import quipu_metrics as quipu

        quipu.configure(folder)
        self.folder = folder
        self.library = quipu
        self.registry = quipu.REGISTRY


ALL = {contender.key: contender for contender in (PrometheusClient, MultiProcess, Installed, Quipu)}
