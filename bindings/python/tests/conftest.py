"""What the tests share."""

import os
import subprocess
import sys
import textwrap

import pytest


@pytest.fixture
def run(tmp_path):
    """Runs a program in a process of its own, and answers what it prints."""

    # The limit is for what hangs: a machine that does much else may take its time.
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
    """A registry of the test's own."""
    import quipu

    return quipu.CollectorRegistry()
