"""Fixtures that several tests use."""

import json
import os
import pathlib
import subprocess
import sys
import textwrap

import pytest


@pytest.fixture
def run(tmp_path):
    """Runs a program in a new process; returns the completed process with its output."""

    # This timeout is only for hangs, because a busy machine can be slow.
    def run(program, timeout=300, check=True, **environment):
        clean = {k: v for k, v in os.environ.items() if "MULTIPROC" not in k and k != "QUIPU_DIR"}
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program)],
            env={**clean, **environment},
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            timeout=timeout,
        )
        if check:
            assert done.returncode == 0, done.stderr
        return done

    return run


@pytest.fixture
def registry():
    """A new registry for the test."""
    import quipu_metrics as quipu

    return quipu.CollectorRegistry()


@pytest.fixture
def history():
    """Reads the recording of a file, in the form of ``quipu inspect``; None if there is none."""
    root = pathlib.Path(__file__).parents[3]
    command = os.environ.get("QUIPU") or str(root / "target" / "debug" / "quipu")
    if not os.path.exists(command):
        pytest.skip("NOT RUN: needs the command quipu: cargo build --package quipu-cli")

    def history(file):
        arguments = [command, "inspect", "--history", "--format", "json", str(file)]
        done = subprocess.run(
            arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300
        )
        if "no flight recorder" in done.stderr:
            return None
        assert done.returncode == 0, done.stderr
        shown = json.loads(done.stdout)
        shown["series"] = {one["name"]: one["values"] for one in shown["series"]}
        return shown

    return history
