"""The type stubs, checked by mypy."""

import subprocess
import sys

SAMPLE = """
import quipu
from quipu import Counter, Enum, Gauge, Histogram, Info, Summary

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
        '"quipu.metrics.Counter"',
        '"def (n: builtins.int) -> builtins.str"',
        '"builtins.bytes"',
        '"builtins.bool"',
        '"quipu.recording.Recording"',
    ):
        assert f"Revealed type is {revealed}" in out or revealed.replace("builtins.", "") in out, out
    errors = [line for line in out.splitlines() if ": error:" in line]
    assert len(errors) == 2 and "inc" in errors[0] and "multiprocess_mode" in errors[1], out
