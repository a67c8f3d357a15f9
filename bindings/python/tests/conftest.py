"""Fixtures that several tests use."""

import os
import subprocess
import sys
import textwrap

import pytest


@pytest.fixture
def run(tmp_path):
    """Runs a program in a new process; returns the completed process with its output."""

    # The timeout is only for hangs: a busy machine may be slow.
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
    import quipu

    return quipu.CollectorRegistry()
