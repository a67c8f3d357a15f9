"""The replacement of the native part, for platforms other than Linux: it has the same interface, and
shows the same numbers.

``make test-python`` also runs all tests that are not marked ``native`` with this replacement.
"""

import inspect
import pathlib

import pytest

from quipu_metrics import _pure

pytestmark = pytest.mark.native
TESTS = pathlib.Path(__file__).parent


def public(owner):
    return {name for name in vars(owner) if not name.startswith("__")}


def test_the_interface_is_the_same():
    from quipu_metrics import _quipu

    names = {name for name in public(_quipu) if inspect.isclass(getattr(_quipu, name))}
    functions = public(_quipu) - names
    assert "Counter" in names and "expose" in functions
    for name in functions:
        expected, found = getattr(_quipu, name), getattr(_pure, name)
        assert list(inspect.signature(found).parameters) == list(
            inspect.signature(expected).parameters
        ), name
    for name in names:
        expected, found = getattr(_quipu, name), getattr(_pure, name)
        assert issubclass(found, ValueError) == issubclass(expected, ValueError), name
        for member in public(expected):
            method = getattr(expected, member)
            assert hasattr(found, member), f"{name}.{member}"
            if callable(method):
                assert list(inspect.signature(getattr(found, member)).parameters) == list(
                    inspect.signature(method).parameters
                ), f"{name}.{member}"


def lines(run, program):
    """Returns the sorted lines that the program prints with the native part, and without."""
    outputs = [run(program, QUIPU_PURE_PYTHON=is_pure).stdout for is_pure in ("0", "1")]
    return [sorted(output.splitlines()) for output in outputs]


@pytest.mark.parametrize("seed", range(4))
def test_the_exposition_is_the_same(run, seed):
    native, pure = lines(run, f"""
        import sys
        sys.path.insert(0, {str(TESTS)!r})
        import quipu_metrics as quipu
        from quipu_metrics import exposition
        from test_parity import parse_open, parse_text, program, read
        registry = quipu.CollectorRegistry()
        program(quipu, registry, {seed})
        for form, parse in (("text", parse_text), ("openmetrics", parse_open)):
            for name, (*about, samples) in read(exposition._expose(registry, form, ""), parse).items():
                print(name, about)
                for sample in samples:
                    print(sample)
    """)
    assert len(native) > 500
    assert pure == native


@pytest.mark.parametrize("mode", [None, "all", "liveall", "sum", "livemin", "max", "mostrecent"])
def test_the_text_is_the_same(run, mode):
    native, pure = lines(run, f"""
        import os, quipu_metrics as quipu
        def show():
            text = quipu.generate_latest() + quipu.openmetrics.exposition.generate_latest(quipu.REGISTRY)
            print(text.decode().replace(str(os.getpid()), "PID"))
        import quipu_metrics.openmetrics.exposition
        gauge = quipu.Gauge("g", "G.", multiprocess_mode={mode!r})
        show()
        gauge.set(2)
        show()
        quipu.Gauge("h", "H.", ["a"], multiprocess_mode={mode!r}).labels("b")
        quipu.Histogram("nan", "N.").observe(float("nan"))
        quipu.Histogram("negative", "N.", buckets=[-1, 1]).observe(0.5)
        quipu.Summary("s", "S.").observe(float("nan"))
        quipu.Info("i", "I.", ["a"]).labels("b").info({{"d": "e", "c": "f"}})
        quipu.Enum("e", "E.", states=["on", "off"]).state("off")
        quipu.Counter("c", "C.").inc(float("nan"))
        quipu.Counter("d", "D.", ["x"], unit="seconds")
        quipu.Counter("f", "F.", ["b", "a"]).labels("1", "2").inc(float("inf"))
        for i, value in enumerate([0.1, 123456.5, 1234567.5, 1e6, 1e15, 2.0**53, -2.5, -3, 1e20]):
            quipu.Gauge(f"v{{i}}", "V.").set(value)
        show()
    """)
    assert len(native) > 100
    assert pure == native


@pytest.mark.parametrize(
    "accept",
    [
        "",
        "*/*",
        "text/plain",
        "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.6,*/*;q=0.1",
        "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5",
        "application/openmetrics-text;version=2.0.0; escaping=\"allow-utf-8\"",
        "text/plain;version=0.0.4;q=0.5,application/openmetrics-text;q=0.4",
        "text/html;q=x, a;b=c",
    ],
)
def test_formats_are_negotiated_alike(accept):
    from quipu_metrics import _quipu

    assert _pure.negotiate(accept) == _quipu.negotiate(accept)


def test_a_package_without_the_native_part_tells_what_is_missing(run):
    source = TESTS.parent / "python"
    program = """
        import quipu_metrics as quipu
        quipu.configure("numbers", record=True)
        quipu.Counter("c", "C.").inc()
        quipu.install()
        assert quipu.REGISTRY.get_sample_value("c_total") == 1
        print(quipu.__file__)
    """
    done = run(program, PYTHONPATH=str(source))
    assert str(source) in done.stdout
    assert done.stderr.count("without its native part") == 1
    assert done.stderr.count("nothing is recorded") == 2
    done = run(program, PYTHONPATH=str(source), QUIPU_PURE_PYTHON="1")
    assert "without its native part" not in done.stderr


def test_it_runs_without_the_functions_of_unix(run, tmp_path):
    run(f"""
        import os, socket, sys, urllib.request
        del os.fork, os.register_at_fork, socket.AF_UNIX
        sys.modules["grp"] = sys.modules["fcntl"] = sys.modules["resource"] = None
        import quipu_metrics as quipu
        quipu.configure("numbers", record=True)
        quipu.Counter("c", "C.").inc()
        server, thread = quipu.start_http_server(0, "127.0.0.1")
        with urllib.request.urlopen(f"http://127.0.0.1:{{server.server_port}}/metrics") as response:
            assert b"c_total 1" in response.read()
        quipu.write_to_textfile("c.prom", quipu.REGISTRY)
        try:
            quipu.configure("other", group="staff")
        except ValueError:
            print("refused")
    """, QUIPU_PURE_PYTHON="1")
    assert [path.name for path in tmp_path.iterdir()] == ["c.prom"]
