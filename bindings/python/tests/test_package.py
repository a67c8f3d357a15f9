"""The installed wheel: its metadata, and the size of its native part."""

import pathlib
from importlib import metadata

import pytest

import quipu_metrics as quipu


def test_the_version_is_the_version_of_the_package():
    assert quipu.__version__ == metadata.version("quipu-metrics")


def test_a_checkout_in_the_path_needs_no_installation(run):
    program = """
        import sys
        sys.path = [path for path in sys.path if not path.endswith("-packages")]
        import quipu_metrics as quipu
        print(quipu.__file__, quipu.__version__)
    """
    source = pathlib.Path(__file__).parent.parent / "python"
    done = run(program, PYTHONPATH=str(source), QUIPU_PURE_PYTHON="1")
    assert done.stdout.split() == [str(source / "quipu_metrics/__init__.py"), quipu.__version__]


def test_the_wheel_contains_one_package_and_no_command():
    # Other distributions install a package and a command that are named quipu.
    wheel = metadata.distribution("quipu-metrics")
    installed = {path.parts[0] for path in wheel.files}
    assert {name for name in installed if not name.endswith(".dist-info")} == {"quipu_metrics"}
    assert not wheel.entry_points


def test_the_metadata_name_the_licences_and_the_pages():
    package = metadata.metadata("quipu-metrics")
    assert package["License-Expression"] == "MIT OR Apache-2.0"
    assert set(package.get_all("License-File")) == {"LICENSE-APACHE", "LICENSE-MIT"}
    pages = {line.split(",")[0] for line in package.get_all("Project-URL")}
    assert {"Documentation", "Repository", "Changelog", "Issues"} <= pages


@pytest.mark.native
def test_the_native_part_has_no_debug_information():
    from quipu_metrics import _quipu

    # The table of the names of sections.
    assert b"\0.debug_line\0" not in pathlib.Path(_quipu.__file__).read_bytes()
