"""The metrics."""

from typing import Any, Callable, Dict, Iterable, List, Literal, Optional, Sequence, Tuple, Type
from typing import TypeVar, Union

from typing_extensions import Self

from . import _quipu
from .metrics_core import Metric
from .registry import CollectorRegistry

_F = TypeVar("_F", bound=Callable[..., Any])
_Mode = Literal[
    "all", "liveall", "min", "livemin", "max", "livemax", "sum", "livesum", "mostrecent",
    "livemostrecent",
]

def enable_legacy_validation() -> None: ...
def disable_legacy_validation() -> None: ...

class _Context:
    def __enter__(self) -> Any: ...
    def __exit__(self, typ: Any, value: Any, traceback: Any) -> Literal[False]: ...
    def __call__(self, function: _F) -> _F: ...

class _Timer(_Context):
    duration: Optional[float]
    def __enter__(self) -> Self: ...
    def labels(self, *args: object, **kwargs: object) -> None: ...

class MetricWrapperBase:
    def describe(self) -> List[Metric]: ...
    def collect(self) -> List[Metric]: ...
    def remove_by_labels(self, labels: Dict[str, str]) -> None: ...
    def clear(self) -> None: ...

class Counter(_quipu.Counter, MetricWrapperBase):
    def __init__(
        self,
        name: str,
        documentation: str,
        labelnames: Iterable[str] = (),
        namespace: str = "",
        subsystem: str = "",
        unit: str = "",
        registry: Optional[CollectorRegistry] = ...,
    ) -> None: ...
    def count_exceptions(
        self, exception: Union[Type[BaseException], Tuple[Type[BaseException], ...]] = ...
    ) -> _Context: ...

class Gauge(_quipu.Gauge, MetricWrapperBase):
    def __init__(
        self,
        name: str,
        documentation: str,
        labelnames: Iterable[str] = (),
        namespace: str = "",
        subsystem: str = "",
        unit: str = "",
        registry: Optional[CollectorRegistry] = ...,
        _labelvalues: Optional[Sequence[str]] = None,
        multiprocess_mode: Optional[_Mode] = None,
    ) -> None: ...
    def track_inprogress(self) -> _Context: ...
    def time(self) -> _Timer: ...
    def set_function(self, f: Callable[[], float]) -> None: ...

class Summary(_quipu.Summary, MetricWrapperBase):
    def __init__(
        self,
        name: str,
        documentation: str,
        labelnames: Iterable[str] = (),
        namespace: str = "",
        subsystem: str = "",
        unit: str = "",
        registry: Optional[CollectorRegistry] = ...,
    ) -> None: ...
    def time(self) -> _Timer: ...

class Histogram(_quipu.Histogram, MetricWrapperBase):
    DEFAULT_BUCKETS: Tuple[float, ...]
    def __init__(
        self,
        name: str,
        documentation: str,
        labelnames: Iterable[str] = (),
        namespace: str = "",
        subsystem: str = "",
        unit: str = "",
        registry: Optional[CollectorRegistry] = ...,
        _labelvalues: Optional[Sequence[str]] = None,
        buckets: Sequence[Union[float, str]] = ...,
    ) -> None: ...
    def time(self) -> _Timer: ...

class Enum(_quipu.Enum, MetricWrapperBase):
    def __init__(
        self,
        name: str,
        documentation: str,
        labelnames: Sequence[str] = (),
        namespace: str = "",
        subsystem: str = "",
        unit: str = "",
        registry: Optional[CollectorRegistry] = ...,
        _labelvalues: Optional[Sequence[str]] = None,
        states: Optional[Sequence[str]] = None,
    ) -> None: ...

class Info(MetricWrapperBase):
    def __init__(
        self,
        name: str,
        documentation: str,
        labelnames: Iterable[str] = (),
        namespace: str = "",
        subsystem: str = "",
        unit: str = "",
        registry: Optional[CollectorRegistry] = ...,
    ) -> None: ...
    def labels(self, *labelvalues: object, **labelkwargs: object) -> Self: ...
    def info(self, val: Dict[str, str]) -> None: ...
    def remove(self, *labelvalues: object) -> None: ...
