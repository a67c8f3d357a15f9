"""The types, as mypy sees them in a user's program, and the documentation of public names."""

import importlib
import inspect
import pkgutil
import subprocess
import sys

import quipu_metrics as quipu

SAMPLE = """
import quipu_metrics as quipu
from quipu_metrics import Counter, Enum, Gauge, Histogram, Info, Summary

c = Counter("c", "C.", ["a"], namespace="n")
reveal_type(c)
reveal_type(c.labels("x", a=1))
c.labels("x").inc(2, exemplar={"trace_id": "x"})
Gauge("g", "G.", multiprocess_mode="livesum").set_function(lambda: 1.0)
with Histogram("h", "H.", buckets=[1, 2]).time() as timer:
    pass
@Summary("s", "S.").time()
def work(n: int) -> str:
    return str(n)
reveal_type(work)
Enum("e", "E.", states=["a"]).state("a")
Info("i", "I.").info({"a": "b"})
reveal_type(quipu.generate_latest())
quipu.configure("/dir", limit=1, record={"interval": 5.0})
with quipu.REGISTRY.record(interval=0.5, families=["c"]) as recording:
    reveal_type(recording.is_writing)
reveal_type(quipu.REGISTRY.record())
settings: quipu.RecordingSettings = {"families": ["c"]}
quipu.configure(record=settings)

import prometheus_client
from quipu_metrics.core import CounterMetricFamily, Metric, NativeHistogram
class Ours:
    def collect(self) -> list[Metric]:
        family = CounterMetricFamily("f", "F.", labels=["a"])
        family.add_metric(["x"], 1)
        return [family]
class Theirs:
    def collect(self) -> list[prometheus_client.Metric]:
        return []
quipu.REGISTRY.register(Ours())
quipu.REGISTRY.register(Theirs())
quipu.REGISTRY.register(prometheus_client.Counter("p", "P."))
quipu.generate_latest(prometheus_client.REGISTRY)
server, thread = quipu.start_http_server(0)
reveal_type(server)
for public in (
    reveal_type(quipu.start_http_server), reveal_type(quipu.make_asgi_app),
    reveal_type(quipu.generate_latest), reveal_type(quipu.choose_encoder),
    reveal_type(quipu.configure), reveal_type(quipu.install), reveal_type(c.count_exceptions),
    reveal_type(quipu.write_to_textfile), reveal_type(quipu.REGISTRY.register),
):
    pass
from wsgiref.types import WSGIApplication
application: WSGIApplication = quipu.make_wsgi_app()

c.inc("x")
Gauge("g", "G.", multiprocess_mode="wrong")
"""


def test_types(tmp_path):
    (tmp_path / "sample.py").write_text(SAMPLE)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path), "sample.py"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    out = done.stdout
    for revealed in (
        '"quipu_metrics.metrics.Counter"',
        '"def (n: builtins.int) -> builtins.str"',
        '"builtins.bytes"',
        '"builtins.bool"',
        '"quipu_metrics.recording.Recording"',
        '"wsgiref.simple_server.WSGIServer"',
    ):
        assert f"Revealed type is {revealed}" in out or revealed.replace("builtins.", "") in out, out
    revealed_any = [line for line in out.splitlines() if "Revealed" in line and "Any" in line]
    assert not revealed_any, out
    errors = [line for line in out.splitlines() if ": error:" in line]
    assert len(errors) == 2 and "inc" in errors[0] and "multiprocess_mode" in errors[1], out


def test_public_names_have_documentation():
    modules = [quipu]
    for found in pkgutil.walk_packages(quipu.__path__, "quipu_metrics."):
        if "._" not in found.name:
            modules.append(importlib.import_module(found.name))
    missing = []
    for module in modules:
        public = {name: value for name, value in vars(module).items() if name[0] != "_"}
        for name, value in public.items():
            if not (inspect.isclass(value) or inspect.isfunction(value)):
                continue
            if not (value.__module__ or "").startswith("quipu_metrics"):
                continue
            if not value.__doc__:
                missing.append(f"{module.__name__}.{name}")
            for member, method in vars(value).items():
                documented = inspect.isroutine(method) or isinstance(method, property)
                if inspect.isclass(value) and member[0] != "_" and documented:
                    if not inspect.getdoc(getattr(value, member)):
                        missing.append(f"{module.__name__}.{name}.{member}")
    assert not missing
