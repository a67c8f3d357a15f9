"""The types of collectors, registries and their metrics, for annotations.

Objects of this package and of ``prometheus_client`` match these types. You can use any other object
with the same methods and attributes.
"""

from typing import Iterable, Mapping, Optional, Protocol, Sequence, SupportsFloat

from .samples import NativeHistogram


class CollectedExemplar(Protocol):
    """An exemplar of a collected sample."""

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels that identify the observation."""

    @property
    def value(self) -> float:
        """The observed value."""

    @property
    def timestamp(self) -> Optional[SupportsFloat]:
        """The Unix time in seconds."""


class CollectedSample(Protocol):
    """A sample of a collected metric."""

    @property
    def name(self) -> str:
        """The name, with the suffix that the type of the metric prescribes."""

    @property
    def labels(self) -> Mapping[str, str]:
        """The labels."""

    @property
    def value(self) -> float:
        """The number."""

    @property
    def timestamp(self) -> Optional[SupportsFloat]:
        """The Unix time in seconds, or None for the time of the scrape."""

    @property
    def exemplar(self) -> Optional[CollectedExemplar]:
        """An observation that is an example, or None."""


class CollectedMetric(Protocol):
    """A metric that a collector returns."""

    @property
    def name(self) -> str:
        """The name, without the suffixes of its samples."""

    @property
    def documentation(self) -> str:
        """The help text."""

    @property
    def type(self) -> str:
        """The type, such as ``counter``."""

    @property
    def samples(self) -> Sequence[CollectedSample]:
        """The samples."""


class Collector(Protocol):
    """An object that a registry calls at each scrape. A registry is a collector as well."""

    def collect(self) -> Iterable[CollectedMetric]:
        """Returns the metrics with their samples."""


class Registry(Collector, Protocol):
    """A registry that a server or an application can serve."""

    def restricted_registry(self, names: Iterable[str]) -> Collector:
        """Returns a view that shows only the samples with these names."""
